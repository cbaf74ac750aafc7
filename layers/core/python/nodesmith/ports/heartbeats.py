"""The port of the forwarder's heartbeats."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from nodesmith.model.functions.health import Heartbeat


class Heartbeats(Protocol):
    """The heartbeats of one cluster's forwarder (DynamoDB). Every call may raise Transient, Rejected."""

    def beat(self, at: datetime, changed: datetime) -> None:
        """Write a heartbeat. `changed` is when the last snapshot was taken that was written because of a change."""

    def last(self) -> Heartbeat | None:
        """Return the newest heartbeat, or None if there is none. It may be a second out of date."""
