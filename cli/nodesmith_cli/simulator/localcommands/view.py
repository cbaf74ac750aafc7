"""Terminal output of a report: a header like eks-node-viewer's, nodes with bars, waiting times, pending pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, total
from nodesmith_cli.output.safeconsole import SafeConsole
from nodesmith_cli.output.terminal import WIDTH, bar, fraction, gauge, price_text
from nodesmith_formats.wording import counted
from nodesmith_local.runs.latency import Latency
from nodesmith_local.runs.report import NodeReport, PendingPod, Report

GIB = 2**30
_LAYOUTS = ((8, 2), (3, 1), (0, 1))
"""The length of a node's bars and the padding between columns, from wide to narrow."""


def screen(report: Report, width: int = WIDTH) -> RenderableType:
    """Return the current state: header, nodes and pending pods. Bars shrink if `width` is small."""
    parts: list[RenderableType] = [header(report, width)]
    if report.nodes:
        parts += ["", node_table(report.nodes, width)]
    if report.pending:
        parts += ["", pending_table(report.pending)]
    return Group(*parts)


def cluster_views(reports: Mapping[str, Report], width: int = WIDTH) -> RenderableType:
    """Return each cluster's screen under its name; for a single cluster, without the name."""
    if len(reports) == 1:
        return screen(next(iter(reports.values())), width)
    parts: list[RenderableType] = []
    for cluster, report in reports.items():
        parts += [Text(f"cluster {cluster}", style="bold"), screen(report, width), ""]
    return Group(*parts[:-1])


def header(report: Report, width: int = WIDTH) -> RenderableType:
    """Return the header: nodes, pods, use of CPU and memory, price."""
    requested = total([node.requested for node in report.nodes])
    allocatable = total([node.allocatable for node in report.nodes])
    length = max(5, min(40, width - 66))
    grid = Table.grid(padding=(0, 2))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    grid.add_row(
        Text(counted(len(report.nodes), "node"), style="bold"),
        Text(f"{requested.cpu_milli / 1000:g}/{allocatable.cpu_milli / 1000:g} cores"),
        Text(f"{fraction(requested.of(CPU), allocatable.of(CPU)):6.1%} cpu"),
        bar(requested.of(CPU), allocatable.of(CPU), length),
    )
    grid.add_row(
        price_text(report.price, per_month=True),
        Text(f"{requested.memory_bytes / GIB:.1f}/{allocatable.memory_bytes / GIB:.1f} GiB"),
        Text(f"{fraction(requested.of(MEMORY), allocatable.of(MEMORY)):6.1%} memory"),
        bar(requested.of(MEMORY), allocatable.of(MEMORY), length),
    )
    waiting = len(report.pending)
    pods = Text(counted(report.bound + waiting, "pod"), style="bold")
    pods.append(f" ({waiting} pending, ", style="bold red" if waiting else "not bold")
    pods.append(f"{report.running} running, {report.bound} bound)", style="not bold")
    return Group(grid, pods)


def node_table(nodes: Sequence[NodeReport], width: int = WIDTH) -> Table:
    """Return a table with one row for each node, by zone.

    If `width` is small, bars shrink and then disappear, and after that the node's name is shortened.
    """
    tables = (_node_table(nodes, *layout) for layout in _LAYOUTS)
    return next(
        (table for table in tables if _natural_width(table) <= width), _node_table(nodes, *_LAYOUTS[-1])
    )


def _natural_width(table: Table) -> int:
    anywhere = SafeConsole(width=10 * WIDTH)
    return Measurement.get(anywhere, anywhere.options, table).maximum


def _node_table(nodes: Sequence[NodeReport], length: int, padding: int) -> Table:
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
            gauge(node.requested.of(CPU), node.allocatable.of(CPU), length),
            gauge(node.requested.of(MEMORY), node.allocatable.of(MEMORY), length),
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
