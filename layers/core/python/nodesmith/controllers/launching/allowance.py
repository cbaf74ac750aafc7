"""The number of CreateFleet calls a run may make: a few at any time, and many only while it holds the cluster's lock.

A cluster that needs more than a few calls makes at most `MANY` within `LOCKED_FOR`, however many of its runs need them
at the same time. All such clusters of the region share one budget (`nodesmith.model.ec2.launches.CallBudget`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.model.functions.hints import Concern
from nodesmith.ports import Store

FEW = 16
"""Calls that a run may make without the lock, so that a few pods do not wait for a write to the ledger."""
MANY = 32
"""The most calls that a run may make while it holds the lock."""
LOCKED_FOR = timedelta(seconds=12)
"""How long the lock lasts. No run releases it earlier: it spreads calls over time, and need not keep runs apart."""


@dataclass(slots=True)
class Allowance:
    """The calls that one run may still make. It takes the lock when it first needs more than a few."""

    store: Store
    clock: Callable[[], datetime]
    left: int = FEW
    until: datetime | None = None
    """until when the run holds the lock, None if it does not"""
    _has_asked: bool = False

    def of(self, calls: int) -> int:
        """Return how many of `calls` may be made now, and count them as made. Raises Transient."""
        if calls > self.left and not self._has_asked:
            self._take_lock()
        granted = min(calls, self.left)
        self.left -= granted
        return granted

    def _take_lock(self) -> None:
        self._has_asked, now = True, self.clock()
        until = now + LOCKED_FOR
        if self.store.take_lock(Concern.PROVISIONING, now, until):
            made = FEW - self.left
            self.until, self.left = until, self.store.take_calls(MANY - made, now)
        else:
            self.left = 0
