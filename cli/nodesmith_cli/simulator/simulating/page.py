"""The comparison as one HTML file: no script, no request to any host. Every text is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith_cli.output.reporting import frame
from nodesmith_cli.output.reporting.charts import Bar, bars
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_cli.simulator.simulating.report import BASELINE, CHANGE
from nodesmith_formats.wording import counted, moment

Report = Mapping[str, Any]
_MOST = 50
_HEAD = ("#baseline", "#change", "#difference", "#from", "#to")
_CARDS = ("cost", "pods pending", "evictions")
_MEASURES = {"usd": "cost, USD", "nodeHours": "node hours, h", "pendingSeconds": "pods pending, s"}
"""Names of measures of NodePools and workloads, if they are others than in the data."""


def page(report: Report) -> Html:
    """Return the HTML file. `report` is the report's JSON data."""
    figures = report["figures"]
    costs = [
        Bar(f"{side}, seed {run['seed']}", run["usd"], f"${run['usd']:,.2f}", number)
        for number, side in enumerate((BASELINE, CHANGE))
        for run in report["runs"].get(side, ())
    ]
    sections = (
        _table("Figures", [_row(_label(figure), figure) for figure in figures]),
        frame.section("Cost of each seed", frame.figure(bars("Cost of each seed", costs))),
        *(_parts(report, kind) for kind in ("nodepools", "workloads")),
        frame.section("Changed", frame.items(report["changes"] or ["nothing"])),
        frame.section("Left out and assumed", frame.items(report["notes"])),
        _recorded(report["recorded"]),
    )
    title = f"{report['cluster'] or 'cluster'}: what would be different"
    cards = [_card(item, report["seeds"]) for item in figures if item["name"] in _CARDS]
    return frame.page(title, _about(report), cards, sections, "A simulation, not a bill")


def _about(report: Report) -> str:
    times = f"{moment(report['from'])} to {moment(report['until'])}"
    is_one = report["seeds"] < 2
    interval = (
        "One seed gives no interval: --seeds has more" if is_one else f"Intervals: {report['interval']}"
    )
    return f"{times}, {counted(report['pods'], 'pod')}. {interval}."


def _card(item: Report, seeds: int) -> frame.Card:
    shown = item["difference"] if "difference" in item else item[BASELINE]
    sign = "+" if "difference" in item and shown > 0 else ""
    unit = "$" if item["unit"] == "USD" else item["unit"]
    note = f"{_number(item['low'])} to {_number(item['high'])}" if "low" in item else "baseline"
    note = "of one seed" if "low" in item and seeds < 2 else note
    return frame.Card(item["name"].capitalize(), f"{sign}{_number(shown)}", f" {unit}", (note,))


def _label(item: Report) -> str:
    return f"{item['name']}, {item['unit']}" if item["unit"] else item["name"]


def _parts(report: Report, kind: str) -> Html:
    rows = [
        _row(f"{item['name']}: {_MEASURES.get(measure, measure)}", compared)
        for item in report[kind][:_MOST]
        for measure, compared in item.items()
        if measure != "name"
    ]
    return _table({"nodepools": "NodePools", "workloads": "Workloads"}[kind], rows)


def _row(label: str, item: Report) -> Sequence[str]:
    return label, *(_number(item.get(key)) for key in (BASELINE, CHANGE, "difference", "low", "high"))


def _recorded(recorded: Report | None) -> Html:
    if recorded is None:
        return Html("")
    lines = [f"nodesmith's nodes cost ${recorded['usd']:,.2f}", f"{recorded['decisions']:,} decisions"]
    if recorded["repeated"]:
        lines.append(f"{recorded['repeated']:,} made again, of which {len(recorded['differences'])} differ")
    return frame.section("Recorded", frame.items([*lines, *recorded["differences"][:_MOST]]))


def _table(title: str, rows: Sequence[Sequence[str]]) -> Html:
    return frame.section(title, frame.table(("", *_HEAD), rows, title))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
