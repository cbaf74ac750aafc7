"""What routing queries in a region, in memory: an instance's cluster, and which of our instances EC2 has marked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from tests import builders


@dataclass(frozen=True, slots=True)
class FakeRoutes:
    """The Routes of a region with one cluster, which has these claims, and its MarkedInstances."""

    claims: Callable[[], Iterable[NodeClaim]]
    marked: Callable[[], Collection[str]]

    def of_instance(self, instance_id: str) -> frozenset[str]:
        return _ours(any(claim.instance_id == instance_id for claim in self.claims()))

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        return _ours(any(claim.labels.get(RESERVATION_ID) == reservation_id for claim in self.claims()))

    def ids(self) -> Collection[str]:
        return self.marked()


def _ours(is_ours: bool) -> frozenset[str]:
    return frozenset({builders.CLUSTER} if is_ours else ())
