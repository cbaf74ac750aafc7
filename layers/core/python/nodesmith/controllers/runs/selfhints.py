"""Hints that a concern sends to itself, so that it looks again after a while.

Lambda does not stop chains of such hints (`RecursiveLoop: Allow`), so this module bounds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.ports import Hints

AHEAD = timedelta(seconds=90)
"""How soon a look must be due, because of the time alone, for a concern to ask for it now: further off, a tick will.

A cluster that does not change has a tick then only if the moment is in what the concern says it is due (`tick_for`).
"""

_TICK = timedelta(minutes=1)


def wait_until(due: datetime | None, now: datetime) -> timedelta | None:
    """Return how long to wait for a look that is due; None where none is, or a tick comes in time to ask for it."""
    return due - now if due is not None and due - now <= AHEAD else None


def tick_for(due: datetime | None, now: datetime) -> datetime | None:
    """Return when a tick has to come for a look that is due: so early that the concern can ask for that very moment."""
    return None if due is None else max(now, due - _TICK)


@dataclass(slots=True)
class SelfHints:
    """The moments at which hints fall due that this process has sent to one concern; kept from run to run.

    A hint is sent only if none that is pending falls due as soon. So a message that arrives leads to one more at the
    most, and there are never more pending than there are different waits: a chain of hints does not branch.
    """

    pending: list[datetime] = field(default_factory=list)

    def send(self, hints: Hints, concern: Concern, hint: Hint, wait: timedelta, now: datetime) -> None:
        """Have the concern look again after `wait`, rounded up to whole seconds, one at least. Raises Transient."""
        seconds = max(1, ceil(wait.total_seconds()))
        due = now + timedelta(seconds=seconds)
        self.pending = [moment for moment in self.pending if moment > now]
        if any(moment <= due for moment in self.pending):
            return
        hints.send(concern, hint, seconds)
        self.pending.append(due)
