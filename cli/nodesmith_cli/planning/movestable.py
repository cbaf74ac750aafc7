"""Moves as tables: the saving, the nodes removed and launched, and the rules that keep the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith_cli.planning.table import plain_table
from nodesmith_formats.wording import counted

_MOST_ROWS = 40


def show_moves(to: Console, written: Mapping[str, Any], *, is_wide: bool = False) -> None:
    """Print moves. `written` is their JSON data. If `is_wide`, no row is left out."""
    most = len(written["moves"]) + len(written["kept"]) if is_wide else _MOST_ROWS
    _summary(to, written)
    if written["moves"]:
        to.print()
        to.print(_moves(written["moves"], most))
    if written["kept"]:
        to.print()
        to.print(_kept(written["kept"], most))


def _summary(to: Console, written: Mapping[str, Any]) -> None:
    before, saving = written["priceHourly"], written["savingHourly"]
    to.print(f"{counted(written['nodes'], 'node')} at ${before:.4f}/hour", style="bold")
    if not written["moves"]:
        to.print("no moves: no set of nodes can be consolidated at a saving that is worth the disruption")
    else:
        going = sum(len(move["sources"]) for move in written["moves"])
        coming = sum(len(move["replacements"]) for move in written["moves"])
        pods = sum(len(move["destinations"]) for move in written["moves"])
        to.print(
            f"{counted(len(written['moves']), 'move')}: {counted(going, 'node')} replaced by {coming},"
            f" {counted(pods, 'pod')} to restart"
        )
        to.print(
            f"saves ${saving:.4f}/hour, ${written['savingYearly']:,.0f} a year"
            f" ({saving / before if before else 0:.0%}), at an eviction cost of {written['harm']:g}",
            style="green",
        )
    rest = "" if written["isFinished"] else ", search not finished"
    to.print(f"decided in {written['seconds']:.2f} s, {counted(written['steps'], 'step')}{rest}", style="dim")


def _moves(moves: Iterable[Mapping[str, Any]], most: int) -> Table:
    table = plain_table("move", "reason", "removed", "launched", "pods", "eviction cost", "saves/hour")
    for number, move in enumerate(moves, start=1):
        if number > most:
            table.add_row("", "and more: see -o json")
            break
        table.add_row(
            str(number),
            move["reason"],
            _alike(move["sources"]),
            _alike(move["replacements"]) or Text(_nothing(move), style="dim"),
            str(len(move["destinations"])),
            f"{move['harm']:g}",
            Text(f"${move['savingHourly']:.4f}", style="green" if move["savingHourly"] > 0 else "yellow"),
        )
    return table


def _nothing(move: Mapping[str, Any]) -> str:
    return "existing nodes" if move["destinations"] else "none"


def _alike(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Count nodes by type, capacity type and zone, one line each."""
    kinds = Counter(f"{node['instanceType'] or '?'} {node['capacityType']} {node['zone']}" for node in nodes)
    return "\n".join(f"{count} × {kind}" for kind, count in kinds.items())


def _kept(kept: Iterable[Mapping[str, str]], most: int) -> Table:
    """Return one row for each rule and object, the one that keeps the most nodes first."""
    table = plain_table("nodes", "kept", "why")
    found: dict[tuple[str, str, str], list[str]] = {}
    for entry in kept:
        key = entry["rule"], entry["object"], entry["message"]
        found.setdefault(key, []).append(entry["node"] or entry["nodeClaim"])
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    for (rule, on, message), names in ordered[:most]:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        table.add_row(f"{len(names):,}", Text(names[0] + more, style="yellow"), f"{rule} ({on}): {message}")
    if len(ordered) > most:
        table.add_row(f"and {sum(len(names) for _, names in ordered[most:]):,} more: see -o json")
    return table
