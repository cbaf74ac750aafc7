"""Batching: news is told when it has been quiet for a moment, and in any case before long.

As Karpenter batches pods: a window closes one second after the last new thing in it, ten seconds after the first at the
latest. A thing that is in the window already does not hold it open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from nodesmith.model.events import Concern

Topic: TypeAlias = Concern | None
"""Whom the news is for; None for news that only has to be in the snapshot."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a window stays open without anything new, and how long at all."""

    idle: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(seconds=10)


@dataclass(slots=True)
class _Window:
    opened_at: datetime
    newest_at: datetime
    keys: set[str] = field(default_factory=set)


class Windows:
    """The open windows by topic."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._open: dict[Topic, _Window] = {}

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
        """Say when the first window closes, None when none is open."""
        return min(map(self._due_at, self._open.values()), default=None)

    def take(self, now: datetime) -> Mapping[Topic, int]:
        """Close the windows that are due; gives how many things each held."""
        due = {topic: window for topic, window in self._open.items() if self._due_at(window) <= now}
        for topic in due:
            del self._open[topic]
        return {topic: len(window.keys) for topic, window in due.items()}

    def _due_at(self, window: _Window) -> datetime:
        return min(window.newest_at + self._pace.idle, window.opened_at + self._pace.longest)
