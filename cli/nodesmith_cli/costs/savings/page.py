"""The report as one HTML file, in the frame of all reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from nodesmith_cli.costs.savings.owners import NODESMITH
from nodesmith_cli.costs.savings.report import whole_percent
from nodesmith_cli.output.reporting.charts import Bar, bars, stack
from nodesmith_cli.output.reporting.fleetmap import Kind, fleet_map
from nodesmith_cli.output.reporting.frame import (
    Card,
    figure,
    items,
    page,
    paragraph,
    preformatted,
    section,
    table,
)
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_formats.wording import counted

Report = Mapping[str, Any]
_MOST_BARS = 25
_SPENDING = {
    "podsMonthly": "Requests of pods",
    "daemonSetsMonthly": "DaemonSets and static pods",
    "unrequestedCpuMonthly": "CPU that nothing requests",
    "unrequestedMemoryMonthly": "Memory that nothing requests",
    "unrequestedAcceleratorsMonthly": "Accelerators that nothing requests",
}


def savings_page(report: Report) -> Html:
    """Return the HTML file. `report` is the report's JSON data."""
    cluster, now, best = report["cluster"], report["now"], report["repacked"]
    reachable, bound = report["reachable"], report["lowerBound"]
    cards = [
        _card("Now", now, counted(now["nodes"], "node")),
        _card("Reachable by moves", reachable, _saved(now, reachable)),
        _card("Repacked today", best, _saved(now, best)),
        _card("Lower bound", bound, "no plan can cost less"),
    ]
    lead = (
        f"{counted(cluster['nodes'], 'node')}, {counted(cluster['pods'], 'pod')}, {cluster['region']}. On-demand "
        f"prices of {report['prices']['catalogue']}, spot prices: {report['prices']['spot']}."
    )
    title = f"{cluster['context'] or 'The cluster'}: what it costs"
    return page(title, lead, cards, _sections(report), f"Read {cluster['readAt']}.")


def _card(name: str, report: Report, note: str) -> Card:
    return Card(name, _dollars(report["monthly"]), "/month", (note, f"${report['hourly']:,.2f}/hour"))


def _saved(now: Report, report: Report) -> str:
    return f"saves {_dollars(report['savingMonthly'])} ({whole_percent(now, report)} %)"


def _sections(report: Report) -> Iterator[Html]:
    yield _prices(report)
    yield _spending(report)
    yield _fleet(report)
    yield _table(
        "Who manages the nodes",
        ("Manager", "Group", "#Nodes", "#$/month", "nodesmith can take over"),
        (
            (
                e["software"],
                e["group"],
                e["nodes"],
                _dollars(e["monthly"]),
                "it does" if e["software"] == NODESMITH else "yes" if e["canTakeOver"] else "no",
            )
            for e in report["owners"]
        ),
    )
    yield _table(
        "The best moves",
        ("Removed", "Launched", "#Pods", "#Saves $/month"),
        (
            (
                _kinds(e["removed"]),
                _kinds(e["launched"]) or "nothing",
                e["pods"],
                _dollars(e["savingMonthly"]),
            )
            for e in report["moves"]
        ),
    )
    yield from _obstacles(report)
    yield from _opportunities(report)
    yield from _left_out(report)


def _prices(report: Report) -> Html:
    names = (
        ("Now", "now"),
        ("Reachable", "reachable"),
        ("Repacked today", "repacked"),
        ("Lower bound", "lowerBound"),
    )
    rows = [
        Bar(name, report[key]["monthly"], _dollars(report[key]["monthly"]), colour)
        for colour, (name, key) in enumerate(names)
    ]
    reachable, option = report["reachable"], report["spotOption"]
    text = (
        f"{counted(reachable['moves'], 'move')} with {counted(reachable['evictions'], 'restart')} of pods"
        f"{'' if reachable['isFinished'] else '; the search was not finished, so more may be reachable'}."
    )
    if report["repacked"]["ofWhichSpotMonthly"]:
        part = _dollars(report["repacked"]["ofWhichSpotMonthly"])
        text += f" {part} of the saving comes from spot that the NodePools allow already."
    if option and option["furtherSavingMonthly"]:
        text += (
            f" An option that is in none of the figures: {counted(option['pods'], 'pod')} on spot instead of on-demand"
            f" would save {_dollars(option['furtherSavingMonthly'])} a month more."
        )
    listed = table(
        ("Plan", "#$/hour", "#$/month", "#Saves $/month"),
        (
            (
                name,
                f"{report[key]['hourly']:,.4f}",
                _dollars(report[key]["monthly"]),
                _dollars(report[key]["savingMonthly"]) if "savingMonthly" in report[key] else "",
            )
            for name, key in names
        ),
        "Price a month",
    )
    drawn = figure(bars("Price a month", rows), name="Price a month")
    return section("Price a month", drawn, paragraph(text), listed)


