"""NodePools as templates of nodes: which types each may buy now, and how much capacity those leave for pods.

The DaemonSets that will run on a node take part of its capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    TypeSet,
    allows_offering,
    compatible_terms,
    matching_types,
    no_choice,
    types_for_pods,
)
from nodesmith.decisions.scheduling.offerings.options import NO_OPTIONS, TypeOption, TypeOptions, Usage
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import (
    group_requirements,
    reservation_limit,
    reserved_offerings,
    shared_key,
)
from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, total
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.podannotations import surcharge_of
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import CapacityReservation, NodeClassStatus

_MANY_CLOSED = 15
NO_TYPES = TypeSet(())
_ACCELERATORS = ("nvidia.com/", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi")


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
    choices: tuple[TypeOption, ...]
    type_options: TypeOptions
    """All offers of all `choices` that are not reserved."""
    remaining: Resources
    obstacle: str = ""
    daemons: tuple[tuple[Shape, frozenset[str]], ...] = ()
    """The DaemonSets that will run on its nodes, each with the names of the types it runs on."""
    scarce: frozenset[tuple[str, str]] = frozenset()
    """Capacity types and zones in which EC2 recently lacked capacity for many offerings: requests there are wider."""
    reserved: TypeOptions = NO_OPTIONS
    """Reserved offers, by their on-demand price; `reservations` has the free instances of each, by limit name."""
    reservations: Resources = NOTHING
    shifted: tuple[str, ...] = ()
    """The zones with its subnets that the cluster is shifted away from, each in a sentence."""
    trial: str = ""
    """Why only one node may be bought: those before it did not join."""
    usages: tuple[Usage, ...] = ()
    """The quotas that its nodes count against; what is left of them is in `remaining`."""
    least_nodes: bool = False
    """Whether plans for the NodePools of its weight have as few nodes as possible."""
    every: TypeSet = NO_TYPES
    """All instance types of the region, whether or not its images boot them."""
    committed: TypeOptions = NO_OPTIONS
    """On-demand offers again, as commitments pay for them; what is left of these is in `remaining`."""

    @property
    def name(self) -> str:
        """The NodePool's name."""
        return self.pool.name

    @property
    def is_steered(self) -> bool:
        """Whether more than the price decides: surcharges, the number of nodes, interruption risk, commitments."""
        steered = self.least_nodes or self.type_options.is_surcharged or self.type_options.is_risky
        return steered or bool(len(self.committed))

    def shared_key(self, limit: str) -> tuple[str, str] | None:
        """Return the key of the amount that it shares with other templates by this limit, None if it shares none."""
        return shared_key(limit, self.status.placement_group)


