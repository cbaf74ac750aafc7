"""Grafana's JSON: dashboards, rows, panels and queries. No data source has a fixed uid: variables choose them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 39
PROMETHEUS, CLOUDWATCH = "prometheus", "cloudwatch"
_WIDTH, _COLUMNS = 24, 2
_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL. `$cluster` in it stands for the selected clusters. `legend` names each series."""

    expression: str
    legend: str = "__auto"
    instant: bool = False

    def target(self, letter: str) -> dict[str, Any]:
        """Return Grafana's target."""
        return {
            "refId": letter,
            "datasource": source(PROMETHEUS),
            "expr": self.expression,
            "legendFormat": self.legend,
            "instant": self.instant,
            "range": not self.instant,
            "editorMode": "code",
        }


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of CloudWatch, or with `formula` an expression over the metrics with these ids.

    A `hidden` metric is only used in expressions.
    """

    namespace: str = ""
    name: str = ""
    dimensions: tuple[tuple[str, str], ...] = ()
    statistic: str = "Sum"
    legend: str = ""
    id: str = ""
    formula: str = ""
    hidden: bool = False

    def target(self, letter: str) -> dict[str, Any]:
        """Return Grafana's target."""
        return {
            "refId": letter,
            "datasource": source(CLOUDWATCH),
            "id": self.id,
            "hide": self.hidden,
            "queryMode": "Metrics",
            "metricQueryType": 0,
            "metricEditorMode": 1 if self.formula else 0,
            "region": "$region",
            "namespace": self.namespace,
            "metricName": self.name,
            "dimensions": {key: [value] for key, value in self.dimensions},
            "matchExact": True,
            "statistic": self.statistic,
            "period": "",
            "label": self.legend,
            "expression": self.formula,
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: `queries` in one `kind` of picture, in a `unit` of Grafana's. `description` says what it shows."""

    title: str
    queries: tuple[Query | Metric, ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table", "bargauge"] = "timeseries"
    description: str = ""
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard: `rows` of panels by their title. Its uid, which links name, is its file's name."""

    name: str
    title: str
    description: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    has_cloudwatch: bool = False


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return the JSON document of a dashboard, as Grafana imports it."""
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["nodesmith", "kubernetes"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "nodesmith",
                "tags": ["nodesmith"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "icon": "",
                "tooltip": "",
                "url": "",
                "targetBlank": False,
            }
        ],
        "templating": {"list": _variables(dashboard)},
        "panels": list(_panels(dashboard.rows)),
    }


def source(kind: str) -> dict[str, str]:
    """Return the data source that a dashboard's variable selects."""
    return {"type": kind, "uid": f"${{{_variable_of(kind)}}}"}


def _variable_of(kind: str) -> str:
    return "datasource" if kind == PROMETHEUS else kind


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    if dashboard.has_cloudwatch:
        region = {"type": "query", "name": "region", "label": "Region", "query": "regions()", "refresh": 1}
        return [_source_variable(CLOUDWATCH), {**region, "datasource": source(CLOUDWATCH)}]
    clusters = {
        "type": "query",
        "name": "cluster",
        "label": "Cluster",
        "datasource": source(PROMETHEUS),
        "query": {"query": "label_values(karpenter_build_info, cluster)", "refId": "clusters"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",  # also matches the series of a Prometheus that has one cluster and no such label
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }
    return [_source_variable(PROMETHEUS), clusters]


def _source_variable(kind: str) -> dict[str, Any]:
    return {"type": "datasource", "name": _variable_of(kind), "label": "Data source", "query": kind}


def _panels(rows: Sequence[tuple[str, Sequence[Panel]]]) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    top = 0
    for title, panels in rows:
        documents.append(
            {
                "id": len(documents) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": _place(top, 0, _WIDTH, 1),
                "panels": [],
            }
        )
        top += 1
        stats = all(panel.kind == "stat" for panel in panels)
        columns, height = (len(panels), _HEIGHT // 2) if stats else (_COLUMNS, _HEIGHT)
        for index, panel in enumerate(panels):
            width = _WIDTH // columns
            place = _place(top + index // columns * height, index % columns * width, width, height)
            documents.append(_panel(len(documents) + 1, panel, place))
        top += -(-len(panels) // columns) * height
    return documents


def _place(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"y": top, "x": left, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    kind = PROMETHEUS if isinstance(panel.queries[0], Query) else CLOUDWATCH
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source(kind),
        "gridPos": place,
        "targets": [query.target(chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": _custom(panel)}, "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.kind == "table":
        return {"align": "auto", "inspect": False}
    if panel.kind != "timeseries":
        return {}
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {"fillOpacity": 30 if panel.stacked else 5, "showPoints": "never", "stacking": stacking}


_LAST: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {
            "displayMode": "table",
            "placement": "right",
            "showLegend": True,
            "calcs": ["lastNotNull"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        **_LAST,
        "colorMode": "none",
        "graphMode": "area",
        "justifyMode": "auto",
        "textMode": "auto",
        "orientation": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "bargauge": {
        **_LAST,
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "left",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 24,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    },
    "table": {"showHeader": True, "frameIndex": 0},
}
