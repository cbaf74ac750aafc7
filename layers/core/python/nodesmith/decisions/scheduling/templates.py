"""NodePools as templates of nodes: which types each may buy now, and how much room those leave for pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    TypeSet,
    allows_offering,
    compatible_terms,
    matching_types,
    taint_refusal,
    types_for_pods,
)
from nodesmith.decisions.scheduling.reservations import reservation_limit, reserved_offerings
from nodesmith.model.catalog import Offering
from nodesmith.model.instancetypes import InstanceType
from nodesmith.model.labels import NODEPOOL
from nodesmith.model.launches import OfferingKey
from nodesmith.model.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclassstatus import CapacityReservation, NodeClassStatus
from nodesmith.model.nodepools import NodePool
from nodesmith.model.requirements import Requirements
from nodesmith.model.resources import NOTHING, Resources, total
from nodesmith.model.shapes import Shape

_MANY_CLOSED = 15
_ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi")


@dataclass(frozen=True, slots=True)
class Choice:
    """A type that a NodePool may buy: `room` is what it offers to pods once its DaemonSets run (`daemons`)."""

    type: InstanceType
    room: Resources
    daemons: Resources
    offerings: tuple[Offering, ...]
    """available now, in a zone with a subnet, allowed by the NodePool; cheapest first"""
    is_exotic: bool = False
    """bare metal and types with accelerators: slow to start, or dear, and so only bought for what needs them"""


@dataclass(frozen=True, slots=True)
class Template:
    """What nodes of a NodePool look like, and everything it may buy now.

    `remaining` is what its limits still allow, NOTHING where it has none; `obstacle` is why nothing can be bought.
    """

    pool: NodePool
    nodeclass: EC2NodeClass
    status: NodeClassStatus
    requirements: Requirements
    types: TypeSet
    choices: tuple[Choice, ...]
    stock: tuple[tuple[Choice, Offering], ...]
    """all offerings of all choices, cheapest first; equals go by type and zone"""
    remaining: Resources
    obstacle: str = ""
    daemons: tuple[tuple[Shape, frozenset[str]], ...] = ()
    """the DaemonSets that will run on its nodes, and the names of the types they run on"""
    scarce: frozenset[tuple[str, str]] = frozenset()
    """capacity types and zones of which EC2 lately had none in many offerings: ask as widely as may be"""
    reserved: tuple[tuple[Choice, Offering], ...] = ()
    """what is reserved, by price on demand; `reservations` has how many instances of each are free, by limit name"""
    reservations: Resources = NOTHING
    trial: str = ""
    """why one node may be bought and no more: those before did not join"""

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
    types: TypeSet,
    daemonsets: Sequence[Shape],
    unavailable: Iterable[OfferingKey],
    used: Resources,
    reservations: Sequence[CapacityReservation] = (),
) -> Template:
    """Work out what a NodePool may buy. `types` are resolved for its NodeClass, `used` is what its nodes take now.

    `reservations` are those of its NodeClass that take instances.
    """
    requirements = pool.requirements.union(Requirements.from_labels(template_labels(pool)))
    bootable = _bootable(types, tuple(image.requirements for image in status.images))
    allowed = matching_types(bootable, requirements)
    subnet_zones = frozenset(subnet.zone for subnet in status.subnets)
    closed = frozenset(unavailable)
    offered = _offered(allowed, requirements, subnet_zones, closed)
    running = _running(pool, requirements, allowed, daemonsets)
    overhead = _daemon_overhead(allowed, running)
    by_name = {t.name: t for t in allowed.types} if reservations else {}
    reserved = reserved_offerings(reservations, by_name, requirements, subnet_zones, closed)
    sold = {t.name: (t, offerings, exotic) for t, offerings, exotic in offered.types}
    for name in sorted(reserved):
        kind, offerings, exotic = sold.get(name, (by_name[name], (), _is_exotic(by_name[name])))
        sold[name] = kind, (*reserved[name], *offerings), exotic
    choices = {
        name: Choice(t, t.allocatable - overhead[name], overhead[name], offerings, exotic)
        for name, (t, offerings, exotic) in sold.items()
        if overhead[name].fits_in(t.allocatable)
    }
    stock = tuple((choices[name], offering) for name, offering in offered.by_price if name in choices)
    obstacle = "" if choices else _no_choice(types, bootable, allowed, requirements, bool(offered.types))
    remaining = (
        Resources({n: pool.limits[n] - used.of(n) for n in sorted(pool.limits)}) if pool.limits else NOTHING
    )
    return Template(
        pool,
        nodeclass,
        status,
        requirements,
        bootable,
        tuple(choices.values()),
        stock,
        remaining,
        obstacle,
        tuple(running),
        _scarce(closed),
        _by_price(
            (choices[name], o) for name, offerings in reserved.items() for o in offerings if name in choices
        ),
        Resources({reservation_limit(r.id): r.available for r in reservations}) if reserved else NOTHING,
    )


def _by_price(stock: Iterable[tuple[Choice, Offering]]) -> tuple[tuple[Choice, Offering], ...]:
    return tuple(
        sorted(stock, key=lambda s: (s[1].price_hourly_usd, s[0].type.name, s[1].zone, s[1].reservation))
    )


def _scarce(closed: Iterable[OfferingKey]) -> frozenset[tuple[str, str]]:
    counts = Counter((key.capacity_type, key.zone) for key in closed)
    return frozenset(place for place, count in counts.items() if count >= _MANY_CLOSED)


@lru_cache(maxsize=64)
def _bootable(types: TypeSet, images: tuple[Requirements, ...]) -> TypeSet:
    if not all(images):
        return types
    names = {name for requirements in images for name in matching_types(types, requirements).names}
    return TypeSet(tuple(t for t in types.types if t.name in names))


@dataclass(frozen=True, slots=True)
class _Offered:
    """Types with an offering left, those offerings, and whether the type is exotic; and all offerings by price."""

    types: tuple[tuple[InstanceType, tuple[Offering, ...], bool], ...]
    by_price: tuple[tuple[str, Offering], ...]


@lru_cache(maxsize=64)
def _offered(
    types: TypeSet, requirements: Requirements, zones: frozenset[str], unavailable: frozenset[OfferingKey]
) -> _Offered:
    """Give what is for sale. Cached, for the market seldom changes from run to run."""
    wanted = {key: requirements[key] for key in OFFERING_KEYS if key in requirements}
    closed = {(k.capacity_type, k.instance_type, k.zone) for k in unavailable}

    def allowed(name: str, offering: Offering) -> bool:
        if offering.zone not in zones or (offering.capacity_type, name, offering.zone) in closed:
            return False
        return allows_offering(wanted, offering)

    found = ((t, tuple(o for o in t.offerings if allowed(t.name, o))) for t in types.types)
    kept = tuple((t, offerings, _is_exotic(t)) for t, offerings in found if offerings)
    priced = [(t.name, o) for t, offerings, _ in kept for o in offerings]
    priced.sort(key=lambda p: (p[1].price_hourly_usd, p[0], p[1].zone))
    return _Offered(kept, tuple(priced))


def _is_exotic(instance_type: InstanceType) -> bool:
    return "metal" in instance_type.name or any(instance_type.capacity.of(name) for name in _ACCELERATORS)


def _running(
    pool: NodePool, requirements: Requirements, types: TypeSet, daemonsets: Sequence[Shape]
) -> list[tuple[Shape, frozenset[str]]]:
    """Give the DaemonSets that will run on nodes of the pool, each with the names of the types it runs on."""
    given = frozenset(pool.labels)
    found: list[tuple[Shape, frozenset[str]]] = []
    for daemon in daemonsets:
        if daemon.refusal or taint_refusal(pool.taints, daemon):
            continue
        terms, _ = compatible_terms(requirements, daemon)
        found.append(
            (daemon, frozenset().union(*(types_for_pods(types, term, given).names for term in terms)))
        )
    return found


def _daemon_overhead(
    types: TypeSet, daemons: Iterable[tuple[Shape, frozenset[str]]]
) -> Mapping[str, Resources]:
    """Sum, per type, what the DaemonSets that will run on such a node request."""
    running: dict[str, list[Resources]] = {t.name: [] for t in types.types}
    for daemon, names in daemons:
        for name in names:
            running[name].append(daemon.requests)
    sums: dict[tuple[int, ...], Resources] = {}
    return {
        name: sums.setdefault(key, total(parts)) if (key := tuple(map(id, parts))) not in sums else sums[key]
        for name, parts in running.items()
    }


def _no_choice(
    types: TypeSet, bootable: TypeSet, allowed: TypeSet, requirements: Requirements, offered: bool
) -> str:
    if not types.types:
        return "the catalogue has no instance types for its region"
    if not bootable.types:
        return "no instance type can boot the images of its EC2NodeClass"
    if not allowed.types:
        wanted = "; ".join(
            str(requirements[key]) for key in sorted(requirements) if key in types.types[0].requirements
        )
        return f"no instance type meets its requirements ({wanted})"
    if offered:
        return "its DaemonSets ask for more than any of its instance types offers"
    return (
        f"none of its {len(allowed.types)} instance types has an offering left: every one is out of capacity,"
        " without a price, or in a zone or capacity type that the NodePool or its subnets do not have"
    )
