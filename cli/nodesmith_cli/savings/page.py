"""The report as one HTML file: no script, no request to any host, light and dark, printable on A4.

Every text is escaped: names in a cluster are written by its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

import yaml

from nodesmith_cli.savings.charts import Bar, bars, stack
from nodesmith_cli.savings.parts import dollars as _dollars
from nodesmith_cli.savings.parts import frame
from nodesmith_cli.savings.parts import rows as _rows
from nodesmith_cli.savings.parts import section as _section
from nodesmith_cli.savings.parts import table as _table
from nodesmith_cli.savings.parts import text as _text
from nodesmith_formats.wording import counted

Report = Mapping[str, Any]
_MOST = 50
_SPENDING = {
    "podsMonthly": "Requests of pods",
    "daemonSetsMonthly": "DaemonSets and static pods",
    "unrequestedCpuMonthly": "CPU that nothing requests",
    "unrequestedMemoryMonthly": "Memory that nothing requests",
    "unrequestedAcceleratorsMonthly": "Accelerators that nothing requests",
}


def page(written: Report) -> str:
    """Return the HTML file. `written` is the report's JSON data."""
    cluster = written["cluster"]
    name = _text(cluster["context"] or "cluster")
    sections = "".join(_sections(written))
    title = f"What {name} costs, and what it would cost"
    return frame(title, f"<main>{_head(written)}{sections}</main>", f"read {cluster['readAt']}")


def _head(written: Report) -> str:
    cluster, now, best = written["cluster"], written["now"], written["repacked"]
    reachable, bound = written["reachable"], written["lowerBound"]
    cards = (
        ("Now", now, f"{counted(now['nodes'], 'node')}"),
        ("Reachable by moves", reachable, _saved(reachable)),
        ("Repacked today", best, _saved(best)),
        ("Lower bound", bound, "no plan can cost less"),
    )
    shown = "".join(
        f"<div class=card><h2>{title}</h2><p class=big>{_dollars(each['monthly'])}<small>/month</small></p>"
        f"<p>{_text(note)}</p><p class=dim>${each['hourly']:,.2f}/hour</p></div>"
        for title, each, note in cards
    )
    about = (
        f"{counted(cluster['nodes'], 'node')}, {counted(cluster['pods'], 'pod')}, {cluster['region']}. On-demand "
        f"prices of {written['prices']['catalogue']}, spot prices: {written['prices']['spot']}."
    )
    title = _text(cluster["context"] or "The cluster")
    return (
        f"<header><h1>{title}: what it costs</h1><p>{_text(about)}</p></header><div class=cards>{shown}</div>"
    )


def _saved(each: Report) -> str:
    return f"saves {_dollars(each['savingMonthly'])} ({each['savingPercent']:.0f} %)"


def _sections(written: Report) -> Iterator[str]:
    yield _prices(written)
    yield _spending(written)
    yield _table(
        "Who manages the nodes",
        ("Manager", "Group", "#Nodes", "#$/month", "nodesmith can take over"),
        (
            (
                e["software"],
                e["group"],
                e["nodes"],
                _dollars(e["monthly"]),
                "yes" if e["canTakeOver"] else "no",
            )
            for e in written["owners"]
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
            for e in written["moves"]
        ),
    )
    yield from _obstacles(written)
    yield from _opportunities(written)
    yield from _left_out(written)


def _prices(written: Report) -> str:
    names = (
        ("Now", "now"),
        ("Reachable", "reachable"),
        ("Repacked today", "repacked"),
        ("Lower bound", "lowerBound"),
    )
    rows = [
        Bar(name, written[key]["monthly"], _dollars(written[key]["monthly"]), colour)
        for colour, (name, key) in enumerate(names)
    ]
    reachable, option = written["reachable"], written["spotOption"]
    told = (
        f"{counted(reachable['moves'], 'move')} with {counted(reachable['evictions'], 'restart')} of pods"
        f"{'' if reachable['isFinished'] else '; the search was not finished, so more may be reachable'}."
    )
    if written["repacked"]["ofWhichSpotMonthly"]:
        part = _dollars(written["repacked"]["ofWhichSpotMonthly"])
        told += f" {part} of the saving comes from spot that the NodePools allow already."
    if option and option["furtherSavingMonthly"]:
        told += (
            f" An option that is in none of the figures: {counted(option['pods'], 'pod')} on spot instead of on-demand"
            f" would save {_dollars(option['furtherSavingMonthly'])} a month more."
        )
    table = _rows(
        ("", "#$/hour", "#$/month", "#Saves $/month"),
        (
            (
                name,
                f"{written[key]['hourly']:,.4f}",
                _dollars(written[key]["monthly"]),
                _dollars(written[key]["savingMonthly"]) if "savingMonthly" in written[key] else "",
            )
            for name, key in names
        ),
    )
    return _section("Price a month", f"{bars('Price a month', rows)}<p>{_text(told)}</p>{table}")


