"""A forwarder's heartbeats in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.errors import Transient
from nodesmith.model.functions import Heartbeat


@dataclass(slots=True)
class FakeHeartbeats:
    """All heartbeats written, in order. While `down`, every call fails."""

    beats: list[Heartbeat] = field(default_factory=list)
    down: bool = False

    def write_heartbeat(self, at: datetime, changed: datetime) -> None:
        self._check()
        self.beats.append(Heartbeat(at, changed))

    def last(self) -> Heartbeat | None:
        self._check()
        return self.beats[-1] if self.beats else None

    def _check(self) -> None:
        if self.down:
            raise Transient("the table is away")
