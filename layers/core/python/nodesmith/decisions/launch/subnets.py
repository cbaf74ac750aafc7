"""Which subnet of a zone new nodes use: the one with the most free addresses after pending launches.

As in Karpenter, a node is expected to take one address for each pod that fits on it, since the VPC CNI assigns them. In
an IPv6 cluster, whose pods have no IPv4 addresses, a node takes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, Subnet


def usable(status: NodeClassStatus, ledger: Ledger, now: datetime) -> NodeClassStatus:
    """Return the status with the subnets that launches can use now.

    Subnets in back-off, and those of zones that the cluster is shifted away from, are left out. If a zone has several
    subnets, the addresses that claims have taken since the subnets were resolved, or may still take, are subtracted.
    """
    held = {id_ for id_, backoff in ledger.subnet_backoffs.items() if backoff.holds(now)}
    away = ledger.shifted(now)
    left = tuple(s for s in status.subnets if s.id not in held and s.zone not in away)
    if len({subnet.zone for subnet in left}) < len(left):
        taken = _taken(status, ledger)
        left = tuple(
            replace(subnet, free_ips=subnet.free_ips - taken[subnet.id]) if subnet.id in taken else subnet
            for subnet in left
        )
    return status if left == status.subnets else replace(status, subnets=left)


def addresses(pods: int, cluster: ClusterInfo | None) -> int:
    """Return how many addresses of its subnet a node with room for this many pods is expected to take."""
    return 1 if cluster is not None and cluster.ip_family == "ipv6" else pods


def subnet_by_zone(subnets: Iterable[Subnet], taken: Mapping[str, int] | None = None) -> dict[str, Subnet]:
    """Return, for each zone, the subnet with the most free addresses, less those `taken`; ties are broken by id."""
    used = taken or {}
    chosen: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda s: (used.get(s.id, 0) - s.free_ips, s.id)):
        chosen.setdefault(subnet.zone, subnet)
    return chosen


def _taken(status: NodeClassStatus, ledger: Ledger) -> Counter[str]:
    taken: Counter[str] = Counter()
    for claim in ledger.claims:
        if claim.launched_at and claim.launched_at > status.resolved_at:
            taken[claim.subnet_id] += addresses(claim.capacity.pods, ledger.cluster)
        elif claim.phase is Phase.PENDING and claim.launch.get("overrides"):
            rows = LaunchRequest.from_item(claim.name, claim.launch).overrides
            number = addresses(claim.capacity.pods, ledger.cluster)
            taken.update(dict.fromkeys({row.subnet_id for row in rows}, number))
    return taken
