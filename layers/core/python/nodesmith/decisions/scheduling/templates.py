"""NodePools as templates of nodes: which types each may buy now, and how much room those leave for pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodesmith.decisions.scheduling.compatibility import (
    compatible_terms,
    matching_types,
    taint_refusal,
)
from nodesmith.model.catalog import Offering
from nodesmith.model.instancetypes import InstanceType
from nodesmith.model.labels import CAPACITY_TYPE, NODEPOOL, ZONE, ZONE_ID
from nodesmith.model.launches import OfferingKey
from nodesmith.model.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclassstatus import NodeClassStatus
from nodesmith.model.nodepools import NodePool
from nodesmith.model.requirements import Requirements
from nodesmith.model.resources import NOTHING, Resources, total
from nodesmith.model.shapes import Shape

_ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi")


@dataclass(frozen=True, slots=True)
class Choice:
    """A type that a NodePool may buy: `room` is what it offers to pods once its DaemonSets run (`daemons`)."""

    type: InstanceType
    room: Resources
    daemons: Resources
    offerings: tuple[Offering, ...]
    """available now, in a zone with a subnet, allowed by the NodePool; cheapest first"""

    @property
    def is_exotic(self) -> bool:
        """True for bare metal and for types with accelerators: they are slow to start, or dear."""
        return "metal" in self.type.name or any(self.type.capacity.of(name) for name in _ACCELERATORS)


@dataclass(frozen=True, slots=True)
class Template:
    """What nodes of a NodePool look like, and everything it may buy now.

    `remaining` is what its limits still allow, NOTHING where it has none; `obstacle` is why nothing can be bought.
    """

    pool: NodePool
    nodeclass: EC2NodeClass
    status: NodeClassStatus
    requirements: Requirements
    types: tuple[InstanceType, ...]
    choices: tuple[Choice, ...]
    remaining: Resources
    obstacle: str = ""

    @property
    def name(self) -> str:
        """The NodePool's."""
        return self.pool.name


def template_labels(pool: NodePool) -> dict[str, str]:
    """Give the labels every node of the pool carries, whatever its type."""
    return {**pool.labels, NODEPOOL: pool.name, pool.nodeclass.label: pool.nodeclass.name}


def template(
    pool: NodePool,
    nodeclass: EC2NodeClass,
    status: NodeClassStatus,
    types: tuple[InstanceType, ...],
    daemonsets: Sequence[Shape],
    unavailable: Iterable[OfferingKey],
    used: Resources,
) -> Template:
    """Work out what a NodePool may buy. `types` are resolved for its NodeClass, `used` is what its nodes take now."""
    requirements = pool.requirements.union(Requirements.from_labels(template_labels(pool)))
    bootable = _bootable(types, status)
    allowed = matching_types(bootable, requirements)
    subnet_zones = frozenset(subnet.zone for subnet in status.subnets)
    offered = _offered(allowed, requirements, subnet_zones, frozenset(unavailable))
    overhead = _daemon_overhead(pool, requirements, allowed, daemonsets)
    choices = tuple(
        Choice(t, t.allocatable - overhead[t.name], overhead[t.name], offerings)
        for t, offerings in zip(allowed, offered, strict=True)
        if offerings
    )
    obstacle = "" if choices else _no_choice(types, bootable, allowed, requirements)
    remaining = (
        Resources({n: pool.limits[n] - used.of(n) for n in sorted(pool.limits)}) if pool.limits else NOTHING
    )
    return Template(pool, nodeclass, status, requirements, bootable, choices, remaining, obstacle)


def _bootable(types: tuple[InstanceType, ...], status: NodeClassStatus) -> tuple[InstanceType, ...]:
    if any(not image.requirements for image in status.images):
        return types
    bootable = {t.name for image in status.images for t in matching_types(types, image.requirements)}
    return tuple(t for t in types if t.name in bootable)


def _offered(
    types: Sequence[InstanceType],
    requirements: Requirements,
    zones: frozenset[str],
    unavailable: frozenset[OfferingKey],
) -> list[tuple[Offering, ...]]:
    wanted_zone, wanted_id = requirements.get(ZONE), requirements.get(ZONE_ID)
    wanted_capacity = requirements.get(CAPACITY_TYPE)

    def allowed(offering: Offering) -> bool:
        return (
            offering.zone in zones
            and (wanted_zone is None or wanted_zone.allows(offering.zone))
            and (wanted_id is None or wanted_id.allows(offering.zone_id))
            and (wanted_capacity is None or wanted_capacity.allows(offering.capacity_type))
        )

    return [
        tuple(
            o
            for o in t.offerings
            if allowed(o) and OfferingKey(o.capacity_type, t.name, o.zone) not in unavailable
        )
        if unavailable
        else tuple(o for o in t.offerings if allowed(o))
        for t in types
    ]


def _daemon_overhead(
    pool: NodePool,
    requirements: Requirements,
    types: tuple[InstanceType, ...],
    daemonsets: Sequence[Shape],
) -> Mapping[str, Resources]:
    """Sum, per type, what the DaemonSets that will run on such a node request."""
    running: dict[str, list[Resources]] = {t.name: [] for t in types}
    for daemon in daemonsets:
        if daemon.refusal or taint_refusal(pool.taints, daemon):
            continue
        terms, _ = compatible_terms(requirements, daemon)
        names = {t.name for term in terms for t in matching_types(types, term)}
        for name in names:
            running[name].append(daemon.requests)
    sums: dict[tuple[int, ...], Resources] = {}
    return {
        name: sums.setdefault(key, total(parts)) if (key := tuple(map(id, parts))) not in sums else sums[key]
        for name, parts in running.items()
    }


def _no_choice(
    types: Sequence[InstanceType],
    bootable: Sequence[InstanceType],
    allowed: Sequence[InstanceType],
    requirements: Requirements,
) -> str:
    if not types:
        return "the catalogue has no instance types for its region"
    if not bootable:
        return "no instance type can boot the images of its EC2NodeClass"
    if not allowed:
        instance_keys = sorted(k for k in requirements if any(k in t.requirements for t in types[:1]))
        wanted = "; ".join(str(requirements[k]) for k in instance_keys)
        return f"no instance type meets its requirements ({wanted})"
    return (
        f"none of its {len(allowed)} instance types has an offering left: every one is out of capacity, without"
        " a price, or in a zone or capacity type that the NodePool or its subnets do not have"
    )