def template_labels(pool: NodePool) -> dict[str, str]:
    """Return the labels that every node of the pool carries, whatever its type."""
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
    risky: Iterable[tuple[OfferingKey, int]] = (),
) -> Template:
    """Return what a NodePool may buy. `types` are resolved for its NodeClass, `used` is what its nodes take now.

    `reservations` are those of its NodeClass that can take instances. `risky` are capacity pools, each with the
    surcharge, in percent, for their interruptions.
    """
    requirements = pool.requirements.union(Requirements.from_labels(template_labels(pool)))
    requirements = requirements.union(group_requirements(status.placement_group))
    bootable = _bootable(types, tuple(image.requirements for image in status.images))
    allowed = matching_types(bootable, requirements)
    subnet_zones = frozenset(subnet.zone for subnet in status.subnets)
    closed = frozenset(unavailable)
    offered = _offered(allowed, requirements, subnet_zones, closed, frozenset(risky))
    daemons = running(pool, requirements, allowed, daemonsets)
    by_name = {t.name: t for t in allowed.types} if reservations else {}
    reserved = reserved_offerings(reservations, by_name, requirements, subnet_zones, closed)
    choices, type_options, reserved_options = _stocked(
        offered,
        tuple((by_name[name], reserved[name]) for name in sorted(reserved)),
        tuple(each for _, each in daemons),
        pool.node_surcharge_hourly_usd,
    )
    obstacle = (
        ""
        if choices
        else no_choice(
            types,
            bootable,
            allowed,
            requirements,
            status.images,
            subnet_zones,
            [kind for kind, _, _ in offered.types],
            [(daemon, each.types) for daemon, each in daemons],
        )
    )
    remaining = (
        Resources({n: pool.limits[n] - used.of(n) for n in sorted(pool.limits)}) if pool.limits else NOTHING
    )
    return Template(
        pool,
        nodeclass,
        status,
        requirements,
        bootable,
        choices,
        type_options,
        remaining,
        obstacle,
        tuple((daemon, each.types) for daemon, each in daemons),
        _scarce(closed),
        reserved_options,
        Resources({reservation_limit(r.id): r.available for r in reservations}) if reserved else NOTHING,
        every=types,
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


_KEPT = 32
"""For how many NodePools, and sets of unavailable offerings, offers are kept: each takes 4 MB if it has all types."""


@dataclass(frozen=True, slots=True, eq=False)
class _Offered:
    """Types that have an offering left, these offerings, and whether the type is exotic; and all offerings by price.

    Compared by identity, which makes it a cheap key.
    """

    types: tuple[tuple[InstanceType, tuple[Offering, ...], bool], ...]
    by_price: tuple[tuple[str, Offering], ...]


@lru_cache(maxsize=_KEPT)
def _offered(
    types: TypeSet,
    requirements: Requirements,
    zones: frozenset[str],
    unavailable: frozenset[OfferingKey],
    risky: frozenset[tuple[OfferingKey, int]],
) -> _Offered:
    """Return what is for sale. Cached, because offerings seldom change from run to run."""
    offering_requirements = {key: requirements[key] for key in OFFERING_KEYS if key in requirements}
    closed = {(k.capacity_type, k.instance_type, k.zone) for k in unavailable}

    def allowed(name: str, offering: Offering) -> bool:
        if offering.zone not in zones or (offering.capacity_type, name, offering.zone) in closed:
            return False
        return allows_offering(offering_requirements, offering)

    candidates = ((t, tuple(o for o in t.offerings if allowed(t.name, o))) for t in types.types)
    if risky:
        surcharges = {(k.capacity_type, k.instance_type, k.zone): percent for k, percent in risky}
        candidates = ((t, _surcharged(t.name, offerings, surcharges)) for t, offerings in candidates)
    types_offered = tuple((t, offerings, _is_exotic(t)) for t, offerings in candidates if offerings)
    priced = [(t.name, o) for t, offerings, _ in types_offered for o in offerings]
    priced.sort(key=lambda p: (*p[1].costs, p[0], p[1].zone))
    return _Offered(types_offered, tuple(priced))


def _surcharged(
    name: str, offerings: tuple[Offering, ...], surcharges: Mapping[tuple[str, str, str], int]
) -> tuple[Offering, ...]:
    """Return a type's offerings with the expected cost of interruptions added, cheapest first."""
    percents = [surcharges.get((o.capacity_type, name, o.zone), 0) for o in offerings]
    if not any(percents):
        return offerings
    dearer = (
        replace(o, risk_hourly_usd=o.price_hourly_usd * percent / 100) if percent else o
        for o, percent in zip(offerings, percents, strict=True)
    )
    return tuple(sorted(dearer, key=lambda o: (*o.costs, o.zone)))


@lru_cache(maxsize=_KEPT)
def _stocked(
    offered: _Offered,
    reserved: tuple[tuple[InstanceType, tuple[Offering, ...]], ...],
    daemons: tuple[Running, ...],
    surcharge_hourly_usd: float,
) -> tuple[tuple[TypeOption, ...], TypeOptions, TypeOptions]:
    """Return the types that have capacity beyond their DaemonSets, their offers for sale, and their reserved offers."""
    by_type = {kind.name: (kind, offerings, exotic) for kind, offerings, exotic in offered.types}
    for kind, paid in reserved:
        _, offerings, exotic = by_type.get(kind.name, (kind, (), _is_exotic(kind)))
        by_type[kind.name] = kind, (*paid, *offerings), exotic
    overhead = Overhead(daemons)
    choices = [
        TypeOption(kind, kind.allocatable - taken, taken, alike, exotic, surcharge_hourly_usd + surcharge)
        for name, (kind, offerings, exotic) in by_type.items()
        for taken, surcharge, alike in overhead.of(name, offerings)
        if taken.fits_in(kind.allocatable)
    ]
    by_offering = {(c.type.name, id(offering)): c for c in choices for offering in c.offerings}
    for_sale = _offers(by_offering, offered.by_price)
    paid_for = _offers(by_offering, ((kind.name, offering) for kind, paid in reserved for offering in paid))
    paid_for.sort(key=lambda s: (s[1].price_hourly_usd, s[0].type.name, s[1].zone, s[1].reservation))
    return tuple(choices), TypeOptions(for_sale), TypeOptions(paid_for)


def _offers(
    choices: Mapping[tuple[str, int], TypeOption], sold: Iterable[tuple[str, Offering]]
) -> list[tuple[TypeOption, Offering]]:
    pairs = ((choices.get((name, id(offering))), offering) for name, offering in sold)
    return [(type_option, offering) for type_option, offering in pairs if type_option is not None]


def _is_exotic(instance_type: InstanceType) -> bool:
    return "metal" in instance_type.name or any(
        amount and name.startswith(_ACCELERATORS) for name, amount in instance_type.capacity.items()
    )


@dataclass(frozen=True, slots=True)
class Running:
    """What a DaemonSet's pods request, and where they run: for each of its terms, the names of the types it allows."""

    requests: Resources
    terms: tuple[tuple[Requirements, frozenset[str]], ...]
    surcharge_hourly_usd: float = 0.0

    @property
    def types(self) -> frozenset[str]:
        """The names of the types that its pods may run on."""
        return frozenset().union(*(names for _, names in self.terms))

    @property
    def restricts_offerings(self) -> bool:
        """Whether zone or capacity type matter as well."""
        return not all(OFFERING_KEYS.isdisjoint(term) for term, _ in self.terms)

    def joins(self, name: str, offering: Offering) -> bool:
        """Return whether its pods run on a type bought with an offering."""
        return any(name in names and allows_offering(term, offering) for term, names in self.terms)


def running(
    pool: NodePool, requirements: Requirements, types: TypeSet, daemonsets: Sequence[Shape]
) -> list[tuple[Shape, Running]]:
    """Return the DaemonSets that will run on nodes of the pool."""
    given = frozenset(pool.labels)
    daemons: list[tuple[Shape, Running]] = []
    for daemon in daemonsets:
        if daemon.refusal or daemon.untolerated(pool.taints):
            continue
        terms = compatible_terms(requirements, daemon)
        types_by_term = tuple((term, frozenset(types_for_pods(types, term, given).names)) for term in terms)
        daemons.append((daemon, Running(daemon.requests, types_by_term, surcharge_of(daemon))))
    return daemons


class Overhead:
    """What DaemonSets request on a node, and what they add to its price, by its type and offering."""

    def __init__(self, daemons: Iterable[Running]) -> None:
        self._daemons = [(daemon, daemon.types, daemon.restricts_offerings) for daemon in daemons]
        self._sums: dict[tuple[int, ...], tuple[Resources, float]] = {}

    def of(
        self, name: str, offerings: tuple[Offering, ...]
    ) -> Iterator[tuple[Resources, float, tuple[Offering, ...]]]:
        """Yield the sums of requests and surcharges on a type, each with the offerings they apply to."""
        mine = [(daemon, choosy) for daemon, types, choosy in self._daemons if name in types]
        if not any(choosy for _, choosy in mine):
            yield *self._sum([daemon for daemon, _ in mine]), offerings
            return
        groups: dict[tuple[int, ...], tuple[tuple[Resources, float], list[Offering]]] = {}
        for offering in offerings:
            joining = [daemon for daemon, choosy in mine if not choosy or daemon.joins(name, offering)]
            group = groups.setdefault(tuple(map(id, joining)), (self._sum(joining), []))
            group[1].append(offering)
        yield from ((*sums, tuple(alike)) for sums, alike in groups.values())

    def _sum(self, daemons: Sequence[Running]) -> tuple[Resources, float]:
        key = tuple(map(id, daemons))
        if key not in self._sums:
            surcharge = fsum(daemon.surcharge_hourly_usd for daemon in daemons)
            self._sums[key] = total([daemon.requests for daemon in daemons]), surcharge
        return self._sums[key]
