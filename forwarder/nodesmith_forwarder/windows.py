"""Batching: news is told when it has been quiet for a moment, and in any case before long.

As Karpenter batches pods: a window closes one second after the last new thing in it, ten seconds after the first at the
latest. A thing that is in the window already does not hold it open. A drain has a brisker pace: the end of each pod
may let the next thing happen. So have nodes that come: each is of use only when it has been looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from nodesmith.model.functions.hints import Concern

Topic: TypeAlias = Concern | None
"""Whom the news is for; None for news that only has to be in the snapshot."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a window stays open without anything new, and how long at all."""

    idle: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(seconds=10)


BRISK = {
    Concern.TERMINATION: Pace(timedelta(seconds=0.2), timedelta(seconds=0.5)),
    Concern.LIFECYCLE: Pace(timedelta(seconds=1), timedelta(seconds=2)),
}
"""A drain under tight budgets takes as many rounds as they ask for, and this is a part of each.

Among many nodes that come or go there is no quiet second for long, and pods wait for each one that has come.
"""
APART = {Concern.DISRUPTION: timedelta(seconds=5)}
"""How long after a window was closed the next one is, at the least: where pods come and go all the time it is no use to
look for nodes without them each second.
"""


@dataclass(slots=True)
class _Window:
    opened_at: datetime
    newest_at: datetime
    keys: set[str] = field(default_factory=set)


class Windows:
    """The open windows by topic; those in BRISK never wait longer than it says, those in APART never less."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._open: dict[Topic, _Window] = {}
        self._closed_at: dict[Topic, datetime] = {}

    def note(self, topic: Topic, key: str, now: datetime) -> bool:
        """Put news of `key` into its topic's window; True when that opens one."""
        window = self._open.get(topic)
        if window is None:
            self._open[topic] = _Window(now, now, {key})
            return True
        if key not in window.keys:
            window.keys.add(key)
            window.newest_at = now
        return False

    def next_due(self) -> datetime | None:
        """Return when the first window closes, None when none is open."""
        return min((self._due_at(*each) for each in self._open.items()), default=None)

    def take(self, now: datetime) -> Mapping[Topic, int]:
        """Close the windows that are due, and that of news for nobody; gives how many things each held.

        Whoever takes them writes a snapshot, and then that news has been told as well.
        """
        due = {t: window for t, window in self._open.items() if t is None or self._due_at(t, window) <= now}
        for topic in due:
            del self._open[topic]
            self._closed_at[topic] = now
        return {topic: len(window.keys) for topic, window in due.items()}

    def _due_at(self, topic: Topic, window: _Window) -> datetime:
        paces = [self._pace, *([BRISK[topic]] if topic in BRISK else [])]
        idle, longest = min(pace.idle for pace in paces), min(pace.longest for pace in paces)
        due = min(window.newest_at + idle, window.opened_at + longest)
        last = self._closed_at.get(topic)
        return max(due, last + APART[topic]) if topic in APART and last is not None else due
