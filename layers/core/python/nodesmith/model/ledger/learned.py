"""What nodes really offer, learned from those that have joined, for all clusters of an account in a region.

How much memory a hypervisor and an image keep for themselves is told by nobody before a node runs; it depends on the
instance type and the image. What of it the kubelet reserves depends on the EC2NodeClass as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Resources
from nodesmith.model.hashes.statichashes import hash_in_cluster
from nodesmith.model.karpenter.nodeclaims import NodeClaim

_RESERVED = (CPU, MEMORY, EPHEMERAL_STORAGE)
_MOST_NODECLASSES = 16
_LEAST, _MOST = 0.8, 1.1
"""What a node may show of the memory that was expected; what is beyond is no lesson."""


@dataclass(frozen=True, slots=True, order=True)
class Boot:
    """What a node was booted from: an instance type, and an image."""

    instance_type: str
    image_id: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The least that nodes of one type and image have shown.

    `allocatable` are cpu, memory and ephemeral storage left to pods, by the hash of the EC2NodeClass without the
    cluster's CA bundle.
    """

    memory_bytes: int
    """capacity, before anything is reserved"""
    allocatable: Mapping[str, Resources] = field(default_factory=dict)


def boot_of(claim: NodeClaim) -> Boot | None:
    """Name what a claim's node was booted from; None where that is not known."""
    return Boot(claim.instance_type, claim.image_id) if claim.instance_type and claim.image_id else None


def learned(known: Offered | None, claim: NodeClaim, expected_bytes: int, ca_bundle: str) -> Offered | None:
    """Return what is known with what a claim's node shows, the less of both; None where that teaches nothing.

    `expected_bytes` is the memory that the node was thought to have, `ca_bundle` the cluster's.
    """
    memory_bytes = claim.capacity.memory_bytes
    nodeclass = hash_in_cluster(
        claim.comparable_nodeclass_hash, ca_bundle
    )  # without the cluster: for all of them
    if not nodeclass or not _LEAST * expected_bytes <= memory_bytes <= _MOST * expected_bytes:
        return None
    left = Resources({name: claim.allocatable.of(name) for name in _RESERVED})
    if known is None:
        return Offered(memory_bytes, {nodeclass: left})
    before = known.allocatable.get(nodeclass)
    least = left if before is None else Resources({n: min(before.of(n), left.of(n)) for n in _RESERVED})
    others = {key: value for key, value in known.allocatable.items() if key != nodeclass}
    kept = list(others.items())[1 - _MOST_NODECLASSES :]
    after = Offered(min(known.memory_bytes, memory_bytes), {**dict(kept), nodeclass: least})
    return None if after == known else after
