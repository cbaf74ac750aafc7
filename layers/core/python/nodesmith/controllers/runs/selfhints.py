"""Hints that a concern sends to itself in order to look again after a delay.

Lambda does not stop chains of such hints (`RecursiveLoop: Allow`), so this module bounds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.ports import Hints

AHEAD = timedelta(seconds=90)
"""How soon the next look must be due for a concern to request it now. For later ones, a tick comes first.

A cluster that does not change gets that tick only if the concern reports the moment as due (`tick_for`).
"""

_TICK = timedelta(minutes=1)


def wait_until(due: datetime | None, now: datetime) -> timedelta | None:
    """Return the wait until the look at `due`; None if there is none, or if a tick comes in time to request it."""
    return due - now if due is not None and due - now <= AHEAD else None


def tick_for(due: datetime | None, now: datetime) -> datetime | None:
    """Return when a tick must come for a look at `due`: early enough for the concern to request that exact moment."""
    return None if due is None else max(now, due - _TICK)


@dataclass(slots=True)
class SelfHints:
    """The due times of the hints that this process has sent to one concern; kept from run to run.

    A hint is sent only if no pending hint is due as soon. Each message that arrives therefore causes at most one more,
    and there are never more pending hints than different waits: a chain of hints does not branch.
    """

    pending: list[datetime] = field(default_factory=list)

    def send(self, hints: Hints, concern: Concern, hint: Hint, wait: timedelta, now: datetime) -> None:
        """Wake the concern after `wait`, rounded up to whole seconds, at least one. Raises Transient."""
        seconds = max(1, ceil(wait.total_seconds()))
        due = now + timedelta(seconds=seconds)
        self.pending = [moment for moment in self.pending if moment > now]
        if any(moment <= due for moment in self.pending):
            return
        hints.send(concern, hint, seconds)
        self.pending.append(due)
