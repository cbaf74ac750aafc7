"""An event bus in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from nodesmith.decisions.reporting.notifications import Notification
from nodesmith.errors import Transient


@dataclass(slots=True)
class FakeBus:
    """Notifications in the order of their arrival. While `down`, calls fail; it accepts none of `refused` (ids).

    `dies_after` is the number of notifications after which the caller's process ends.
    """

    sent: list[Notification] = field(default_factory=list)
    down: bool = False
    refused: Collection[str] = ()
    dies_after: int | None = None
    calls: int = 0

    def put(self, notifications: Sequence[Notification]) -> Iterator[str]:
        self.calls += 1
        for each in notifications:
            if self.down:
                raise Transient("events:PutEvents: the bus is down", "ServiceUnavailable")
            if each.id in self.refused:
                continue
            self.sent.append(each)
            if self.dies_after is not None and len(self.sent) >= self.dies_after:
                raise SystemExit
            yield each.id

    def kinds(self) -> list[str]:
        """Return the kinds of what was sent, in order."""
        return [each.kind for each in self.sent]
