"""What routing queries in a region, in memory: an instance's cluster, and which of our instances EC2 has marked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from tests import builders


@dataclass(frozen=True, slots=True)
class FakeRoutes:
    """The Routes of a region, and its MarkedInstances: one cluster has these claims, and others these instances."""

    claims: Callable[[], Iterable[NodeClaim]]
    marked: Callable[[], Collection[str]]
    others: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The ids of instances by cluster."""

    def of_instance(self, instance_id: str) -> frozenset[str]:
        others = frozenset(name for name, ids in self.others.items() if instance_id in ids)
        return others | _ours(any(claim.instance_id == instance_id for claim in self.claims()))

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        return _ours(any(claim.labels.get(RESERVATION_ID) == reservation_id for claim in self.claims()))

    def ids(self) -> Collection[str]:
        return self.marked()


def _ours(is_ours: bool) -> frozenset[str]:
    return frozenset({builders.CLUSTER} if is_ours else ())
