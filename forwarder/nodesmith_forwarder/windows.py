"""Batching: changes are delivered after a short pause without new ones, and at the latest after a maximum time.

As Karpenter batches pods, a window closes one second after the last new item in it, and at the latest ten seconds after
the first. An item that is already in the window does not hold it open. Drains have a faster pace, because the end of
each pod may let the drain proceed. So do new nodes, because each is useful only once lifecycle has seen it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from nodesmith.model.functions import Concern

Topic: TypeAlias = Concern | None
"""The concern that a change wakes; None for a change that only needs to be in the snapshot."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a window stays open without anything new, and how long in total."""

    idle: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(seconds=10)


BRISK = {
    Concern.TERMINATION: Pace(timedelta(seconds=0.2), timedelta(seconds=0.5)),
    Concern.LIFECYCLE: Pace(timedelta(seconds=1), timedelta(seconds=2)),
}
"""A drain under tight budgets takes many rounds, and each includes this delay.

While many nodes join or leave, changes never pause for a second, and pods wait for each new node.
"""
HASTE = Pace(timedelta(seconds=0.2), timedelta(seconds=1))
"""The pace for workloads that have grown. Their pods are created one by one and would hold the window open.

Workloads that grow together are planned together. Such windows close at most once a second.
"""
APART = {Concern.DISRUPTION: timedelta(seconds=5)}
"""The minimum time from the end of a topic's window to the end of its next one.

Where pods are created and deleted all the time, it is useless to look for empty nodes every second.
"""


@dataclass(slots=True)
class _Window:
    opened_at: datetime
    newest_at: datetime
    keys: set[str] = field(default_factory=set)
    shortened_at: tuple[datetime, datetime] | None = None
    """When its end was first and last brought forward."""


class Windows:
    """The open windows by topic; topics in BRISK wait at most that long, topics in APART at least that long."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._open: dict[Topic, _Window] = {}
        self._closed_at: dict[Topic, datetime] = {}

    def note(self, topic: Topic, key: str, now: datetime) -> bool:
        """Put a change of `key` into its topic's window; return True if that opens a window."""
        window = self._open.get(topic)
        if window is None:
            self._open[topic] = _Window(now, now, {key})
            return True
        if key not in window.keys:
            window.keys.add(key)
            window.newest_at = now
        return False

    def shorten(self, topic: Topic, now: datetime) -> None:
        """Let a topic's window close early, at the pace of HASTE: the pods that it announces do not exist yet."""
        window = self._open.setdefault(topic, _Window(now, now))
        window.shortened_at = (window.shortened_at[0] if window.shortened_at else now, now)

    def next_due(self) -> datetime | None:
        """Return when the first window closes, or None if none is open."""
        return min((self._due_at(*item) for item in self._open.items()), default=None)

    def take(self, now: datetime) -> Mapping[Topic, int]:
        """Close the windows that are due, and the window of topic None; return how many items each held.

        The caller writes a snapshot, which also delivers the changes of topic None.
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
        if window.shortened_at is not None:
            first, latest = window.shortened_at
            shortened = min(latest + HASTE.idle, first + HASTE.longest)
            due = min(due, shortened if last is None else max(shortened, last + HASTE.longest))
        return max(due, last + APART[topic]) if topic in APART and last is not None else due
