"""The port of the forwarder's signs of life."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from nodesmith.model.functions.marks import Heartbeat


class Heartbeats(Protocol):
    """The forwarder's signs of life, of one cluster (DynamoDB). Every call may raise Transient, Rejected."""

    def beat(self, at: datetime, changed: datetime) -> None:
        """Write that the forwarder lives, and when the snapshot was taken that it last wrote because of a change."""

    def last(self) -> Heartbeat | None:
        """Read the newest, a second old, perhaps; None where there is none."""
