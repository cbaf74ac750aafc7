"""Writes dashboards, rules and manifests; with `--docs URL`, alerts link to that documentation site."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from monitoring.alerts import ALERTS, GROUPS, Alert
from monitoring.dashboards import DASHBOARDS, OPERATION
from monitoring.panels import document

HERE = Path(__file__).parent
RUNBOOKS = "docs/runbooks.md"
RULES, TESTS = "prometheus/nodesmith.rules.yaml", "prometheus/nodesmith.tests.yaml"
_WRITTEN_BY = "# Written by `python -m monitoring`.\n"
_KUSTOMIZATION = """# kubectl apply -k monitoring/
# For clusters with the Prometheus operator and a Grafana whose sidecar loads ConfigMaps with the label below.
# docs/monitoring.md says how to name the cluster, and how to use the files without the operator.
"""


def rendered_files(runbooks: str = RUNBOOKS) -> Mapping[str, str]:
    """Return the files: path within this folder → text. `runbooks` is the page that alerts link to."""
    files = {
        f"grafana/{dashboard.name}.json": json.dumps(document(dashboard), indent=2) + "\n"
        for dashboard in (*DASHBOARDS, OPERATION)
    }
    groups = rules(runbooks)
    files[RULES] = _yaml(groups)
    files[TESTS] = _yaml({"rule_files": [Path(RULES).name], "tests": [t for a in ALERTS for t in cases(a)]})
    files["prometheus-operator/prometheusrule.yaml"] = _yaml(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": "nodesmith",
                "namespace": "nodesmith",
                "labels": {"app.kubernetes.io/name": "nodesmith"},
            },
            "spec": groups,
        }
    )
    files["kustomization.yaml"] = _KUSTOMIZATION + _yaml(kustomization())
    return files


def kustomization() -> dict[str, Any]:
    """Return what installs everything. Each dashboard has a ConfigMap: `kubectl apply` copies one into an annotation.

    An object's annotations may have 256 KiB.
    """
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "nodesmith",
        "resources": ["prometheus-operator/podmonitor.yaml", "prometheus-operator/prometheusrule.yaml"],
        "configMapGenerator": [
            {
                "name": dashboard.name.replace("nodesmith-", "nodesmith-dashboard-"),
                "files": [f"grafana/{dashboard.name}.json"],
                "options": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
            }
            for dashboard in (*DASHBOARDS, OPERATION)
        ],
    }


def rules(runbooks: str) -> dict[str, Any]:
    """Return the rules in Prometheus' format."""
    return {
        "groups": [
            {
                "name": f"nodesmith-{group}",
                "rules": [_rule(alert, runbooks) for alert in ALERTS if alert.group == group],
            }
            for group in GROUPS
        ]
    }


def _rule(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "runbook_url": f"{runbooks}#{alert.name.lower()}",
        },
    }


def cases(alert: Alert) -> list[dict[str, Any]]:
    """Return promtool's unit tests of an alert: it fires on one set of series, and not on the other.

    promtool compares every label and annotation of what fires, so a test counts the series `ALERTS` instead.
    """
    firing = f'count(ALERTS{{alertname="{alert.name}",alertstate="firing"}}) or vector(0)'
    return [
        {
            "name": f"{alert.name} {outcome}",
            "interval": "1m",
            "input_series": [
                {"series": series, "values": values} for series, values in sorted(series_values.items())
            ],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": alert.duration,
                    "exp_samples": [{"labels": "{}", "value": count}],
                }
            ],
        }
        for outcome, series_values, count in (("fires", alert.firing, 1), ("does not fire", alert.quiet, 0))
    ]


def _yaml(content: Mapping[str, Any]) -> str:
    return _WRITTEN_BY + yaml.safe_dump(dict(content), sort_keys=False, width=1000)


def main() -> None:
    """Write the files, and delete dashboards that are no longer described."""
    options = argparse.ArgumentParser(prog="python -m monitoring", description=__doc__)
    options.add_argument(
        "--docs", default="", help="address of the documentation site, for the alerts' links"
    )
    docs = options.parse_args().docs.rstrip("/")
    files = rendered_files(f"{docs}/runbooks.html" if docs else RUNBOOKS)
    for path in (HERE / "grafana").glob("*.json"):
        if f"grafana/{path.name}" not in files:
            path.unlink()
    for name, text in files.items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(text)


if __name__ == "__main__":
    main()
