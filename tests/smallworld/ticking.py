"""A world with the ticks that dispatch decides on, from what has changed and from when runs report to be due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.dynamodb.healthrecords import WRITE_EVERY
from nodesmith.decisions.dispatch import due_concerns
from nodesmith.model.functions import AT_ONCE, TICK_MINUTES, Concern, Heartbeat, Marks, Record
from nodesmith.model.nodeclasses.status import NodeClassStatus
from tests import builders
from tests.smallworld.world import Boundaries, World

_STALE = timedelta(seconds=90)
_LEAVE_NO_MARK = frozenset(
    {"load", "save_shares", "learned", "learn", "known", "take_lock", "release_lock", "save_nodeclass"}
)


@dataclass(slots=True)
class Noting(Boundaries):
    """Boundaries that record whether the ledger has been written."""

    has_written: bool = False

    def cross(self, where: str) -> None:
        """Pass one moment."""
        self.note(where)
        Boundaries.cross(self, where)

    def note(self, where: str) -> None:
        """Record a write."""
        when, _, call = where.partition(" ")
        port, _, method = call.partition(".")
        if (when, port) == ("before", "FakeStore") and method not in _LEAVE_NO_MARK:
            self.has_written = True


class TickedWorld(World):
    """A world that keeps the marks and records that dispatch reads. Only the `living` concerns run in it.

    `said` is when a concern's last run reported to be due; a concern that is missing from it has not reported, and
    counts as due at once. Concerns that do not live have work only when dispatch wakes them.
    """

    def __init__(
        self, pods: Mapping[str, Any], living: Collection[Concern], *, noting: Noting, **how: Any
    ) -> None:
        self._noting, self.living = noting, frozenset(living)
        super().__init__(pods, boundaries=noting, **how)
        self.said: dict[Concern, datetime | None] = {}
        self.changed_at, self.ledger_changed_at = self.now, self.now
        self.records = {
            concern: Record(builders.CLUSTER, concern, self.now)
            for concern in TICK_MINUTES.keys() - self.living
        }
        self.ticks: Counter[Concern] = Counter()
        """How often dispatch has woken each concern."""
        self.cold: Counter[Concern] = Counter()
        """How often a concern had no process left, because it had not run for some time."""
        self.records_written = self.ledgers_marked = 0
        self._ran_at: dict[Concern, datetime] = {}
        self._recorded_at: dict[Concern, datetime] = {}

    def forget_counts(self) -> None:
        """Reset the counters."""
        self.ticks.clear()
        self.cold.clear()
        self.records_written = self.ledgers_marked = 0

    def due(self, at: datetime) -> set[Concern]:
        """Return the living concerns that dispatch wakes at this minute, and count all that it wakes."""
        marks = Marks(Heartbeat(at, self.changed_at), self.ledger_changed_at)
        woken = due_concerns(builders.CLUSTER, marks, list(self.records.values()), _STALE, at)
        self.ticks.update(woken)
        for concern in woken:
            if concern not in self.living:
                self._note_process(concern, at)
        return set(woken) & self.living

    def next_due(self) -> list[datetime]:
        """Return the minutes at which time alone makes a concern due, as far as runs have reported."""
        moments = [record.due for record in self.records.values() if record.due is not None]
        minutes = (-((builders.NOW - moment) // timedelta(minutes=1)) for moment in moments)
        return [at for m in minutes if (at := builders.NOW + timedelta(minutes=m)) > self.now]

    def run(self, concern: Concern) -> None:
        """Invoke a function once, and record what it reports."""
        failed_before = len(self._again) + len(self.incoming)
        self.said.pop(concern, None)
        self._noting.has_written, known = False, dict(self.store.nodeclasses)
        super().run(concern)
        self.said[concern] = self.dues[concern]
        if self._noting.has_written or self._is_resolved_otherwise(known):
            self.ledger_changed_at = self.now
            self.ledgers_marked += 1
        self.note(concern, self.now, succeeded=len(self._again) + len(self.incoming) <= failed_before)

    def note(self, concern: Concern, at: datetime, *, succeeded: bool = True) -> None:
        """Record a run, and count the writes for it."""
        self._note_process(concern, at)
        known = self.records.get(concern, Record(builders.CLUSTER, concern))
        record = known.after(succeeded, {}, at, self.said.get(concern, AT_ONCE))
        written_at = self._recorded_at.get(concern)
        moved = known.due != record.due and not (known.is_due(at) and record.is_due(at))
        if written_at is None or moved or at - written_at >= WRITE_EVERY:
            self.records_written += 1
            self._recorded_at[concern] = at
        self.records[concern] = record

    def _is_resolved_otherwise(self, known: Mapping[str, NodeClassStatus]) -> bool:
        """Return whether EC2NodeClasses resolve to something else; a repeated resolution is no change."""
        return not all(
            status is known.get(name) or status.says_the_same_as(known.get(name))
            for name, status in self.store.nodeclasses.items()
        )

    def is_warm(self, concern: Concern) -> bool:
        """Return whether a process of a concern is assumed to still exist."""
        ran_at = self._ran_at.get(concern)
        return ran_at is not None and self.now - ran_at < KEPT_WARM

    def _note_process(self, concern: Concern, at: datetime) -> None:
        ran_at = self._ran_at.get(concern)
        self.cold[concern] += ran_at is None or at - ran_at >= KEPT_WARM
        self._ran_at[concern] = at


KEPT_WARM = timedelta(minutes=10)
"""How long Lambda is assumed to keep an idle process: it is undocumented, and 5 to 15 minutes are observed."""