def _spending(written: Report) -> str:
    rows = [
        Bar(name, written["spending"][key], _dollars(written["spending"][key]), colour)
        for colour, (key, name) in enumerate(_SPENDING.items())
        if written["spending"][key]
    ]
    table = _rows(("What nodes are paid for", "#$/month"), ((row.label, row.value) for row in rows))
    return _section("Where the money goes now", stack("Where the money goes now", rows) + table)


def _obstacles(written: Report) -> Iterator[str]:
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
            for e in written["kept"]
        ),
    )
    costs = [
        *((e["constraint"], e["workload"], e["pods"], e["monthly"]) for e in written["constraints"]["costs"]),
        *((e["rule"], e["object"], e["nodes"], e["costMonthly"]) for e in written["protections"]),
    ]
    costs.sort(key=lambda cost: (-cost[3], cost[0], cost[1]))
    paid = [Bar(f"{what}, {on}", usd, _dollars(usd), 1) for what, on, _, usd in costs if usd][:_MOST]
    examined = written["constraints"]
    told = (
        f"The plan made again without each constraint: {examined['examined']} of {examined['found']} examined. "
        "A difference within the planner's tolerance counts as 0."
    )
    if costs:
        table = _rows(
            ("Constraint", "Of", "#Pods or nodes", "#$/month"),
            ((what, on, number, _dollars(usd)) for what, on, number, usd in costs),
        )
        chart = bars("What constraints cost a month", paid) if paid else ""
        yield _section("What constraints cost", f"<p>{_text(told)}</p>{chart}{table}")


def _opportunities(written: Report) -> Iterator[str]:
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
            for e in written["families"]
        ),
    )
    yield _table(
        "DaemonSets",
        ("DaemonSet", "#Pods", "#CPU", "#Memory", "#$/month"),
        (
            (e["workload"], e["pods"], e["requests"]["cpu"], e["requests"]["memory"], _dollars(e["monthly"]))
            for e in written["daemonSets"]
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
            for e in written["oversized"]["workloads"]
        ),
    )


def _left_out(written: Report) -> Iterator[str]:
    yield _table(
        "Not priced, and in none of the figures",
        ("Node", "Manager", "Why"),
        ((e["node"], e["owner"], e["reason"]) for e in written["unknown"]),
    )
    yield _table(
        "Nodes that keep their pods",
        ("Node", "Why"),
        ((e["node"], e["reason"]) for e in written["unplaceable"]),
    )
    yield _table(
        "What could not be read",
        ("Kind", "Why", "What that means"),
        ((e["kind"], e["why"], e["meaning"]) for e in written["missing"]),
    )
    oversized = written["oversized"]
    known = [] if oversized["isKnown"] else [f"Use of requests is not known: {oversized['why']}."]
    notes = "".join(f"<li>{_text(each)}</li>" for each in (*written["caveats"], *known, *written["faults"]))
    yield _section("How to read the figures", f"<ul>{notes}</ul>")
    manifests = written["nodePools"]["manifests"]
    if manifests:
        text = "---\n".join(yaml.safe_dump(each, sort_keys=False) for each in manifests)
        yield _section("Assumed NodePools", f"<pre>{escape(text)}</pre>")


def _kinds(kinds: Iterable[Report]) -> str:
    return ", ".join(f"{each['count']} × {each['kind']}" for each in kinds)
