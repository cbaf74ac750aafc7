"""Line charts of the history, and the timeline of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor, log10

from nodesmith.model.karpenter.nodeclaims import ENDING, Phase
from nodesmith_cli.output.reporting.timelines import NodeSpan as Drawn
from nodesmith_cli.views.ui.archive import NodeClaimHistory

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_POINTS = 600
MOST_LIVES = 30
_ENDING_PHASES = tuple(str(phase) for phase in ENDING)


@dataclass(frozen=True, slots=True)
class Line:
    """A step line. `path` is SVG path data in a box of 1000 × 100, `ticks` are labels with heights in percent."""

    path: str
    area: str
    ticks: tuple[tuple[str, float], ...]
    least: float
    most: float


def line(points: Sequence[tuple[datetime, float]], form: str = "{:g}") -> Line | None:
    """Return the chart of values that hold until the next point, None for fewer than two points."""
    points = downsampled(points)
    if len(points) < 2:
        return None
    top = _ceiling(max(value for _, value in points))
    first, span = points[0][0], (points[-1][0] - points[0][0]).total_seconds() or 1.0
    placed = [(1000 * (at - first).total_seconds() / span, 100 - 100 * value / top) for at, value in points]
    path = f"M{placed[0][0]:.1f} {placed[0][1]:.2f}" + "".join(f"H{x:.1f}V{y:.2f}" for x, y in placed[1:])
    ticks = tuple((form.format(top * part), 100 - 100 * part) for part in (0, 0.5, 1))
    values = [value for _, value in points]
    return Line(path, f"{path}V100H0Z", ticks, min(values), max(values))


def downsampled(points: Sequence[tuple[datetime, float]]) -> list[tuple[datetime, float]]:
    """Return at most 600 points, with the first and the last."""
    if len(points) <= MOST_POINTS:
        return list(points)
    step = (len(points) - 1) / (MOST_POINTS - 1)
    return [points[round(number * step)] for number in range(MOST_POINTS)]


def _ceiling(value: float) -> float:
    """Return the smallest round number that is not below a value; 1 for nothing."""
    if value <= 0:
        return 1.0
    size = 10.0 ** floor(log10(value))
    return next((step * size for step in _STEPS if step * size >= value * 0.9999), 10 * size)


def drawn_histories(
    histories: Iterable[NodeClaimHistory], begins: datetime, ends: datetime, last_look: datetime
) -> list[Drawn]:
    """Return the nodes between two times for a timeline: those that have drained first, the latest at the top.

    A node that the last decision (at `last_look`) did not know had gone by then.
    """
    shown = [
        history
        for history in histories
        if history.steps[0][1] < ends and max(history.seen_at, _end(history)) >= begins
    ]
    shown.sort(key=lambda history: history.name)
    shown.sort(key=_sorted_by, reverse=True)
    return [_drawn(history, begins, last_look) for history in shown[:MOST_LIVES]]


def _end(history: NodeClaimHistory) -> datetime:
    return history.steps[-1][1]


def _sorted_by(history: NodeClaimHistory) -> tuple[bool, datetime]:
    ended = history.began(*_ENDING_PHASES)
    return ended is not None, ended or history.steps[0][1]


def _drawn(history: NodeClaimHistory, begins: datetime, last_look: datetime) -> Drawn:
    def seconds(at: datetime | None) -> float | None:
        return None if at is None else max(0.0, (at - begins).total_seconds())

    draining, is_gone = history.began(*_ENDING_PHASES, Phase.GIVEN_UP), history.seen_at < last_look
    ended = max(history.seen_at, _end(history)) if is_gone else None
    ready = history.began(Phase.INITIALIZED) or draining or ended or last_look
    kind = " ".join(filter(None, (history.capacity_type, history.instance_type, history.zone)))
    reason = f"; {history.cause}" if history.cause else ""
    return Drawn(
        history.node.partition(".")[0] or history.name,
        f"{kind or 'asked for'}, ${history.price_hourly_usd:.4f} an hour{reason}",
        seconds(history.steps[0][1]) or 0.0,
        seconds(ready) or 0.0,
        seconds(draining),
        seconds(ended),
    )
