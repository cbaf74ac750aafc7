"""What nodes really offer, learned from nodes that have joined, for all clusters of an account in a region.

How much memory the hypervisor and the image use is not known before a node runs. It depends on the instance type and
the image. How much of the rest the kubelet reserves depends on the EC2NodeClass as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Resources
from nodesmith.model.hashes import hash_in_cluster
from nodesmith.model.karpenter.nodeclaims import NodeClaim

_RESERVED = (CPU, MEMORY, EPHEMERAL_STORAGE)
_MOST_NODECLASSES = 16
_LEAST, _MOST = 0.8, 1.1
"""Bounds for a node's memory, as fractions of the expected memory. A value outside them is ignored."""


@dataclass(frozen=True, slots=True, order=True)
class Boot:
    """What a node was booted from: an instance type and an image."""

    instance_type: str
    image_id: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The least that nodes of one type and image have reported.

    `allocatable` is the CPU, memory and ephemeral storage for pods, by the hash of the EC2NodeClass without the
    cluster's CA bundle.
    """

    memory_bytes: int
    """capacity, before anything is reserved"""
    allocatable: Mapping[str, Resources] = field(default_factory=dict)


def boot_of(claim: NodeClaim) -> Boot | None:
    """Return what a claim's node was booted from, None if that is not known."""
    return Boot(claim.instance_type, claim.image_id) if claim.instance_type and claim.image_id else None


def learned(known: Offered | None, claim: NodeClaim, expected_bytes: int, ca_bundle: str) -> Offered | None:
    """Return the minimum of `known` and what a claim's node reports; None if that changes nothing.

    `expected_bytes` is the memory that the node was expected to have, and `ca_bundle` is the cluster's CA bundle.
    """
    memory_bytes = claim.capacity.memory_bytes
    # Without the CA bundle, the hash is the same in all clusters.
    nodeclass = hash_in_cluster(claim.comparable_nodeclass_hash, ca_bundle)
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
