"""What nodes really offer, learned from nodes that have joined, and instance types with these facts.

How much memory the hypervisor and the image use is not known before a node runs. It depends on the instance type and
the image. How much of the rest the kubelet reserves depends on the EC2NodeClass as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from nodesmith.model.apimachinery.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Resources
from nodesmith.model.ec2.capacity import MIB, NO_LIMITS, AttachLimits, allocatable, overhead
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.ec2.instancetypes import InstanceType, image_for, instance_types
from nodesmith.model.hashes import hash_in_cluster
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration, NodeSettings
from nodesmith.model.nodeclasses.status import NodeClassStatus

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


_LEAST_SHARE = 0.75
"""Minimum share of a type's memory: data from other clusters of the account is only accepted within bounds."""
_NOTHING_LEARNED: Mapping[Boot, Offered] = {}


@dataclass(frozen=True, slots=True)
class _Lesson:
    """What was learned about one type: its memory, and what is left for pods with the same EC2NodeClass."""

    instance_type: str
    memory_bytes: int
    left: Resources | None


def known_types(
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
    status: NodeClassStatus | None = None,
    learned: Mapping[Boot, Offered] = _NOTHING_LEARNED,
) -> tuple[InstanceType, ...]:
    """Return every type of the catalogue, sorted by name, with what was learned from nodes of the EC2NodeClass.

    Cached: equal arguments give the same objects.
    """
    types = instance_types(catalog, configuration, settings)
    if status is None or not learned:
        return types
    seen = {boot.instance_type for boot in learned}
    lessons = []
    for kind in types:
        image = image_for(kind, status.images) if kind.name in seen else None
        offered = learned.get(Boot(kind.name, image.id)) if image else None
        if offered is not None:
            lessons.append(_Lesson(kind.name, offered.memory_bytes, offered.allocatable.get(status.hash)))
    return _taught(catalog, configuration, settings, tuple(lessons)) if lessons else types


@lru_cache(maxsize=16)
def _taught(
    catalog: Catalog, configuration: NodeConfiguration, settings: NodeSettings, lessons: tuple[_Lesson, ...]
) -> tuple[InstanceType, ...]:
    by_type = {lesson.instance_type: lesson for lesson in lessons}
    return tuple(
        _corrected(kind, by_type[kind.name], catalog, configuration, settings)
        if kind.name in by_type
        else kind
        for kind in instance_types(catalog, configuration, settings)
    )


def _corrected(
    kind: InstanceType,
    lesson: _Lesson,
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
) -> InstanceType:
    facts = catalog.facts[kind.name]
    if not isinstance(facts, InstanceFacts):
        return kind  # stated in a file, so not an estimate
    nominal = facts.memory_mib * MIB
    if not _LEAST_SHARE * nominal <= lesson.memory_bytes <= nominal:
        return kind
    room = Resources({**kind.capacity, MEMORY: lesson.memory_bytes})
    kept = overhead(facts, configuration, room, settings)
    left = allocatable(room, kept)
    if lesson.left is not None and _is_credible(lesson.left, left, room):
        left = Resources({**left, **lesson.left})
        kept = room - left
    return replace(kind, capacity=room, overhead=kept, allocatable=left)


def _is_credible(shown: Resources, computed: Resources, capacity: Resources) -> bool:
    slack = 1 - _LEAST_SHARE
    return all(
        computed.of(name) - slack * capacity.of(name) <= amount <= capacity.of(name)
        for name, amount in shown.items()
    )


def attaching(types: tuple[InstanceType, ...], limits: AttachLimits) -> tuple[InstanceType, ...]:
    """Return types with the volume limits that nodes report, see `AttachLimits`. Cached like `known_types`."""
    return types if limits == NO_LIMITS else _attaching(types, limits)


@lru_cache(maxsize=16)
def _attaching(types: tuple[InstanceType, ...], limits: AttachLimits) -> tuple[InstanceType, ...]:
    return tuple(
        replace(
            kind,
            capacity=Resources({**kind.capacity, **limits.on(kind.name)}),
            allocatable=Resources({**kind.allocatable, **limits.on(kind.name)}),
        )
        for kind in types
    )
