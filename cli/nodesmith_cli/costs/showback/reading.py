"""The rows of a month, from the objects of months, days and hours, in the bucket or in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.costs.allocations import (
    DAY,
    DAYS,
    HOURS,
    MONTHS,
    MOVES,
    Allocation,
    MoveOutcome,
    allocations_key,
    allocations_prefix,
    days_of,
    hour_of,
    read_rows,
)
from nodesmith_formats.decisions.records import Blobs

_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])", re.ASCII)
_MONTH_LENGTH, _SUFFIX = len("2026-11"), ".jsonl.gz"


def read_month(text: str, now: datetime) -> datetime:
    """Return the beginning of a month, by default the current one. Raises Rejected for a future or invalid month."""
    this = hour_of(now).replace(day=1, hour=0)
    if not text:
        return this
    if not _MONTH.fullmatch(text):
        raise Rejected(f"--month {text[:40]!r}: expected a month such as {this:%Y-%m}")
    month = datetime(int(text[:4]), int(text[5:]), 1, tzinfo=UTC)
    if month > this:
        raise Rejected(f"--month {text}: is in the future; this month is {this:%Y-%m}")
    return month


@dataclass(slots=True)
class BookedCosts:
    """The booked costs of a cluster. `faults` are sentences about objects that are missing or damaged."""

    blobs: Blobs
    cluster: str
    faults: list[str] = field(default_factory=list)

    def month(self, month: datetime, now: datetime) -> list[Allocation]:
        """Return the rows of a month: of the whole month, or of its days and hours as far as they are booked.

        Raises Rejected if there are none.
        """
        rows = self._of(MONTHS, f"{month:%Y-%m}")
        if rows is None:
            rows = [row for day in days_of(month) if day <= now for row in self._day(day, now)]
        if not rows:
            raise Rejected(self._nothing(month))
        return rows

    def moves(self, month: datetime) -> list[MoveOutcome]:
        """Return the moves of a month, oldest first, each as it was last booked."""
        move_outcomes: dict[str, MoveOutcome] = {}
        later = month + 32 * DAY  # a move of the last day is settled in the next month
        days = [*days_of(month), later.replace(day=1)]
        for day in days:
            for key in self._keys(MOVES, f"{day:%Y-%m-%d}/"):
                data = self.blobs.get(key)
                rows, faults = read_rows(data or b"", key, MoveOutcome.from_row)
                self.faults += faults
                for row in rows:
                    move_outcomes[row.id] = (
                        row if row.settled_at or row.id not in move_outcomes else move_outcomes[row.id]
                    )
        of_month = (move for move in move_outcomes.values() if f"{move.moved_at:%Y-%m}" == f"{month:%Y-%m}")
        return sorted(of_month, key=lambda move: (move.moved_at, move.id))

    def _day(self, day: datetime, now: datetime) -> list[Allocation]:
        rows = self._of(DAYS, f"{day:%Y-%m-%d}")
        if rows is not None:
            return rows
        allocations: list[Allocation] = []
        keys = self._keys(HOURS, f"{day:%Y-%m-%d}/")
        for key in keys:
            allocations += self._read(key, self.blobs.get(key) or b"")
        if keys and day + DAY <= now - DAY:
            self.faults.append(
                f"{day:%Y-%m-%d}: the object of the day is missing; {len(keys)} hours are used"
            )
        return allocations

    def _of(self, kind: str, window: str) -> list[Allocation] | None:
        key = allocations_key(kind, self.cluster, window)
        data = self.blobs.get(key)
        return None if data is None else self._read(key, data)

    def _read(self, key: str, data: bytes) -> list[Allocation]:
        rows, faults = read_rows(data, key, Allocation.from_row)
        self.faults += faults
        return rows

    def _keys(self, kind: str, window: str) -> list[str]:
        prefix = allocations_prefix(kind, self.cluster) + window
        return sorted(key for key in self.blobs.keys(prefix) if key.endswith(_SUFFIX))

    def _nothing(self, month: datetime) -> str:
        booked = sorted(set(self._months()))
        message = f"cluster {self.cluster!r} has no booked costs in {month:%Y-%m}"
        if booked:
            return f"{message}; there are some in {', '.join(booked)}{did_you_mean(f'{month:%Y-%m}', booked)}"
        advice = "check the names of cluster and bucket. Each hour is booked once it is over"
        return f"{message} or any other month; {advice}"

    def _months(self) -> Iterator[str]:
        for kind in (MONTHS, DAYS, HOURS):
            prefix = allocations_prefix(kind, self.cluster)
            yield from (key.removeprefix(prefix)[:_MONTH_LENGTH] for key in self.blobs.keys(prefix))
