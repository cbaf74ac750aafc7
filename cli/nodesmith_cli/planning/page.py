"""A plan, or moves, as an HTML report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from nodesmith.decisions.provisioning import Inputs, Plan, plan_item
from nodesmith.model.apimachinery.times import format_time
from nodesmith_cli.output.reporting.charts import Bar, bars
from nodesmith_cli.output.reporting.flows import Box, Column, Link, flow
from nodesmith_cli.output.reporting.frame import Card, figure, page, paragraph, section, table
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_cli.output.reporting.pricescales import money
from nodesmith_cli.planning.alternatives import Alternative, Alternatives
from nodesmith_cli.planning.report import gang_names
from nodesmith_cli.views.explaining.decisionpage import decision_cards, decision_sections, price_bars
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import counted, saves, some

Report = Mapping[str, Any]
_MOST_MOVES = 12
_RULES_FIRST = (
    "A cheaper plan is not chosen if rules come before the price: weights and limits of NodePools, constraints that "
    "pods prefer, or the number of instance types that a NodePool requires."
)


def plan_page(plan: Plan, inputs: Inputs, others: Alternatives, report: Report, now: datetime) -> Html:
    """Return the report of a plan. `report` is its JSON data, including the nodes for gangs.

    Those have no lower bound, so they are listed, but they are neither in `plan` nor in the compared prices.
    """
    of_gangs = gang_names(report)
    item = plan_item(plan)
    shapes = {pod.key: pod.shape for pod in inputs.snapshot.pods}
    pods = sum(len(node["pods"]) for node in report["nodes"])
    stay = len(report["unplaced"])
    lead = f"{counted(len(report['nodes']), 'node')} to launch for {counted(pods, 'pod')}"
    lead += f", {counted(len(of_gangs), 'node')} of them for gangs" if of_gangs else ""
    lead += f"; {counted(stay, 'pod')} would stay pending." if stay else "; no pod would stay pending."
    sections = [
        *alternative_sections(plan.price_hourly_usd, plan.bound_hourly_usd, others),
        _existing(report["existing"]),
        _buffers(report.get("capacityBuffers")),
        _each_node(report["nodes"]),
    ]
    first, *more = decision_sections(item, shapes)
    title = "Which nodes would be launched"
    made = f"Made {format_time(now)} with the catalogue of {inputs.catalog.region}; nothing was changed."
    return page(title, lead, decision_cards(item), [first, *sections[:2], *more, *sections[2:]], made)


def alternative_sections(price: float, bound: float, others: Alternatives) -> Iterator[Html]:
    """Yield what other plans would cost, and what each constraint adds to the price. Prices are USD an hour."""
    rows = [
        ("this plan", price, ""),
        *((a.difference, a.hourly_usd, _against(a, price)) for a in others.choices),
    ]
    rows += [("lower bound", bound, "no plan can cost less")] if bound else []
    title = "Alternatives with their price"
    head = ("Plan", "#$/hour", "Compared with this plan")
    figures = table(head, ((name, f"{usd:,.4f}", note) for name, usd, note in rows), title)
    cheaper = any(choice.hourly_usd < price * 0.9995 for choice in others.choices)
    explanation = paragraph(_RULES_FIRST) if cheaper else ""
    yield section(title, price_bars(title, [(name, usd, "") for name, usd, _ in rows]), explanation, figures)
    yield _constraints(price, others)


def _against(other: Alternative, price: float) -> str:
    more = f", {counted(other.more, 'more pod')} placed" if other.more else ""
    difference = other.hourly_usd / price - 1 if price else 0.0
    return ("the same price" if abs(difference) < 0.0005 else f"{difference:+.1%}") + more


def _constraints(price: float, others: Alternatives) -> Html:
    """Return what each constraint costs: money, or the pods that would get a node without it."""
    costs = sorted(
        others.relaxed, key=lambda cost: (-cost.more, cost.hourly_usd, cost.workload, cost.difference)
    )
    rows = [
        (
            cost.difference,
            cost.workload,
            f"{max(0.0, price - cost.hourly_usd):,.4f}" if not cost.more else "",
            _worth(cost),
        )
        for cost in costs
    ]
    paid = [
        Bar(
            f"{cost.difference}, {cost.workload}",
            price - cost.hourly_usd,
            f"{money(price - cost.hourly_usd)}/h",
            4,
        )
        for cost in costs
        if not cost.more and price - cost.hourly_usd > 0.00005
    ]
    title = "What each constraint costs"
    text = f"Plans without one constraint each: {others.examined} of {others.possible} examined."
    drawn = figure(bars(title, paid), name=title) if paid else ""
    listed = table(("Constraint", "Of", "#$/hour", "Without it"), rows, title)
    return section(title, paragraph(text), drawn, listed) if rows else Html("")


def _worth(alternative: Alternative) -> str:
    if alternative.more > 0:
        return f"{counted(alternative.more, 'more pod')} would get a node"
    return f"{counted(-alternative.more, 'fewer pod')} would get a node" if alternative.more else ""


def _each_node(nodes: Iterable[Report]) -> Html:
    title = "Each node to launch"
    head = ("Node", "Type", "Zone", "Sold", "#$/hour", "#CPU", "#Memory", "#Pods", "Which")
    rows = (
        (
            node["name"],
            node["instanceType"],
            node["zone"],
            node["capacityType"],
            f"{node['priceHourly']:,.4f}",
            node["requests"].get("cpu", ""),
            node["requests"].get("memory", ""),
            len(node["pods"]),
            some(node["pods"], 2) if node["pods"] or not node.get("forGang") else "room of a gang",
        )
        for node in nodes
    )
    return section(title, table(head, rows, title))


def _existing(existing: Iterable[Report]) -> Html:
    title = "Existing nodes that take pods"
    rows = ((node["node"], len(node["pods"]), some(node["pods"])) for node in existing)
    return section(title, table(("Node", "#Pods", "Which"), rows, title))


def _buffers(report: Report | None) -> Html:
    title = "CapacityBuffers"
    rows = (
        (room["buffer"], room["count"], room["ready"], room["launching"], room["bought"], room["reason"])
        for room in (report or {}).get("rooms", ())
    )
    head = ("CapacityBuffer", "#Pods", "#Have room", "#Launching", "#To launch", "Why not")
    return section(title, table(head, rows, title))


def moves_page(report: Report, now: datetime) -> Html:
    """Return the report of moves. `report` is their JSON data."""
    moves, before, saving = report["moves"], report["priceHourly"], report["savingHourly"]
    price_mark, saving_mark = (
        estimate_mark(report[field]) for field in ("priceEstimated", "savingEstimated")
    )
    after_mark = estimate_mark(report["priceEstimated"] or report["savingEstimated"])
    pods = sum(len(move["destinations"]) for move in moves)
    removed = sum(len(move["sources"]) for move in moves)
    launched = sum(len(move["replacements"]) for move in moves)
    replaced = f"{counted(removed, 'node')} replaced by {launched:,}, {counted(pods, 'pod')} to restart"
    lead = f"{counted(len(moves), 'move')}: {replaced}."
    cards = [
        Card("Now", price_mark + money(before), "/hour", (counted(report["nodes"], "node"),)),
        Card(
            "After the moves",
            after_mark + money(before - saving),
            "/hour",
            (f"{abs(saving) / before if before else 0:.0%} {'less' if saving >= 0 else 'more'}",),
        ),
        Card(
            "Saved" if saving >= 0 else "Added",
            f"{saving_mark}${abs(report['savingYearly']):,.0f}",
            "/year",
            (f"{saving_mark}{money(abs(saving))}/hour",),
        ),
        Card("Pods to restart", f"{pods:,}", "", (f"eviction cost {report['evictionCost']:g}",)),
    ]
    title = "Which nodes would be replaced"
    shown = lead if moves else "No set of nodes can be consolidated at a saving that is worth the disruption."
    sections = [_moves(moves), _kept(report["kept"])]
    return page(title, shown, cards, sections, f"Made {format_time(now)}; nothing was changed.")


def _moves(moves: list[Report]) -> Html:
    if not moves:
        return Html("")
    removed, launched, links = [], [], []
    for n, move in enumerate(moves[:_MOST_MOVES]):
        weight = float(len(move["sources"]))
        removed.append(Box(f"from-{n}", _kinds(move["sources"]), (move["reason"],), weight))
        new = move["replacements"]
        sold = new[0]["capacityType"] if new else "other"
        saved, mark = move["savingHourly"], estimate_mark(move["savingEstimated"])
        compared = saves(saved, f"{mark}{money(abs(saved))}/h")
        note = f"{compared}, {counted(len(move['destinations']), 'pod')} to restart"
        launched.append(Box(f"to-{n}", _kinds(new) or "existing nodes", (note,), weight, sold))
        links.append(Link(f"from-{n}", f"to-{n}", weight))
    title = "Nodes that would be replaced"
    drawn = flow(
        title, [Column("Removed", tuple(removed)), Column("Launched instead", tuple(launched))], links
    )
    head = ("Reason", "Removed", "Launched", "#Pods", "#Saves $/hour", "Why")
    rows = (
        (
            move["reason"],
            _kinds(move["sources"]),
            _kinds(move["replacements"]) or "nothing",
            len(move["destinations"]),
            f"{estimate_mark(move['savingEstimated'])}{move['savingHourly']:,.4f}",
            move["message"],
        )
        for move in moves
    )
    return section(title, figure(drawn, name=title), table(head, rows, title))


def _kept(kept: Iterable[Report]) -> Html:
    title = "Nodes that stay"
    nodes = list(kept)
    counts = Counter(node["rule"] for node in nodes)
    shown = [Bar(rule, number, counted(number, "node")) for rule, number in counts.most_common(12)]
    rows = (
        (node["node"] or node["nodeClaim"], node["rule"], node["object"], node["message"]) for node in nodes
    )
    drawn = figure(bars("Rules that keep nodes", shown), name="Rules that keep nodes") if shown else ""
    return section(title, drawn, table(("Node", "Rule", "Object", "Message"), rows, title))


def _kinds(nodes: Iterable[Report]) -> str:
    counts = Counter(f"{node['instanceType']} {node['capacityType']}" for node in nodes)
    return some((f"{number} × {kind}" for kind, number in counts.most_common()), 2)
