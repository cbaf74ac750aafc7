"""The report for a terminal: at most 80 columns, readable without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith_cli.costs.savings.owners import NODESMITH
from nodesmith_formats.wording import counted, printable

Report = Mapping[str, Any]
WIDTH = 80
_BAR = 16
_FULL, _EMPTY = "█", "░"
_ROWS = 5


def show(to: Console, written: Report) -> None:
    """Print a report. `written` is its JSON data."""
    _headline(to, written)
    for title, table in _tables(written):
        if table.row_count:
            to.print()
            to.print(title, style="bold")
            to.print(table)
    to.print()
    _oversized(to, written["oversized"])
    for each in written["missing"]:
        to.print(_line(f"! {each['kind']}: {each['why']}: {each['meaning']}"), style="yellow")
    for text in written["caveats"]:
        to.print(_line(f"· {text}"), style="dim")


def _headline(to: Console, written: Report) -> None:
    cluster, now = written["cluster"], written["now"]
    to.print(
        _line(
            f"{cluster['context'] or 'cluster'}, {cluster['region']}: {counted(cluster['nodes'], 'node')}, "
            f"{counted(cluster['pods'], 'pod')}, prices of {written['prices']['catalogue']}"
        ),
        style="dim",
    )
    to.print()
    rows = [
        ("now", now),
        ("reachable by moves", written["reachable"]),
        ("repacked today", written["repacked"]),
    ]
    table = _plain("", ">$/hour", ">$/month", ">saves/month", ">nodes", "")
    for name, each in rows:
        saved = each.get("savingMonthly")
        share = each["hourly"] / now["hourly"] if now["hourly"] else 0.0
        table.add_row(
            Text(name, style="bold"),
            f"{each['hourly']:,.2f}",
            f"{each['monthly']:,.0f}",
            Text(f"{saved:,.0f} ({each['savingPercent']:.0f}%)", style="green") if saved is not None else "",
            str(each["nodes"]),
            _bar(share),
        )
    bound = written["lowerBound"]
    share = bound["hourly"] / now["hourly"] if now["hourly"] else 0.0
    table.add_row("lower bound", f"{bound['hourly']:,.2f}", f"{bound['monthly']:,.0f}", "", "", _bar(share))
    to.print(table)
    _notes(to, written)


def _notes(to: Console, written: Report) -> None:
    reachable, repacked, option = written["reachable"], written["repacked"], written["spotOption"]
    more = "" if reachable["isFinished"] else ", and perhaps more"
    to.print(
        _line(
            f"reachable by {counted(reachable['moves'], 'move')} with "
            f"{counted(reachable['evictions'], 'restart')} of pods{more}"
        )
    )
    estimated = written["now"]["estimatedMonthly"], repacked["estimatedMonthly"]
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


def _tables(written: Report) -> Iterable[tuple[str, Table]]:
    yield "Who manages the nodes", _owners(written["owners"])
    yield "Where the money goes now", _spending(written["spending"], written["now"]["monthly"])
    yield "Best moves", _moves(written["moves"])
    yield "Rules that keep nodes, and what nothing requests on them", _kept(written["kept"])
    yield "What protections cost", _protections(written["protections"])
    yield _constraints_title(written["constraints"]), _constraints(written["constraints"]["costs"])
    yield "Instance families with cheaper types of the same size", _families(written["families"])
    yield "DaemonSets", _workloads(written["daemonSets"], "monthly")
    yield (
        "Requests beyond use, in one sample of metrics-server",
        _oversizes(written["oversized"]["workloads"]),
    )
    yield "Not priced, and in none of the figures", _unknown(written["unknown"])
    yield "Nodes that keep their pods", _unplaceable(written["unplaceable"])
    yield (
        "Assumed NodePools (--write-nodepools FILE writes them)",
        _assumed(written["nodePools"]["manifests"]),
    )


def _owners(owners: Sequence[Report]) -> Table:
    table = _plain("manager", "group", ">nodes", ">$/month", "")
    for each in owners[:_ROWS]:
        note = "can be taken over" if each["canTakeOver"] else "left alone"
        if each["software"] == NODESMITH:
            note = ""
        table.add_row(
            _cell(each["software"], 40),
            _cell(each["group"], 14),
            str(each["nodes"]),
            _usd(each["monthly"]),
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
            share = spending[key] / whole if whole else 0.0
            table.add_row(name, _usd(spending[key]), f"{share:.0%}", _bar(share))
    return table


def _moves(moves: Sequence[Report]) -> Table:
    table = _plain(">", "removed", "launched", ">pods", ">saves/month")
    for number, each in enumerate(moves, start=1):
        launched = _kinds(each["launched"]) or ("free capacity" if each["pods"] else "nothing")
        table.add_row(
            str(number), _kinds(each["removed"]), launched, str(each["pods"]), _usd(each["savingMonthly"])
        )
    return table


def _kinds(kinds: Sequence[Report]) -> str:
    lines = [f"{each['count']} × {_cell(each['kind'], 24)}" for each in kinds[:3]]
    return "\n".join(lines + ([f"and {len(kinds) - 3} more kinds"] if len(kinds) > 3 else []))


def _kept(kept: Sequence[Report]) -> Table:
    table = _plain("rule", "object", ">nodes", ">$/month", ">unrequested")
    for each in kept[:_ROWS]:
        table.add_row(
            _cell(each["rule"], 22),
            _cell(each["object"], 30),
            str(each["nodes"]),
            _usd(each["monthly"]),
            _usd(each["unrequestedMonthly"]),
        )
    return _ended(table, kept)


def _protections(protections: Sequence[Report]) -> Table:
    table = _plain("protection", "object", ">costs $/month")
    for each in protections[:_ROWS]:
        table.add_row(_cell(each["rule"], 22), _cell(each["object"], 40), _usd(each["costMonthly"]))
    return table


def _constraints_title(constraints: Report) -> str:
    return f"What constraints cost ({constraints['examined']} of {constraints['found']} examined)"


def _constraints(costs: Sequence[Report]) -> Table:
    table = _plain("constraint", "workload", ">pods", ">$/month")
    for each in costs[: 2 * _ROWS]:
        cost = _usd(each["monthly"]) if each["monthly"] else "none found"
        table.add_row(_cell(each["constraint"], 28), _cell(each["workload"], 34), str(each["pods"]), cost)
    return table


def _families(families: Sequence[Report]) -> Table:
    table = _plain("family", "sold", ">nodes", ">$/month", "cheapest", ">saves/month")
    for each in families[:_ROWS]:
        table.add_row(
            _cell(each["family"], 14),
            each["capacityType"],
            str(each["nodes"]),
            _usd(each["monthly"]),
            each["cheapestType"],
            _usd(each["savingMonthly"]),
        )
    return _ended(table, families)


def _workloads(workloads: Sequence[Report], price: str) -> Table:
    table = _plain("workload", ">pods", ">cpu", ">memory", ">$/month")
    for each in workloads[:_ROWS]:
        asked = each["requests"]
        table.add_row(
            _cell(each["workload"], 40), str(each["pods"]), asked["cpu"], asked["memory"], _usd(each[price])
        )
    return _ended(table, workloads)


def _oversizes(workloads: Sequence[Report]) -> Table:
    table = _plain("workload", ">cpu", ">used", ">memory", ">used", ">$/month")
    for each in workloads[:_ROWS]:
        asked, used = each["requests"], each["used"]
        table.add_row(
            _cell(each["workload"], 34),
            asked["cpu"],
            used["cpu"],
            asked["memory"],
            used["memory"],
            _usd(each["unusedMonthly"]),
        )
    return _ended(table, workloads)


def _oversized(to: Console, oversized: Report) -> None:
    if not oversized["isKnown"]:
        to.print(_line(f"· Use of requests is not known: {oversized['why']}."), style="dim")
    elif oversized["workloads"]:
        caveat = (
            "· Requests beyond use are from one sample: peaks are higher. They are in none of the figures."
        )
        to.print(_line(caveat), style="dim")


def _unknown(unknown: Sequence[Report]) -> Table:
    table = _plain("node", "why")
    for each in unknown[:_ROWS]:
        table.add_row(_cell(each["node"], 30), _line(each["reason"]))
    return _ended(table, unknown)


def _unplaceable(nodes: Sequence[Report]) -> Table:
    table = _plain("node", "why")
    for each in nodes[:_ROWS]:
        table.add_row(_cell(each["node"], 30), _cell(each["reason"], 200))
    return _ended(table, nodes)


def _assumed(manifests: Sequence[Report]) -> Table:
    table = _plain("name", "requirements", "labels and taints")
    for each in manifests:
        if each["kind"] == "NodePool":
            template = each["spec"]["template"]
            asked = [
                f"{r['key'].rpartition('/')[2]} {r['operator']} {', '.join(r['values'])}"
                for r in template["spec"]["requirements"]
            ]
            labels = [f"{k}={v}" for k, v in template.get("metadata", {}).get("labels", {}).items()]
            taints = [f"{t['key']}:{t['effect']}" for t in template["spec"].get("taints", ())]
            table.add_row(
                each["metadata"]["name"],
                "\n".join(_cell(text, 38) for text in asked),
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


def _bar(share: float) -> Text:
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return Text.assemble((_FULL * filled, "cyan"), (_EMPTY * (_BAR - filled), "dim"))
