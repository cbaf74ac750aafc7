"""The files in monitoring/: each query names series and labels that exist, each alert has a runbook and a test."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from infra.functions.concerns import function_names
from monitoring.__main__ import HERE, rendered_files
from monitoring.alerts import ALERTS, GROUPS, Alert
from monitoring.cloudwatch import DYNAMODB, LAMBDA, SQS
from monitoring.panels import Metric, document
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME, QUEUE_NAME
from tests.promql import (
    Answer,
    alert_queries,
    answers,
    as_parsed,
    cloudwatch_metrics,
    dashboards,
    digest,
    kept,
    panel_queries,
    queries,
)
from tests.promql.dangling import dangling, unknown_labels
from tests.promql.exported import emitted, exported

ROOT = Path(__file__).parents[3]
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text()
_OF_AWS = {
    LAMBDA: (set(function_names(())), {"Invocations", "Errors", "Duration", "Throttles", "AsyncEventAge"}),
    DYNAMODB: ({"nodesmith"}, {"ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits"}),
    SQS: (
        {QUEUE_NAME, DEAD_LETTER_QUEUE_NAME},
        {
            "ApproximateNumberOfMessagesVisible",
            "ApproximateNumberOfMessagesDelayed",
            "ApproximateAgeOfOldestMessage",
        },
    ),
}
"""Namespaces of AWS → the resources and metrics that exist in it"""
series = cache(exported)


def test_the_files_are_what_the_descriptions_say() -> None:
    found = {name: (HERE / name).read_text() for name in rendered_files()}
    assert found == dict(rendered_files()), "run `python -m monitoring`"
    assert {path.name for path in (HERE / "grafana").iterdir()} == {
        Path(name).name for name in found if name.startswith("grafana/")
    }


def test_every_query_names_series_and_labels_that_the_forwarder_serves() -> None:
    assert dangling(answers(), series()) == []


def test_a_query_of_a_series_or_label_that_nobody_exports_is_found() -> None:
    reported = {
        "sum(karpenter_nope)": Answer("", (Answer("").uses or ()), None),
        "x": Answer("a fault"),
    }
    known = {"karpenter_nodes_created_total": frozenset({"nodepool"})}
    assert dangling(reported, known) == ["x: a fault"]
    assert unknown_labels(("zone", "cluster"), ("karpenter_nodes_created_total",), known) == ["zone"]
    assert unknown_labels((), ("karpenter_nope",), known) == ["karpenter_nope"]


def test_prometheus_and_grafana_have_read_these_very_files() -> None:
    reported = kept()
    assert sorted(reported["queries"]) == queries(), "run `python -m tests.promql --write`"
    assert reported["faults"] == []
    assert reported["promtool"] == {"rules": len(ALERTS), "digest": digest()}, (
        "run `python -m tests.promql --write`"
    )


def test_legends_name_labels_that_their_query_has() -> None:
    reported, wrong = answers(), []
    for where, query in panel_queries():
        answer = reported[as_parsed(query.expression)]
        names = set(re.findall(r"{{(\w+)}}", query.legend))
        has = set(answer.by) if answer.by is not None else set[str]()
        if answer.by is None:
            has = {label for use in answer.uses for name in use.series for label in series().get(name, ())}
        wrong += [f"{where}: {name}" for name in sorted(names - has)]
    assert wrong == []


def test_a_metric_of_cloudwatch_is_written_by_a_function_or_is_of_aws() -> None:
    own, wrong = set(emitted()), []
    for metric in cloudwatch_metrics():
        if metric.formula:
            continue
        keys = frozenset(key for key, _ in metric.dimensions)
        if metric.namespace in _OF_AWS:
            resources, names = _OF_AWS[metric.namespace]
            ok = metric.name in names and {value for _, value in metric.dimensions} <= resources
        else:
            ok = (metric.namespace, metric.name, keys) in own
        wrong += [] if ok else [metric]
    assert wrong == []


def test_expressions_of_cloudwatch_use_metrics_of_their_panel() -> None:
    metrics = list(cloudwatch_metrics())
    ids = {metric.id for metric in metrics if metric.id}
    used = {word for metric in metrics for word in re.findall(r"[a-z]+\d*", metric.formula)}
    assert used
    assert used <= ids
    assert Metric(formula="a + 1").target("A")["metricEditorMode"] == 1


@pytest.mark.parametrize("name", [each.name for each in dashboards()])
def test_a_dashboard_fixes_no_data_source_and_has_variables(name: str) -> None:
    made = json.loads((HERE / f"grafana/{name}.json").read_text())
    text = json.dumps(made)
    assert set(re.findall(r'"uid": "([^"]*)"', text)) - {name} <= {"${datasource}", "${cloudwatch}"}
    variables = {each["name"] for each in made["templating"]["list"]}
    assert variables in ({"datasource", "cluster"}, {"cloudwatch", "region"})
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in made["panels"]]
    assert len(set(places)) == len(places)
    if "cluster" in variables:
        shown = [t["expr"] for panel in made["panels"] for t in panel.get("targets", ())]
        assert [each for each in shown if 'cluster=~"$cluster"' not in each] == []


def test_titles_of_dashboards_differ() -> None:
    assert len({document(each)["title"] for each in dashboards()}) == len(dashboards())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_a_group_a_runbook_and_series_that_fire_it_and_that_do_not(alert: Alert) -> None:
    assert alert.group in GROUPS
    assert alert.firing != alert.quiet
    section = RUNBOOKS.partition(f"\n## {alert.name}\n")[2].partition("\n## ")[0]
    for word in ("**Meaning.**", "**Look at.**", "**Do.**"):
        assert word in section, f"docs/runbooks.md lacks {word} of {alert.name}"


def test_the_page_of_runbooks_has_alerts_that_exist_only() -> None:
    assert re.findall(r"^## (Nodesmith\w+)$", RUNBOOKS, re.MULTILINE) == [each.name for each in ALERTS]


def test_rules_of_prometheus_and_of_its_operator_are_the_same() -> None:
    rules = yaml.safe_load((HERE / "prometheus/nodesmith.rules.yaml").read_text())
    object_ = yaml.safe_load((HERE / "prometheus-operator/prometheusrule.yaml").read_text())
    assert object_["spec"] == rules
    assert [rule["expr"] for group in rules["groups"] for rule in group["rules"]] == list(
        alert_queries().values()
    )


@pytest.mark.parametrize("name", [each.name for each in dashboards()])
def test_a_configmap_fits_into_the_annotation_that_kubectl_writes(name: str) -> None:
    content = (HERE / f"grafana/{name}.json").read_text()
    assert len(json.dumps(json.dumps({"data": {f"{name}.json": content}}))) < 256 * 1024


def test_the_kustomization_has_every_dashboard_and_selects_the_forwarder() -> None:
    made = yaml.safe_load((HERE / "kustomization.yaml").read_text())
    maps = made["configMapGenerator"]
    assert [each["options"]["labels"] for each in maps] == [{"grafana_dashboard": "1"}] * len(dashboards())
    assert [each["files"] for each in maps] == [[f"grafana/{each.name}.json"] for each in dashboards()]
    deployment = (ROOT / "forwarder/base/deployment.yaml").read_text()
    (forwarder,) = [each for each in yaml.safe_load_all(deployment) if each["kind"] == "Deployment"]
    monitor = yaml.safe_load((HERE / "prometheus-operator/podmonitor.yaml").read_text())
    template = forwarder["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = {port["name"] for each in template["spec"]["containers"] for port in each["ports"]}
    assert endpoint["port"] in ports
