"""The report for a terminal: at most 80 columns, readable without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith_cli.costs.savings.owners import NODESMITH
from nodesmith_cli.costs.savings.report import whole_percent
from nodesmith_cli.output.terminal import bar, fraction
from nodesmith_formats.wording import counted, printable

Report = Mapping[str, Any]
WIDTH = 80
_BAR = 16
_ROWS = 5


def show(to: Console, report: Report) -> None:
    """Print a report. `report` is its JSON data."""
    _headline(to, report)
    for title, table in _tables(report):
        if table.row_count:
            to.print()
            to.print(title, style="bold")
            to.print(table)
    to.print()
    _oversized(to, report["oversized"])
    for missing in report["missing"]:
        to.print(_line(f"! {missing['kind']}: {missing['reason']}: {missing['meaning']}"), style="yellow")
    for text in report["caveats"]:
        to.print(_line(f"· {text}"), style="dim")


def _headline(to: Console, report: Report) -> None:
    cluster, now = report["cluster"], report["now"]
    to.print(
        _line(
            f"{cluster['context'] or 'cluster'}, {cluster['region']}: {counted(cluster['nodes'], 'node')}, "
            f"{counted(cluster['pods'], 'pod')}, prices of {report['prices']['catalogue']}"
        ),
        style="dim",
    )
    to.print()
    rows = [
        ("now", now),
        ("reachable by moves", report["reachable"]),
        ("repacked today", report["repacked"]),
    ]
    table = _plain("", ">$/hour", ">$/month", ">saves/month", ">nodes", "")
    for name, row in rows:
        saved = row.get("savingMonthly")
        table.add_row(
            Text(name, style="bold"),
            f"{row['hourly']:,.2f}",
            f"{row['monthly']:,.0f}",
            Text(f"{saved:,.0f} ({whole_percent(now, row)}%)", style="green") if saved is not None else "",
            str(row["nodes"]),
            bar(row["hourly"], now["hourly"], _BAR),
        )
    bound = report["lowerBound"]
    share = bar(bound["hourly"], now["hourly"], _BAR)
    table.add_row("lower bound", f"{bound['hourly']:,.2f}", f"{bound['monthly']:,.0f}", "", "", share)
    to.print(table)
    _notes(to, report)


def _notes(to: Console, report: Report) -> None:
    reachable, repacked, option = report["reachable"], report["repacked"], report["spotOption"]
    more = "" if reachable["isFinished"] else ", and perhaps more"
    to.print(
        _line(
            f"reachable by {counted(reachable['moves'], 'move')} with "
            f"{counted(reachable['evictions'], 'restart')} of pods{more}"
        )
    )
    estimated = report["now"]["estimatedMonthly"], repacked["estimatedMonthly"]
    if any(estimated):
        to.print(
            _line(f"estimated spot prices: ${estimated[0]:,.0f} of now, ${estimated[1]:,.0f} of repacked")
        )
    if repacked["ofWhichSpotMonthly"]:
        to.print(
            _line(f"${repacked['ofWhichSpotMonthly']:,.0f} of it by spot that the NodePools allow already")
        )
    if option and option["furtherSavingMonthly"]:
        to.print(
            _line(
                f"option, not counted: {counted(option['pods'], 'pod')} on spot instead of on-demand would save "
                f"${option['furtherSavingMonthly']:,.0f} a month more"
            )
        )


def _tables(report: Report) -> Iterable[tuple[str, Table]]:
    yield "Who manages the nodes", _owners(report["owners"])
    yield "Where the money goes now", _spending(report["spending"], report["now"]["monthly"])
    yield "Best moves", _moves(report["moves"])
    yield "Rules that keep nodes, and what nothing requests on them", _kept(report["kept"])
    yield "What protections cost", _protections(report["protections"])
    yield _constraints_title(report["constraints"]), _constraints(report["constraints"]["costs"])
    yield "Instance families with cheaper types of the same size", _families(report["families"])
    yield "DaemonSets", _workloads(report["daemonSets"], "monthly")
    yield (
        "Requests beyond use, in one sample of metrics-server",
        _oversizes(report["oversized"]["workloads"]),
    )
    yield "Not priced, and in none of the figures", _unknown(report["unknown"])
    yield "Nodes that keep their pods", _unplaceable(report["unplaceable"])
    yield (
        "Assumed NodePools (--write-nodepools FILE writes them)",
        _assumed(report["nodePools"]["manifests"]),
    )


def _owners(owners: Sequence[Report]) -> Table:
    table = _plain("manager", "group", ">nodes", ">$/month", "")
    for owner in owners[:_ROWS]:
        note = "can be taken over" if owner["canTakeOver"] else "left alone"
        if owner["software"] == NODESMITH:
            note = ""
        table.add_row(
            _cell(owner["software"], 40),
            _cell(owner["group"], 14),
            str(owner["nodes"]),
            _usd(owner["monthly"]),
            note,
        )
    return _ended(table, owners)


def _spending(spending: Report, whole: float) -> Table:
    names = {
        "podsMonthly": "requests of pods",
        "daemonSetsMonthly": "DaemonSets and static pods",
        "unrequestedCpuMonthly": "cpu that nothing requests",
        "unrequestedMemoryMonthly": "memory that nothing requests",
        "unrequestedAcceleratorsMonthly": "accelerators that nothing requests",
    }
    table = _plain("", ">$/month", ">share", "")
    for key, name in names.items():
        if spending[key]:
            share = fraction(spending[key], whole)
            table.add_row(name, _usd(spending[key]), f"{share:.0%}", bar(spending[key], whole, _BAR))
    return table


def _moves(moves: Sequence[Report]) -> Table:
    table = _plain(">", "removed", "launched", ">pods", ">saves/month")
    for number, move in enumerate(moves, start=1):
        launched = _kinds(move["launched"]) or ("free capacity" if move["pods"] else "nothing")
        table.add_row(
            str(number), _kinds(move["removed"]), launched, str(move["pods"]), _usd(move["savingMonthly"])
        )
    return table


def _kinds(kinds: Sequence[Report]) -> str:
    lines = [f"{kind['count']} × {_cell(kind['kind'], 24)}" for kind in kinds[:3]]
    return "\n".join(lines + ([f"and {len(kinds) - 3} more kinds"] if len(kinds) > 3 else []))


def _kept(reports: Sequence[Report]) -> Table:
    table = _plain("rule", "object", ">nodes", ">$/month", ">unrequested")
    for constraint in reports[:_ROWS]:
        table.add_row(
            _cell(constraint["rule"], 22),
            _cell(constraint["object"], 30),
            str(constraint["nodes"]),
            _usd(constraint["monthly"]),
            _usd(constraint["unrequestedMonthly"]),
        )
    return _ended(table, reports)


def _protections(protections: Sequence[Report]) -> Table:
    table = _plain("protection", "object", ">costs $/month")
    for protection in protections[:_ROWS]:
        table.add_row(
            _cell(protection["rule"], 22), _cell(protection["object"], 40), _usd(protection["costMonthly"])
        )
    return table


def _constraints_title(constraints: Report) -> str:
    return f"What constraints cost ({constraints['examined']} of {constraints['found']} examined)"


def _constraints(costs: Sequence[Report]) -> Table:
    table = _plain("constraint", "workload", ">pods", ">$/month")
    for item in costs[: 2 * _ROWS]:
        cost = _usd(item["monthly"]) if item["monthly"] else "none found"
        table.add_row(_cell(item["constraint"], 28), _cell(item["workload"], 34), str(item["pods"]), cost)
    return table


def _families(families: Sequence[Report]) -> Table:
    table = _plain("family", "sold", ">nodes", ">$/month", "cheapest", ">saves/month")
    for family in families[:_ROWS]:
        table.add_row(
            _cell(family["family"], 14),
            family["capacityType"],
            str(family["nodes"]),
            _usd(family["monthly"]),
            family["cheapestType"],
            _usd(family["savingMonthly"]),
        )
    return _ended(table, families)


def _workloads(workloads: Sequence[Report], price: str) -> Table:
    table = _plain("workload", ">pods", ">cpu", ">memory", ">$/month")
    for workload in workloads[:_ROWS]:
        requested = workload["requests"]
        table.add_row(
            _cell(workload["workload"], 40),
            str(workload["pods"]),
            requested["cpu"],
            requested["memory"],
            _usd(workload[price]),
        )
    return _ended(table, workloads)


def _oversizes(workloads: Sequence[Report]) -> Table:
    table = _plain("workload", ">cpu", ">used", ">memory", ">used", ">$/month")
    for workload in workloads[:_ROWS]:
        requested, used = workload["requests"], workload["used"]
        table.add_row(
            _cell(workload["workload"], 34),
            requested["cpu"],
            used["cpu"],
            requested["memory"],
            used["memory"],
            _usd(workload["unusedMonthly"]),
        )
    return _ended(table, workloads)


def _oversized(to: Console, oversized: Report) -> None:
    if not oversized["isKnown"]:
        to.print(_line(f"· Use of requests is not known: {oversized['reason']}."), style="dim")
    elif oversized["workloads"]:
        caveat = (
            "· Requests beyond use are from one sample: peaks are higher. They are in none of the figures."
        )
        to.print(_line(caveat), style="dim")


def _unknown(unknown: Sequence[Report]) -> Table:
    table = _plain("node", "why")
    for manifest in unknown[:_ROWS]:
        table.add_row(_cell(manifest["node"], 30), _line(manifest["reason"]))
    return _ended(table, unknown)


def _unplaceable(nodes: Sequence[Report]) -> Table:
    table = _plain("node", "why")
    for node in nodes[:_ROWS]:
        table.add_row(_cell(node["node"], 30), _cell(node["reason"], 200))
    return _ended(table, nodes)


def _assumed(manifests: Sequence[Report]) -> Table:
    table = _plain("name", "requirements", "labels and taints")
    for manifest in manifests:
        if manifest["kind"] == "NodePool":
            template = manifest["spec"]["template"]
            requirements = [
                f"{r['key'].rpartition('/')[2]} {r['operator']} {', '.join(r['values'])}"
                for r in template["spec"]["requirements"]
            ]
            labels = [f"{k}={v}" for k, v in template.get("metadata", {}).get("labels", {}).items()]
            taints = [f"{t['key']}:{t['effect']}" for t in template["spec"].get("taints", ())]
            table.add_row(
                manifest["metadata"]["name"],
                "\n".join(_cell(text, 38) for text in requirements),
                "\n".join(_cell(text, 26) for text in (*labels, *taints)),
            )
    return table


def _plain(*titles: str) -> Table:
    """Return a table without borders. A title that begins with `>` is right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        justify: Callable[..., None] = table.add_column
        justify(
            title.lstrip(">"), justify="right" if title.startswith(">") else "left", no_wrap=title != "why"
        )
    return table


def _ended(table: Table, rows: Sequence[Report]) -> Table:
    if len(rows) > _ROWS:
        table.add_row(f"and {len(rows) - _ROWS:,} more")
    return table


def _cell(text: str, most: int) -> str:
    """Return text from the cluster, printable and cut to a width."""
    shown = printable(str(text))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _line(text: str) -> Text:
    return Text(printable(text))


def _usd(amount: float) -> str:
    return f"{amount:,.0f}" if abs(amount) >= 10 or not amount else f"{amount:,.2f}"
