"""The templates in examples/events: CloudFormation's types accept them, and their rules get the events they are for."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import aws_cdk as cdk
import pytest
import yaml
from aws_cdk import cloudformation_include
from moto.events.models import EventPattern

from nodesmith.decisions.reporting.notifications import DETAILS, schema
from nodesmith.settings import HEALTH_DETAIL_TYPE, HEALTH_SOURCE, NOTIFICATIONS

FOLDER = Path(__file__).parents[3] / "examples/events"
TEMPLATES = sorted(FOLDER.glob("*.yaml"))
KINDS = {
    "digest": {*NOTIFICATIONS, HEALTH_DETAIL_TYPE},
    "slack": {"PodUnplaced", "InterruptionServed", "SpendingAbove"},
    "sns": {"PodUnplaced", "BudgetBlocked", "SpendingAbove", HEALTH_DETAIL_TYPE},
}


class _Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms as plain values."""


def _plain(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    return loader.construct_sequence(node) if isinstance(node, yaml.SequenceNode) else None


_Loader.add_multi_constructor("!", _plain)


def resources(name: str, kind: str) -> list[dict[str, Any]]:
    """Return the properties of a template's resources of a kind."""
    template = yaml.load((FOLDER / f"{name}.yaml").read_text(), Loader=_Loader)  # noqa: S506 a SafeLoader
    return [each["Properties"] for each in template["Resources"].values() if each["Type"] == kind]


def test_the_cdk_reads_every_template_and_every_property_in_it(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path))
    for path in TEMPLATES:
        stack = cdk.Stack(app, path.stem)
        cloudformation_include.CfnInclude(stack, "Template", template_file=str(path))
    app.synth()
    for path in TEMPLATES:
        made = json.loads((tmp_path / f"{path.stem}.template.json").read_text())
        given = yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506 a SafeLoader
        for name, resource in given["Resources"].items():
            assert set(made["Resources"][name]["Properties"]) == set(resource["Properties"]), (
                f"{path.name} {name}"
            )


@pytest.mark.parametrize("name", [path.stem for path in TEMPLATES])
def test_rules_get_the_kinds_that_the_example_is_for_and_nobody_elses(name: str) -> None:
    rules = [
        EventPattern.load(json.dumps(rule["EventPattern"])) for rule in resources(name, "AWS::Events::Rule")
    ]

    def gets(rule: EventPattern, source: str, kind: str) -> bool:
        event: Any = {"source": source, "detail-type": kind, "detail": {}}
        return bool(rule.matches_event(event))

    got = {
        kind
        for kind in (*NOTIFICATIONS, HEALTH_DETAIL_TYPE)
        if any(gets(rule, HEALTH_SOURCE, kind) for rule in rules)
    }
    assert got == KINDS[name]
    assert not any(gets(rule, "aws.ec2", "PodUnplaced") for rule in rules)


def test_what_is_said_in_slack_uses_fields_of_the_events() -> None:
    schemas = {kind.__name__: schema(kind) for kind in DETAILS}
    for rule in resources("slack", "AWS::Events::Rule"):
        (kind,) = rule["EventPattern"]["detail-type"]
        transformer = rule["Targets"][0]["InputTransformer"]
        fields = {path.removeprefix("$.detail.") for path in transformer["InputPathsMap"].values()}
        assert fields <= set(schemas[kind]["properties"])
        assert set(re.findall(r"<(\w+)>", transformer["InputTemplate"])) == set(transformer["InputPathsMap"])
        assert set(json.loads(transformer["InputTemplate"])) == {"text"}


class Aws:
    """The clients of the digest's function. The query needs a moment."""

    def __init__(self, rows: list[dict[str, str]], status: str = "Complete") -> None:
        self.rows, self.status = rows, status
        self.polls = 0
        self.query: dict[str, Any] = {}
        self.sent: list[dict[str, str]] = []

    def client(self, service: str) -> Aws:
        assert service in {"logs", "sns"}
        return self

    def start_query(self, **asked: Any) -> dict[str, str]:
        self.query = asked
        return {"queryId": "q"}

    def get_query_results(self, queryId: str) -> dict[str, Any]:  # noqa: N803 AWS's name
        assert queryId == "q"
        self.polls += 1
        rows = [[{"field": name, "value": value} for name, value in row.items()] for row in self.rows]
        return {"status": "Running" if self.polls == 1 else self.status, "results": rows}

    def publish(self, **asked: str) -> None:
        self.sent.append(asked)


def digest(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the digest's function with these clients."""
    (function,) = resources("digest", "AWS::Lambda::Function")
    boto3 = ModuleType("boto3")
    vars(boto3)["client"] = aws.client
    monkeypatch.setitem(sys.modules, "boto3", boto3)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("LOG_GROUP", "/aws/events/nodesmith")
    monkeypatch.setenv("TOPIC", "topic")
    code: dict[str, Any] = {}
    exec(function["Code"]["ZipFile"], code)  # noqa: S102 the example's own code
    code["handler"]({}, None)


def test_the_digest_counts_the_last_week_by_kind_and_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = Aws([{"detail.cluster": "east", "detail-type": "NodeLaunched", "n": "12"}])
    digest(aws, monkeypatch)
    assert aws.sent == [
        {
            "TopicArn": "topic",
            "Subject": "nodesmith: the last seven days",
            "Message": "    12  NodeLaunched  east",
        }
    ]
    assert aws.query["endTime"] - aws.query["startTime"] == 7 * 24 * 3600
    assert abs(aws.query["endTime"] - datetime.now(UTC).timestamp()) < 60


def test_the_digest_also_counts_events_without_an_id_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = Aws([])
    digest(aws, monkeypatch)
    counted, _, _ = aws.query["queryString"].partition(" | sort")
    assert counted == (
        "fields coalesce(detail.id, id) as about | stats count_distinct(about) as n by detail.cluster, `detail-type`"
    )


def test_a_digest_whose_query_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="the query ended as Timeout"):
        digest(Aws([], "Timeout"), monkeypatch)
