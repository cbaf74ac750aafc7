"""The text of a view, line by line and independent of any terminal library: segments of text with a style each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from rich.cells import cell_len, set_cell_size

from nodesmith_cli.views.top.rows import (
    Gauge,
    NodeRow,
    PodRow,
    State,
    View,
    age_seconds,
    duration,
    monthly,
    seconds_left,
    totals,
)
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import counted

Line = list[tuple[str, str]]
"""Segments of text, each with the name of a style; empty for the usual one."""
_STATE_WIDTH = 14
"""Cells that the last column has before names grow."""
_FULL, _EMPTY, _MARK = "█", "░", "▏"
_STYLES = {
    State.INTERRUPTED: "bad",
    State.DRAINING: "warn",
    State.DISRUPTING: "warn",
    State.LAUNCHING: "good",
    State.JOINING: "good",
    State.NOT_READY: "bad",
    State.CORDONED: "dim",
    State.READY: "",
    State.STOPPED: "dim",
}
_SOLD = {"on-demand": "od", "spot": "spot", "reserved": "res"}
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, its width in cells, and the segments of a row. `min_width` is that of the screen."""

    heading: str
    width: int
    cell: Callable[[NodeRow, datetime], Line]
    min_width: int = 0
    is_right: bool = False


def bar(gauge: Gauge, width: int) -> Line:
    """Return a bar of the requested share, its percentage, and a mark at the used share if that is known."""
    if not gauge.allocatable:
        return [(" " * (width + 5), "")]
    full = round(width * min(1.0, gauge.share))
    cells = list(_FULL * full + _EMPTY * (width - full))
    if gauge.used is not None and width:
        cells[min(width - 1, int(width * gauge.used / gauge.allocatable))] = _MARK
    return [("".join(cells), "bar"), (f" {min(gauge.share, 9.99):4.0%}", "")]


def _price(row: NodeRow) -> str:
    if row.price is None:
        return "?"
    return f"{estimate_mark(row.price.estimated)}{row.price.hourly_usd:.3f}"


def _count(gauge: Gauge) -> str:
    return f"{gauge.requested}/{gauge.allocatable}" if gauge.allocatable else ""


def _state(row: NodeRow, now: datetime) -> str:
    seconds = seconds_left(row, now)
    return row.state if seconds is None else f"{row.state} {duration(seconds)} left"


def _text(of: Callable[[NodeRow], str]) -> Callable[[NodeRow, datetime], Line]:
    return lambda row, _: [(of(row), "")]


COLUMNS = (
    Column("NODE", 16, _text(lambda row: row.name)),
    Column("GROUP", 14, _text(lambda row: row.group), 120),
    Column("TYPE", 13, _text(lambda row: row.instance_type)),
    Column("ZONE", 10, _text(lambda row: row.zone), 105),
    Column("SOLD", 4, _text(lambda row: _SOLD.get(row.capacity_type, row.capacity_type))),
    Column("CPU", 9, lambda row, _: bar(row.cpu, 4)),
    Column("MEMORY", 9, lambda row, _: bar(row.memory, 4)),
    Column("GPU", 5, _text(lambda row: _count(row.gpus)), 130),
    Column("PODS", 7, _text(lambda row: _count(row.pods)), 92, is_right=True),
    Column("$/H", 6, _text(_price), is_right=True),
    Column("AGE", 4, lambda row, now: [(duration(age_seconds(row, now)), "")], is_right=True),
    Column("STATE", 0, lambda row, now: [(_state(row, now), _STYLES[row.state]), (f" {row.detail}", "dim")]),
)
"""The last column takes the rest of the line."""


def columns(width: int) -> list[Column]:
    """Return the columns that fit a screen of this width; on a wide one, names have more room."""
    return [column for column in COLUMNS if width >= column.min_width]


def _padded(line: Line, column: Column, width: int) -> Line:
    text = "".join(part for part, _ in line)
    if column.is_right and len(line) == 1:
        return [(set_cell_size(text.rjust(width), width), line[0][1])]
    segments: Line = []
    remaining = width
    for part, style in line:
        cut = set_cell_size(part, min(cell_len(part), remaining))
        segments.append((cut, style))
        remaining -= cell_len(cut)
    return [*segments, (" " * remaining, "")] if remaining else segments


def _widths(width: int) -> Iterator[tuple[Column, int]]:
    shown_columns = columns(width)
    fixed = sum(column.width + 1 for column in shown_columns)
    spare = max(0, width - fixed - _STATE_WIDTH)
    for column in shown_columns:
        if column.heading == "STATE":
            continue
        grown = min(spare, 28) if column.heading == "NODE" else 0
        yield column, column.width + grown


