"""The ports of the events of EC2 that are kept: for the cluster that acts on them, and for who keeps them.

Every call may raise Transient.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from nodesmith.model.ec2.notices import KeptEvent


class Notices(Protocol):
    """The events of EC2 that are kept for one cluster until what follows from them is done (DynamoDB)."""

    def pending(self) -> Sequence[KeptEvent]:
        """Read all of them, strongly consistent, by id. What holds no event is there too, and cannot be read as one."""

    def done(self, ids: Collection[str]) -> None:
        """Delete those with these ids; gone already is fine."""


class RegionNotices(Protocol):
    """The events of EC2 that are kept, for all clusters of a region."""

    def keep(self, cluster: str, id_: str, event: str, account: str) -> None:
        """Keep an event (JSON) of an account for a cluster, under its id: once, however often it comes."""
