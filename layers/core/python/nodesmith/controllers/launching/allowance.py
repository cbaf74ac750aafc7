"""How many CreateFleet calls a run may make: a few at any time, many only while its cluster has a turn for them.

EC2 counts these calls for the whole account, whose bucket holds 50 and gains 5 a second. A cluster that needs more than
a few calls makes at most `MANY` in `LOCKED_FOR`, however many of its runs ask at once, which leaves half to all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.model.functions.hints import Concern
from nodesmith.ports import Store

FEW = 16
"""Calls of one run that needs no turn: no write to the ledger keeps a few pods waiting."""
MANY = 32
"""Calls of one run that has the turn."""
LOCKED_FOR = timedelta(seconds=12)
"""How long a turn lasts. Nobody ends it earlier: it spreads calls over time, and two runs do not hinder each other."""


@dataclass(slots=True)
class Allowance:
    """What one run still may ask for. It takes the turn when it first needs more than a few calls."""

    store: Store
    clock: Callable[[], datetime]
    left: int = FEW
    until: datetime | None = None
    """until when the run has the turn, None where it has none"""
    _has_asked: bool = False

    def of(self, calls: int) -> int:
        """Return how many of so many calls may be made now, and count them as made. Raises Transient."""
        if calls > self.left and not self._has_asked:
            self._take_lock()
        granted = min(calls, self.left)
        self.left -= granted
        return granted

    def _take_lock(self) -> None:
        self._has_asked, now = True, self.clock()
        until = now + LOCKED_FOR
        if self.store.take_lock(Concern.PROVISIONING, now, until):
            self.until, self.left = until, self.left + MANY - FEW
        else:
            self.left = 0
