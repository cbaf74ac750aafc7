"""Terminal output of a report: a header like eks-node-viewer's, nodes with bars, waiting times, pending pods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.apimachinery.resources import CPU, MEMORY, total
from nodesmith_cli.local.latency import Latency
from nodesmith_cli.local.report import HOURS_A_MONTH, NodeReport, PendingPod, Price, Report
from nodesmith_cli.printing import counted

GIB = 2**30
ESTIMATE = "~ an estimate: only AWS publishes spot prices and the prices of most regions"
"""Explains the mark of `price_text`."""
_WIDTH = 120
_LAYOUTS = ((8, 2), (3, 1), (0, 1))
"""The length of a node's bars and the padding between columns, from wide to narrow."""
_FULL, _EMPTY = "█", "░"


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr, wide enough for the tables if it is not a terminal."""
    file = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() else _WIDTH
    return Console(
        file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None
    )


def screen(report: Report, width: int = _WIDTH) -> RenderableType:
    """Return the current state: header, nodes and pending pods. Bars shrink if `width` is small."""
    parts: list[RenderableType] = [header(report, width)]
    if report.nodes:
        parts += ["", node_table(report.nodes, width)]
    if report.pending:
        parts += ["", pending_table(report.pending)]
    return Group(*parts)


def screens(reports: Mapping[str, Report], width: int = _WIDTH) -> RenderableType:
    """Return each cluster's screen under its name; for a single cluster, without the name."""
    if len(reports) == 1:
        return screen(next(iter(reports.values())), width)
    parts: list[RenderableType] = []
    for cluster, report in reports.items():
        parts += [Text(f"cluster {cluster}", style="bold"), screen(report, width), ""]
    return Group(*parts[:-1])


def header(report: Report, width: int = _WIDTH) -> RenderableType:
    """Return the header: nodes, pods, use of CPU and memory, price."""
    requested = total([node.requested for node in report.nodes])
    allocatable = total([node.allocatable for node in report.nodes])
    bar = max(5, min(40, width - 66))
    grid = Table.grid(padding=(0, 2))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    grid.add_row(
        Text(counted(len(report.nodes), "node"), style="bold"),
        Text(f"{requested.cpu_milli / 1000:g}/{allocatable.cpu_milli / 1000:g} cores"),
        Text(f"{_fraction(requested.of(CPU), allocatable.of(CPU)):6.1%} cpu"),
        _bar(requested.of(CPU), allocatable.of(CPU), bar),
    )
    grid.add_row(
        price_text(report.price, per_month=True),
        Text(f"{requested.memory_bytes / GIB:.1f}/{allocatable.memory_bytes / GIB:.1f} GiB"),
        Text(f"{_fraction(requested.of(MEMORY), allocatable.of(MEMORY)):6.1%} memory"),
        _bar(requested.of(MEMORY), allocatable.of(MEMORY), bar),
    )
    waiting = len(report.pending)
    pods = Text(counted(report.bound + waiting, "pod"), style="bold")
    pods.append(f" ({waiting} pending ", style="bold red" if waiting else "not bold")
    pods.append(f"{report.running} running {report.bound} bound)", style="not bold")
    return Group(grid, pods)


def node_table(nodes: Sequence[NodeReport], width: int = _WIDTH) -> Table:
    """Return a table with one row for each node, by zone.

    If `width` is small, bars shrink and then disappear, and after that the node's name is shortened.
    """
    tables = (_node_table(nodes, *layout) for layout in _LAYOUTS)
    return next(
        (table for table in tables if _natural_width(table) <= width), _node_table(nodes, *_LAYOUTS[-1])
    )


def _natural_width(table: Table) -> int:
    anywhere = Console(width=10 * _WIDTH)
    return Measurement.get(anywhere, anywhere.options, table).maximum


def _node_table(nodes: Sequence[NodeReport], bar: int, padding: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="dim")
    table.add_column("node", overflow="ellipsis")
    for title in ("zone", "type", "sold", "$/hour", "cpu", "memory", "pods", ""):
        table.add_column(title, no_wrap=True, justify="right" if title in {"$/hour", "pods"} else "left")
    for node in nodes:
        table.add_row(
            node.name.partition(".")[0],
            node.zone,
            node.instance_type,
            Text(node.capacity_type, style="green" if node.capacity_type == SPOT else "yellow"),
            price_text(node.price),
            gauge(node.requested.of(CPU), node.allocatable.of(CPU), bar),
            gauge(node.requested.of(MEMORY), node.allocatable.of(MEMORY), bar),
            f"{len(node.pods)}/{node.allocatable.pods}",
            Text("Ready", style="green") if node.ready else Text("NotReady", style="red"),
        )
    return table


def pending_table(pending: Sequence[PendingPod]) -> Table:
    """Return a table of pending pods, with one row for each reason."""
    by_reason: dict[str, list[str]] = {}
    for pod in pending:
        by_reason.setdefault(pod.reason, []).append(pod.name)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pending", no_wrap=True)
    table.add_column("why", overflow="fold")
    for reason, names in by_reason.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        table.add_row(Text(names[0] + more, style="red"), reason)
    return table


def latency_table(latencies: Iterable[Latency]) -> Table:
    """Return a table of the pods' waiting times for each step."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("from pending to", no_wrap=True)
    for title in ("p50", "max", "pods"):
        table.add_column(title, justify="right")
    for step in latencies:
        table.add_row(step.step, f"{step.p50_seconds:.1f} s", f"{step.max_seconds:.1f} s", str(step.pods))
    return table


def price_text(price: Price | None, *, per_month: bool = False) -> Text:
    """Format a price; `~` marks an estimate, and `?` stands for an unknown price."""
    if price is None:
        return Text("?")
    mark = "~" if price.estimated else ""
    hourly = f"{mark}${price.hourly_usd:.4f}"
    if not per_month:
        return Text(hourly)
    return Text(f"{hourly}/hour | {mark}${price.hourly_usd * HOURS_A_MONTH:,.0f}/month", style="bold green")


def gauge(used: int, room: int, width: int) -> Text:
    """Return a bar and a percentage of use; a `width` of 0 omits the bar."""
    return Text.assemble(
        _bar(used, room, width), f" {_fraction(used, room):4.0%}" if width else f"{_fraction(used, room):.0%}"
    )


def _bar(used: int, room: int, width: int) -> Text:
    filled = round(width * min(1.0, _fraction(used, room)))
    return Text.assemble((_FULL * filled, "cyan"), (_EMPTY * (width - filled), "dim"))


def _fraction(used: int, room: int) -> float:
    return used / room if room else 0.0
