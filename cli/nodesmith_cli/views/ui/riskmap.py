"""The risk map: which pools of EC2 capacity failed in which hour, as decisions knew it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.model.ec2.launches import OfferingKey
from nodesmith_cli.views.ui.archive import Decision

HOURS = 24
MOST_POOLS = 40
_INTERRUPTED = 1.001
"""Losses that grow by this factor between two decisions come from an interruption; otherwise they only decay."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One pool in one hour: the longest run of refusals that a decision knew of, and interruptions seen."""

    begins: datetime
    refusals: int = 0
    interruptions: int = 0
    reason: str = ""

    @property
    def level(self) -> int:
        """How bad it was: 0 for no failure, up to 4."""
        return min(4, self.refusals + 2 * self.interruptions)


@dataclass(frozen=True, slots=True)
class Row:
    """A pool with a cell for each hour, and what its risk adds to its price now, in percent."""

    pool: OfferingKey
    cells: tuple[Cell, ...]

    @property
    def total(self) -> int:
        """The sum of its levels."""
        return sum(cell.level for cell in self.cells)


def risk_map(decisions: Sequence[Decision], now: datetime) -> list[Row]:
    """Return pools with failures in the last 24 hours, those with the most first."""
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    cells: dict[OfferingKey, dict[int, Cell]] = {}
    before: Decision | None = None
    for decision in decisions:
        hour = int((decision.at - first) // timedelta(hours=1))
        if 0 <= hour < HOURS:
            begins = first + timedelta(hours=hour)
            _add_refusals(decision, hour, begins, cells)
            for pool in _interrupted(before, decision):
                cell = cells.setdefault(pool, {}).get(hour) or Cell(begins)
                reason = cell.reason or "interrupted by EC2"
                cells[pool][hour] = Cell(begins, cell.refusals, cell.interruptions + 1, reason)
        before = decision
    rows = [_row(pool, cells[pool], first) for pool in sorted(cells)]
    return sorted(rows, key=lambda row: -row.total)[:MOST_POOLS]


def _add_refusals(
    decision: Decision, hour: int, begins: datetime, all_cells: dict[OfferingKey, dict[int, Cell]]
) -> None:
    for held in decision.held_back:
        if held.until > decision.at:
            cells = all_cells.setdefault(held.pool, {})
            cell = cells.get(hour) or Cell(begins)
            most = max(cell.refusals, held.failures)
            cells[hour] = Cell(begins, most, cell.interruptions, held.reason or cell.reason)


def _interrupted(before: Decision | None, after: Decision) -> Iterable[OfferingKey]:
    losses = before.losses if before is not None else after.losses
    return [
        pool for pool in sorted(after.losses) if after.losses[pool] > losses.get(pool, 0.0) * _INTERRUPTED
    ]


def _row(pool: OfferingKey, cells: dict[int, Cell], first: datetime) -> Row:
    return Row(pool, tuple(cells.get(hour) or Cell(first + timedelta(hours=hour)) for hour in range(HOURS)))
