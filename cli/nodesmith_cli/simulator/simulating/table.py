"""The comparison as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith_cli.simulator.simulating.report import BASELINE, CHANGE
from nodesmith_formats.wording import counted, moment, printable, some

Report = Mapping[str, Any]
_MOST = 8


def show(to: Console, report: Report) -> None:
    """Print the report."""
    days = report["hours"] / 24
    span = f"{days:.1f} days" if days >= 2 else f"{report['hours']:.1f} hours"
    head = f"{report['cluster'] or 'cluster'}, {span} until {moment(report['until'])}"
    to.print(printable(f"{head}: {counted(report['pods'], 'pod')}, {counted(report['seeds'], 'seed')}"))
    to.print(printable(f"changed: {some(report['changes'], 6) or 'nothing'}"))
    for line in _of_recording(report["recorded"]):
        to.print(printable(line))
    to.print()
    to.print(_figures(report))
    for title, kind in (("NodePools", "nodepools"), ("Workloads", "workloads")):
        if report[kind]:
            to.print()
            to.print(f"{title} that differ most" if report["changes"] else title)
            to.print(_parts(report[kind], kind))
    for side, reasons in report["reasons"].items():
        for reason, pods in list(reasons.items())[:_MOST]:
            to.print(printable(f"{side}: {counted(pods, 'pod')} without a node: {reason}"), style="yellow")


def _of_recording(recorded: Report | None) -> Iterator[str]:
    """Yield what the recording itself shows."""
    if recorded is None:
        return
    yield f"recorded: ${recorded['usd']:,.2f} for nodesmith's nodes, {counted(recorded['decisions'], 'decision')}"
    if recorded["repeated"]:
        different = len(recorded["differences"])
        yield f"made again from their recorded inputs: {recorded['repeated']:,}, of which {different:,} differ"
    yield from (f"  {difference}" for difference in recorded["differences"][:_MOST])


def _figures(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    is_compared = any("difference" in item for item in report["figures"])
    table.add_column("")
    for name in (BASELINE, CHANGE, "difference") if is_compared else (BASELINE,):
        table.add_column(name, justify="right")
    if is_compared:
        table.add_column(report["interval"], justify="right")
    for item in report["figures"]:
        unit = "$" if item["unit"] == "USD" else ""
        label = f"{item['name']}, {item['unit']}" if item["unit"] not in ("", "USD") else item["name"]
        cells = [_number(item[BASELINE] if item[BASELINE] is not None else item[CHANGE], unit)]
        if is_compared:
            cells += [_number(item[CHANGE], unit), _change(item, unit)]
            cells.append(f"{_signed(item['low'], unit)} to {_signed(item['high'], unit)}")
        table.add_row(label, *cells)
    return table


def _parts(parts: Sequence[Report], kind: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    measures = ("usd", "nodeHours") if kind == "nodepools" else ("usd", "pendingSeconds", "evictions")
    titles = {"usd": "$", "nodeHours": "node hours", "pendingSeconds": "pending s", "evictions": "evictions"}
    for measure in measures:
        table.add_column(titles[measure], justify="right")
    for item in parts[:_MOST]:
        table.add_row(Text(printable(item["name"])[:70]), *(_both(item[measure]) for measure in measures))
    if len(parts) > _MOST:
        table.add_row(Text(f"and {len(parts) - _MOST:,} more: see -o json", style="dim"))
    return table


def _both(item: Report) -> str:
    if "difference" not in item:
        return _number(item[BASELINE] if item[BASELINE] is not None else item[CHANGE])
    return f"{_number(item[BASELINE])} → {_number(item[CHANGE])}"


def _change(item: Report, unit: str) -> str:
    share = f" ({item['difference'] / item[BASELINE]:+.0%})" if item[BASELINE] else ""
    return f"{_signed(item['difference'], unit)}{share}"


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "?"
    return f"{unit}{value:,.2f}" if abs(value) < 100 and value != int(value) else f"{unit}{value:,.0f}"


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0 else '+'}{_number(abs(value), unit)}"
