"""The ports of routing, which serves all clusters of a region. Every call may raise Transient."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Routes(Protocol):
    """Whose an instance is, for all clusters of a region."""

    def of_instance(self, instance_id: str) -> frozenset[str]:
        """Give the clusters with a claim that has this instance: one, or none."""

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        """Give the clusters with instances in this capacity reservation."""


class Post(Protocol):
    """The queues of the clusters of a region."""

    def deliver(self, cluster: str, bodies: Sequence[str]) -> Collection[int]:
        """Put messages into a cluster's queue of interruption; give the numbers of those that were not taken.

        Raises Rejected where the cluster has none.
        """