def heading(width: int, order: str, *, is_reversed: bool) -> Line:
    """Return the headings of the columns."""
    line: Line = []
    for column, size in _widths(width):
        line += [*_padded([(column.heading, "dim")], column, size), (" ", "")]
    mark = " reversed" if is_reversed else ""
    return _cut([*line, (f"STATE (by {order}{mark})", "dim")], width)


def node_line(row: NodeRow, width: int, now: datetime) -> Line:
    """Return a node's line, at most `width` cells wide."""
    line: Line = []
    for column, size in _widths(width):
        line += [*_padded(column.cell(row, now), column, size), (" ", "")]
    return _cut([*line, *COLUMNS[-1].cell(row, now)], width)


def pod_line(row: PodRow, width: int) -> Line:
    """Return the line of a pod: what it requests and, if it is pending, why."""
    requests = f"{row.cpu_milli / 1000:g} cpu {row.memory_bytes / _GIB:.1f}Gi"
    name = max(20, min(50, width // 2 - 12))
    line: Line = [
        (set_cell_size(row.key, name), ""),
        (f" {requests:>16} ", "dim"),
        (f"{duration(row.age_seconds):>4} ", ""),
        (row.phase, "warn" if row.phase in ("Pending", "Terminating") else "good"),
        (f" {row.reason}" if row.reason else "", "dim"),
    ]
    return _cut(line, width)


def header(view: View, width: int) -> list[Line]:
    """Return the lines above the list: counts, money, use, and a pause if there is one."""
    states = ", ".join(f"{count} {name}" for name, count in totals(view.nodes).items() if name != State.READY)
    nodes = counted(len(view.nodes), "node") + (f" ({states})" if states else "")
    pods = counted(view.pods, "pod") + (f" ({len(view.pending)} pending)" if view.pending else "")
    stale = "" if view.is_current else "  NOT UP TO DATE"
    lines: list[Line] = [
        [
            (view.context or "cluster", "bold"),
            (f"  {nodes}  {pods}  {view.at:%H:%M:%S} UTC", ""),
            (stale, "bad"),
        ],
        [*_money(view)],
        [*_use("cpu", view.cpu, f"{view.cpu.allocatable / 1000:,.0f}"), ("   ", "")],
    ]
    lines[-1] += _use("memory", view.memory, f"{view.memory.allocatable / _GIB:,.0f} GiB")
    if view.pause:
        lines.append([(view.pause, "warn")])
    return [_cut(line, width) for line in lines]


def _use(name: str, gauge: Gauge, room: str) -> Line:
    return [(f"{name} ", "dim"), *bar(gauge, 12), (f" of {room}", "dim")]


def _money(view: View) -> Iterator[tuple[str, str]]:
    mark = estimate_mark(view.is_estimated)
    yield f"{mark}${view.hourly_usd:,.2f}/hour  {mark}{monthly(view.hourly_usd)}/month", "good"
    if view.unpriced:
        yield f"  ({view.unpriced} unpriced)", "dim"
    if view.prospect is None:
        yield "  lower bound: not known yet", "dim"
        return
    prospect = view.prospect
    saved = 1 - prospect.reachable_hourly_usd / view.hourly_usd if view.hourly_usd else 0.0
    yield f"  lower bound ${prospect.bound_hourly_usd:,.2f}", ""
    if prospect.moves and saved > 0.005:
        yield f"  {counted(prospect.moves, 'move')} would save {saved:.0%}", "warn"


def below(view: View, width: int, most: int) -> list[Line]:
    """Return the lines below the list: moves, pending pods, budget windows and notes, `most` lines of each kind."""
    lines: list[Line] = [
        [(f"{_state(row, view.at)} ", _STYLES[row.state]), (row.name, ""), (f"  {row.detail}", "dim")]
        for row in islice(view.moving, most)
    ]
    lines += _more(len(view.moving), most, "more node")
    lines += [
        [("pending ", "warn"), (f"{pod.key} {duration(pod.age_seconds)}", ""), (f"  {pod.reason}", "dim")]
        for pod in islice(view.pending, most)
    ]
    lines += _more(len(view.pending), most, "more pending pod")
    lines += [[(text, "dim")] for text in view.windows[:most]]
    lines += [[(note, "bad")] for note in view.notes[:most]]
    return [_cut(line, width) for line in lines]


def _more(count: int, most: int, noun: str) -> list[Line]:
    return [[(f"and {counted(count - most, noun)}", "dim")]] if count > most else []


def _cut(line: Sequence[tuple[str, str]], width: int) -> Line:
    """Return a line cut to the width, with an ellipsis if anything was cut."""
    if sum(cell_len(text) for text, _ in line) <= width:
        return [segment for segment in line if segment[0]]
    segments: Line = []
    remaining = max(0, width - 1)
    for text, style in line:
        part = set_cell_size(text, min(remaining, cell_len(text)))
        segments.append((part, style))
        remaining -= cell_len(part)
        if remaining <= 0:
            break
    return [*segments, ("…", "dim")]