def _spending(report: Report) -> Html:
    rows = [
        Bar(name, report["spending"][key], _dollars(report["spending"][key]), colour)
        for colour, (key, name) in enumerate(_SPENDING.items())
        if report["spending"][key]
    ]
    title = "Where the money goes now"
    listed = table(("What nodes are paid for", "#$/month"), ((row.label, row.value) for row in rows), title)
    return section(title, figure(stack(title, rows), name=title), listed)


def _fleet(report: Report) -> Html:
    kinds = [
        Kind(e["zone"], e["instanceType"], e["capacityType"], e["nodes"], e["hourly"])
        for e in report["fleet"]
    ]
    text = "Each tile is a kind of node, and its area is what these nodes cost."
    return section(
        "Nodes by zone and type", figure(fleet_map("Nodes by zone and type", kinds), text, "Nodes")
    )


def _obstacles(report: Report) -> Iterator[Html]:
    yield _table(
        "Rules that keep nodes",
        ("Rule", "Object", "#Nodes", "#$/month", "#Not requested $/month", "Message"),
        (
            (
                e["rule"],
                e["object"],
                e["nodes"],
                _dollars(e["monthly"]),
                _dollars(e["unrequestedMonthly"]),
                e["message"],
            )
            for e in report["kept"]
        ),
    )
    costs = [
        *((e["constraint"], e["workload"], e["pods"], e["monthly"]) for e in report["constraints"]["costs"]),
        *((e["rule"], e["object"], e["nodes"], e["costMonthly"]) for e in report["protections"]),
    ]
    costs.sort(key=lambda cost: (-cost[3], cost[0], cost[1]))
    paid = [Bar(f"{item}, {on}", usd, _dollars(usd), 1) for item, on, _, usd in costs if usd][:_MOST_BARS]
    examined = report["constraints"]
    text = (
        f"The plan made again without each constraint: {examined['examined']} of {examined['found']} examined. "
        "A difference within the planner's tolerance counts as 0."
    )
    if costs:
        listed = table(
            ("Constraint", "Of", "#Pods or nodes", "#$/month"),
            ((item, on, number, _dollars(usd)) for item, on, number, usd in costs),
            "What constraints cost",
        )
        drawn = figure(bars("What constraints cost a month", paid), name="Chart") if paid else ""
        yield section("What constraints cost", paragraph(text), drawn, listed)


def _opportunities(report: Report) -> Iterator[Html]:
    yield _table(
        "Instance families with cheaper types of the same size",
        ("Family", "Sold", "#Nodes", "#$/month", "Cheapest type", "#Saves $/month"),
        (
            (
                e["family"],
                e["capacityType"],
                e["nodes"],
                _dollars(e["monthly"]),
                e["cheapestType"],
                _dollars(e["savingMonthly"]),
            )
            for e in report["families"]
        ),
    )
    yield _table(
        "DaemonSets",
        ("DaemonSet", "#Pods", "#CPU", "#Memory", "#$/month"),
        (
            (e["workload"], e["pods"], e["requests"]["cpu"], e["requests"]["memory"], _dollars(e["monthly"]))
            for e in report["daemonSets"]
        ),
    )
    yield _table(
        "Requests beyond use (one sample of metrics-server; peaks are higher; in none of the figures)",
        ("Workload", "#CPU", "#Used", "#Memory", "#Used", "#$/month"),
        (
            (
                e["workload"],
                e["requests"]["cpu"],
                e["used"]["cpu"],
                e["requests"]["memory"],
                e["used"]["memory"],
                _dollars(e["unusedMonthly"]),
            )
            for e in report["oversized"]["workloads"]
        ),
    )


def _left_out(report: Report) -> Iterator[Html]:
    yield _table(
        "Not priced, and in none of the figures",
        ("Node", "Manager", "Why"),
        ((e["node"], e["owner"], e["reason"]) for e in report["unknown"]),
    )
    yield _table(
        "Nodes that keep their pods",
        ("Node", "Why"),
        ((e["node"], e["reason"]) for e in report["unplaceable"]),
    )
    yield _table(
        "What could not be read",
        ("Kind", "Why", "What that means"),
        ((e["kind"], e["reason"], e["meaning"]) for e in report["missing"]),
    )
    oversized = report["oversized"]
    unknown_usage = [] if oversized["isKnown"] else [f"Use of requests is not known: {oversized['reason']}."]
    yield section("How to read the figures", items((*report["caveats"], *unknown_usage, *report["faults"])))
    manifests = report["nodePools"]["manifests"]
    if manifests:
        shown = "---\n".join(yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests)
        yield section("Assumed NodePools", preformatted(shown))


def _table(title: str, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """Return a section with a table, or nothing if there are no rows."""
    return section(title, table(titles, rows, title))


def _kinds(kinds: Iterable[Report]) -> str:
    return ", ".join(f"{kind['count']} × {kind['kind']}" for kind in kinds)


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}" if abs(amount) >= 10 or not amount else f"${amount:,.2f}"
