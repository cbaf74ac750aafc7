"""The ports of stored EC2 events: for the cluster that handles them, and for routing, which stores them.

Every call may raise Transient.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from nodesmith.model.ec2.notices import KeptEvent


class Notices(Protocol):
    """The EC2 events that are kept for one cluster until they have been handled (DynamoDB)."""

    def pending(self) -> Sequence[KeptEvent]:
        """Return all events, strongly consistent, by id, including items whose event cannot be read."""

    def done(self, ids: Collection[str]) -> None:
        """Delete the events with these ids, unless they are gone."""


class RegionNotices(Protocol):
    """The stored EC2 events of all clusters of a region."""

    def keep(self, cluster: str, id_: str, event: str, account: str) -> None:
        """Store an event (JSON) of an account for a cluster under its id. Repeated deliveries are stored once."""
