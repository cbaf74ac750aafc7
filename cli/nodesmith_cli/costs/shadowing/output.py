"""The report as a table, as CSV and as one HTML file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from nodesmith_cli.costs.shadowing.report import SIDES
from nodesmith_cli.output.reporting import frame
from nodesmith_cli.output.reporting.charts import Bar, bars
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_formats.wording import counted, printable, saves

Report = Mapping[str, Any]
TITLES = {"actual": "actual", "nodesmith": "nodesmith's shadow", "karpenter": "Karpenter's shadow"}
_FIELDS = (
    "usd",
    "spotUsd",
    "nodes",
    "pendingSeconds",
    "evictions",
    "launches",
    "unplacedSeconds",
    "lowerBoundUsd",
)
_CHARTED = 31


def as_csv(report: Report) -> str:
    """Return a line for each day and side."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(("date", "observedHours", "side", *_FIELDS))
    for day in report["days"]:
        for side in SIDES:
            lines.writerow(
                (day["date"], day["observedHours"], side, *(_cell(day[side][name]) for name in _FIELDS))
            )
    return out.getvalue()


def _cell(value: object) -> object:
    return "" if value is None else value


def _sums(day: Report) -> list[str]:
    """Return what a day shows of each side: dollars, nodes, pods' waiting time, and evictions."""
    sides = [day[side] for side in SIDES]
    return [
        *(f"{side['usd']:,.2f}" for side in sides),
        *(f"{side['nodes']:,.1f}" for side in sides[:2]),
        *(f"{side['pendingSeconds']:,}" for side in sides[:2]),
        *(f"{side['evictions']:,}" for side in sides[:2]),
    ]


_HEADS = (
    "actual $",
    "shadow $",
    "Karpenter's $",
    "nodes",
    "shadow's",
    "pending s",
    "shadow's",
    "evictions",
    "shadow's",
)


def sentences(report: Report) -> Iterator[str]:
    """Yield the result in words."""
    total, spans = report["total"], counted(len(report["days"]), "day")
    actual, ours = total["actual"]["usd"], total["nodesmith"]["usd"]
    percent = f" ({abs(100 * (1 - ours / actual)):.1f} %)" if actual else ""
    saved = actual - ours
    yield (
        f"In {spans} ({total['observedHours']:,.1f} hours observed) the cluster cost ${actual:,.2f}. "
        f"nodesmith's shadow cost ${ours:,.2f}, which {saves(saved, f'${abs(saved):,.2f}{percent}')}."
    )
    bound = total["nodesmith"]["lowerBoundUsd"]
    if bound is not None:
        yield f"No nodes for the same pods under these NodePools could have cost less than ${bound:,.2f}."
    difference = report["agreement"]["differencePercent"]
    if difference is not None:
        yield (
            f"The shadow of Karpenter's algorithm differs from the cluster by {difference:+.1f} %. If Karpenter serves "
            "the cluster, this shows how exact shadows are."
        )


def show(console: Console, report: Report) -> None:
    """Print the report."""
    console.print(f"{report['cluster']}: actual against shadow", style="bold")
    shown = Table("day", *_HEADS, box=None)
    for column in shown.columns[1:]:
        column.justify = "right"
    for day in report["days"]:
        shown.add_row(day["date"], *_sums(day))
    shown.add_row("total", *_sums(report["total"]), style="bold")
    console.print(shown)
    for sentence in sentences(report):
        console.print(sentence)
    console.print("\nassumptions", style="bold")
    for assumption in report["assumptions"]:
        console.print(f"{assumption['what']}: {assumption['value']} ({assumption['source']})")
        for effect in assumption["sensitivity"]:
            console.print(f"  if {effect['if']}: {_effect(effect)}")
    for line in report["simplified"]:
        console.print(f"- {line}")
    if report["audit"] is not None:
        console.print(f"\n{audited(report['audit'])}")
    for fault in report["faults"]:
        console.print(fault, style="yellow")


def _effect(effect: Report) -> str:
    saved = effect["savingUsd"]
    return (
        f"shadow ${effect['usd']:,.2f}, {saves(saved, f'${abs(saved):,.2f}')}, {effect['pendingSeconds']:,} s pending,"
        f" {counted(effect['evictions'], 'eviction')}"
    )


def audited(audit: Report) -> str:
    """Return the result of the audit in a sentence."""
    violations: Sequence[str] = audit["violations"]
    checked = f"The audit checked where the shadow has {counted(audit['pods'], 'pod')} now"
    if not violations:
        return f"{checked}: every one could run there."
    return f"{checked}: {counted(len(violations), 'violation')}: {'; '.join(map(printable, violations[:5]))}"


def page(report: Report) -> Html:
    """Return the HTML file. Names in a cluster are written by its users, so every text is escaped."""
    total, title = report["total"], f"{report['cluster']}: actual against shadow"
    cards = [
        frame.Card(TITLES[side].capitalize(), f"${total[side]['usd']:,.2f}", "", (_nodes(total[side]),))
        for side in SIDES
    ]
    made = f"observed since {report['startedAt']}, last look {report['lookedAt']}"
    return frame.page(title, " ".join(sentences(report)), cards, _sections(report), made)


def _nodes(side: Report) -> str:
    return f"{side['nodes']:,.1f} nodes on average, {counted(side['evictions'], 'eviction')}"


def _sections(report: Report) -> Iterator[Html]:
    chart = [
        Bar(f"{day['date']} {TITLES[side]}", day[side]["usd"], f"${day[side]['usd']:,.2f}", colour)
        for day in report["days"][-_CHARTED:]
        for colour, side in enumerate(SIDES)
    ]
    days = [(day["date"], *_sums(day)) for day in report["days"]]
    days.append(("total", *_sums(report["total"])))
    heads = ("Day", *(f"#{head}" for head in _HEADS))
    drawn = frame.figure(bars("Dollars by day", chart)) if chart else Html("")
    yield frame.section("Dollars by day", drawn, frame.table(heads, days, "Dollars by day"))
    effects = [
        (assumption["what"], assumption["value"], assumption["source"], if_, then)
        for assumption in report["assumptions"]
        for if_, then in [(e["if"], _effect(e)) for e in assumption["sensitivity"]] or [("", "")]
    ]
    titles = ("Assumption", "Value", "Source", "If it were", "Then")
    yield frame.section("Assumptions", frame.table(titles, effects, "Assumptions"))
    texts = (*report["simplified"], *_audits(report), *report["faults"])
    yield frame.section("How to read the figures", frame.items(texts))


def _audits(report: Report) -> list[str]:
    return [audited(report["audit"])] if report["audit"] is not None else []
