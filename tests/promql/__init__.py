"""Queries of monitoring/ as Prometheus' own parser reads them, and dashboards as Grafana's own types read them.

`main.go` needs Go. The unit tests do not: they read `KEPT`, which `python -m tests.promql --write` makes, together with
the verdict of promtool on the rules and their tests. `python -m tests.promql` asks both anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from monitoring.__main__ import HERE as MONITORING
from monitoring.__main__ import RULES, TESTS
from monitoring.alerts import ALERTS
from monitoring.dashboards import DASHBOARDS, OPERATION
from monitoring.panels import Dashboard, Metric, Query, document

KEPT = Path(__file__).parent / "kept.json"


class Use(NamedTuple):
    """A place in a query that names labels, and the series that it takes them from."""

    labels: tuple[str, ...]
    series: tuple[str, ...]


class Answer(NamedTuple):
    """What the parser finds. `by` are the labels of the outermost aggregation, None if there is none."""

    fault: str
    uses: tuple[Use, ...] = ()
    by: tuple[str, ...] | None = None


def alert_queries() -> dict[str, str]:
    """Return the query of each alert by its name."""
    return {alert.name: alert.expression for alert in ALERTS}


def panel_queries() -> Iterator[tuple[str, Query]]:
    """Yield each query of a panel with its dashboard and panel."""
    for dashboard in DASHBOARDS:
        for _, panels in dashboard.rows:
            for panel in panels:
                for query in panel.queries:
                    assert isinstance(query, Query)
                    yield f"{dashboard.name}: {panel.title}", query


def cloudwatch_metrics() -> Iterator[Metric]:
    """Yield each metric of CloudWatch that a panel shows or computes with."""
    for _, panels in OPERATION.rows:
        for panel in panels:
            for query in panel.queries:
                assert isinstance(query, Metric)
                yield query


def as_parsed(expression: str) -> str:
    """Return a query with Grafana's variables replaced, as Prometheus gets it."""
    return expression.replace("$__rate_interval", "5m").replace("$cluster", "east")


def queries() -> list[str]:
    """Return all queries as Prometheus gets them, sorted."""
    panels = (as_parsed(query.expression) for _, query in panel_queries())
    return sorted({*alert_queries().values(), *panels})


def dashboards() -> tuple[Dashboard, ...]:
    """Return all dashboards."""
    return (*DASHBOARDS, OPERATION)


def cases() -> list[tuple[str, str]]:
    """Return what `main.go` reads: kind and text."""
    made = [("query", text) for text in queries()]
    return made + [("dashboard", json.dumps(document(each))) for each in dashboards()]


def digest() -> str:
    """Return the digest of the files that promtool reads, and of the dashboards."""
    files = [MONITORING / RULES, MONITORING / TESTS, *sorted((MONITORING / "grafana").glob("*.json"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def kept() -> dict[str, Any]:
    """Return the kept document: `queries` by text, `faults` of dashboards, `promtool` with its verdict."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


def answers() -> dict[str, Answer]:
    """Return the kept answers about queries, by query."""
    return {text: answer_of(reported) for text, reported in kept()["queries"].items()}


def answer_of(reported: dict[str, Any]) -> Answer:
    """Read an answer of `main.go`."""
    uses = tuple(Use(tuple(use["labels"]), tuple(use["series"])) for use in reported["uses"] or ())
    return Answer(reported["fault"], uses, None if reported["by"] is None else tuple(reported["by"]))
