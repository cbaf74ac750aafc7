"""A local run, or the demo, as an HTML report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.quantities import CPU, MEMORY, total
from nodesmith.model.kubernetes.pods import Shape
from nodesmith_cli.output.reporting.charts import Bar, bars
from nodesmith_cli.output.reporting.fleetmap import Kind, fleet_map
from nodesmith_cli.output.reporting.frame import Card, figure, page, paragraph, section, table
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_cli.output.reporting.timelines import Mark, NodeSpan, timeline
from nodesmith_cli.output.terminal import fraction
from nodesmith_cli.views.explaining.decisionpage import decision_sections
from nodesmith_formats.decisions.summaries import price_and_bound, summary
from nodesmith_formats.prices import HOURS_A_MONTH, Price, estimate_mark
from nodesmith_formats.wording import counted, some
from nodesmith_local.runs.interrupting import NOTICE_SECONDS, Interrupted
from nodesmith_local.runs.latency import Latency
from nodesmith_local.runs.report import NodeReport, PendingPod, Report
from nodesmith_local.runs.running import Outcome
from nodesmith_local.runs.shrinking import ScaleDown
from nodesmith_local.runs.timeline import LAUNCHED, READY, Entry

Decided = tuple[Mapping[str, Any], Mapping[str, Shape]]
"""The record of a decision, and the shapes of the pods that it saw."""
_ESTIMATE = "~ marks an estimate: only AWS publishes spot prices and the prices of most regions."
_MOST_DECISIONS = 5
_MARGIN_SECONDS = 5


def run_page(
    outcome: Outcome, decisions: Sequence[Decided], title: str, further: Iterable[Html] = ()
) -> Html:
    """Return the report of a run: the fleet, what was decided and why, and how long pods waited."""
    report = outcome.report
    lead = f"{counted(len(report.nodes), 'node')} for {counted(report.bound, 'pod')}"
    lead += (
        f"; {counted(len(report.pending), 'pod')} without a node."
        if report.pending
        else ", and none is pending."
    )
    sections = [
        _notices(outcome),
        _fleet("The fleet", report),
        *(
            part
            for n, decision in enumerate(decisions[:_MOST_DECISIONS], 1)
            for part in _decision(n, decision)
        ),
        _joined(report.timeline),
        _waits(outcome.latencies),
        _pending(report.pending),
        *further,
    ]
    return page(
        title, lead, _cards(report), sections, f"{_ESTIMATE} This was a simulation: nothing was bought."
    )


def _notices(outcome: Outcome) -> Html:
    texts = [*map(str, outcome.faults), *outcome.problems()]
    texts += [f"time is up: {outcome.activity}"] if outcome.activity else []
    return section("What to know first", *(paragraph(text, "note warn") for text in texts))


def _cards(report: Report) -> list[Card]:
    requested = total([node.requested for node in report.nodes])
    room = total([node.allocatable for node in report.nodes])
    price = report.price
    return [
        Card("Price", _monthly(price), "/month", (f"{_hourly(price)}/hour",)),
        Card("Nodes", f"{len(report.nodes):,}", "", (f"{sum(n.ready for n in report.nodes):,} ready",)),
        Card("Pods", f"{report.bound + len(report.pending):,}", "", (f"{len(report.pending):,} pending",)),
        Card(
            "Requested",
            f"{fraction(requested.of(CPU), room.of(CPU)):.0%}",
            "of CPU",
            (f"{fraction(requested.of(MEMORY), room.of(MEMORY)):.0%} of memory",),
        ),
    ]


def _monthly(price: Price) -> str:
    return f"{estimate_mark(price.estimated)}${price.hourly_usd * HOURS_A_MONTH:,.0f}"


def _hourly(price: Price) -> str:
    return f"{estimate_mark(price.estimated)}${price.hourly_usd:,.4f}"


def _fleet(title: str, report: Report) -> Html:
    kinds: dict[tuple[str, str, str], list[NodeReport]] = {}
    for node in report.nodes:
        kinds.setdefault((node.zone, node.instance_type, node.capacity_type), []).append(node)
    tiles = [
        Kind(*key, len(nodes), sum(node.price.hourly_usd for node in nodes if node.price))
        for key, nodes in sorted(kinds.items())
    ]
    drawn = figure(fleet_map(title, tiles), "Each tile is a kind of node, and its area is its price.", title)
    head = ("Node", "Zone", "Type", "Sold", "#$/hour", "#CPU", "#Memory", "#Pods")
    rows = (
        (
            node.name.partition(".")[0],
            node.zone,
            node.instance_type,
            node.capacity_type,
            _hourly(node.price) if node.price else "?",
            f"{fraction(node.requested.of(CPU), node.allocatable.of(CPU)):.0%}",
            f"{fraction(node.requested.of(MEMORY), node.allocatable.of(MEMORY)):.0%}",
            f"{len(node.pods)}/{node.allocatable.pods}",
        )
        for node in report.nodes
    )
    return section(title, drawn if tiles else "", table(head, rows, title)) if report.nodes else Html("")


def _decision(number: int, decided: Decided) -> Iterator[Html]:
    record, shapes = decided
    plan = record["plan"]
    text = f"{summary(record)}. {price_and_bound(plan)}." if plan["nodes"] else f"{summary(record)}."
    yield section(f"Decision {number}: {record['id']}", paragraph(text))
    yield from list(decision_sections(plan, shapes))[:2]


def _joined(entries: Sequence[Entry]) -> Html:
    """Return NodeClaims on one time scale, from the first launch to the last node that became ready."""
    launched = {e.object: e.at for e in entries if e.what == LAUNCHED and e.object.startswith("NodeClaim/")}
    ready = {e.object: e.at for e in entries if e.what == READY and e.object in launched}
    if not ready:
        return Html("")
    began = min(launched.values())
    spans = [
        NodeSpan(
            claim.partition("/")[2],
            f"launched at {_seconds(at, began):.0f} s, ready at {_seconds(ready[claim], began):.0f} s",
            _seconds(at, began),
            _seconds(ready[claim], began),
        )
        for claim, at in launched.items()
        if claim in ready
    ]
    longest = max((life.ready for life in spans), default=0.0) + _MARGIN_SECONDS
    title = "From the launch to ready nodes"
    return section(title, figure(timeline(title, spans, longest), "Seconds of the cluster's time.", title))


def _seconds(at: datetime, began: datetime) -> float:
    return (at - began).total_seconds()


def _waits(latencies: Sequence[Latency]) -> Html:
    title = "How long pods waited"
    shown = [Bar(f"{e.step}, median", e.p50_seconds, f"{e.p50_seconds:.1f} s", 1) for e in latencies]
    rows = ((e.step, f"{e.p50_seconds:.1f}", f"{e.max_seconds:.1f}", e.pods) for e in latencies)
    listed = table(("From pending to", "#Median, s", "#Longest, s", "#Pods"), rows, title)
    return section(title, figure(bars(title, shown), name=title) if shown else "", listed)


def _pending(pending: Sequence[PendingPod]) -> Html:
    by_reason: dict[str, list[str]] = {}
    for pod in pending:
        by_reason.setdefault(pod.reason, []).append(pod.name)
    rows = ((len(names), some(names, 3), reason) for reason, names in by_reason.items())
    title = "Pods without a node"
    return section(title, table(("#Pods", "Which", "Why"), rows, title))


def demo_sections(shrunk: Iterable[ScaleDown], interrupted: Iterable[Interrupted]) -> Iterator[Html]:
    """Yield the demo's further acts: the fleet shrinks, and EC2 reclaims nodes."""
    for scale_down in shrunk:
        saved = f"${scale_down.saving_yearly_usd:,.0f} less in a year"
        text = (
            f"From {_hourly(scale_down.before.price)} to {_hourly(scale_down.after.price)} an hour: {saved}."
        )
        reason = [m["message"] for r in scale_down.decisions if not r["again"] for m in r["plan"]["moves"]]
        yield section(
            "Half of the pods are removed", paragraph(text), *(paragraph(line, "note") for line in reason)
        )
        yield _fleet("The fleet afterwards", scale_down.after)
    for interruption in interrupted:
        yield section("EC2 reclaims nodes", *_interruption(interruption))


def _interruption(interrupted: Interrupted) -> Iterator[Html]:
    taken = f"EC2 reclaims {interrupted.taken} of {interrupted.nodes} nodes with two minutes' notice"
    yield paragraph(f"{taken}: their replacements are ready first.")
    spans = [
        NodeSpan(e.name.partition(".")[0], e.what, e.since, e.ready, e.leaving, e.until)
        for e in interrupted.spans
    ]
    marks = [Mark(NOTICE_SECONDS, "EC2 takes the instances")]
    yield figure(timeline("Nodes during the interruption", spans, NOTICE_SECONDS, marks), name="Interruption")
    if interrupted.waits:
        waited = f"the longest waited {max(interrupted.waits):.1f} s, {sum(interrupted.waits):.0f} pod-seconds in total"
        yield paragraph(f"{counted(len(interrupted.waits), 'pod')} recreated on other nodes: {waited}.")
