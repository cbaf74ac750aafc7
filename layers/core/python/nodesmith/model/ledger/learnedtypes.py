"""Instance types in which estimates are replaced by what their nodes have reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from nodesmith.model.apimachinery.resources import MEMORY, Resources
from nodesmith.model.ec2.attachlimits import NO_LIMITS, AttachLimits
from nodesmith.model.ec2.capacity import MIB, allocatable, overhead
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.ec2.instancetypes import InstanceType, image_for, instance_types
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration, NodeSettings
from nodesmith.model.nodeclasses.status import NodeClassStatus

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
