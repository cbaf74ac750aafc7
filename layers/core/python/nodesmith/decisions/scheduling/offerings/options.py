"""What a NodePool may buy now, and which offers in any part of it are not dominated by another.

Offerings seldom change between decisions, and most pods constrain nothing but size, so results are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple, TypeVar

from nodesmith.decisions.packing import Bin, Skyline, Vector, undominated
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import (
    limited_zone,
    reservation_limit,
    shared_limit,
)
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, NODES, Resources
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ledger.spending import LEAST_HORIZON_SECONDS
from nodesmith.model.limits.quotas import Quota
from nodesmith.model.policies import USD_PER_MONTH


@dataclass(frozen=True, slots=True)
class TypeOption:
    """A type that a NodePool may buy: `room` is what it offers to pods; `daemons` is what its DaemonSets request."""

    type: InstanceType
    room: Resources
    daemons: Resources
    offerings: tuple[Offering, ...]
    """Available now, in a zone with a subnet, allowed by the NodePool; cheapest first."""
    is_exotic: bool = False
    """Bare metal and types with accelerators: slow to start or expensive, so bought only for pods that need them."""
    surcharge_hourly_usd: float = 0.0
    """What such a node costs beyond its instance, by the annotations of its NodePool and its DaemonSets."""


class Pricing(Enum):
    """What counts as the cost of a node: for a choice everything, for a bound what is paid."""

    CHOICE = "price, surcharges and the expected cost of interruptions"
    PAID = "price and surcharges"
    PRICE = "price"


class PurchaseOption(NamedTuple):
    """How an instance is bought, regardless of its type."""

    zone: str
    zone_id: str
    capacity_type: str
    reservation: str
    dedicated: bool
    commitment: str = ""


class PricedOffer(NamedTuple):
    """A type option with an offering, its capacity for pods, and what it takes of the limits asked for."""

    type_option: TypeOption
    offering: Offering
    room: Vector
    cost: Vector

    @property
    def cost_hourly_usd(self) -> float:
        """What a choice compares: price, expected interruptions and surcharges."""
        return self.offering.cost_hourly_usd + self.type_option.surcharge_hourly_usd


_T = TypeVar("_T")
_MOST_RESULTS = 2048
"""The most results that type options keep."""


class TypeOptions:
    """Type options with the offerings to buy them by, cheapest first; ties go by AWS's price, type and zone.

    `purchase_options` maps each purchase option to one of its offerings. Compared by identity, which makes it a cheap
    key.
    """

    __slots__ = (
        "_results",
        "by_type",
        "is_surcharged",
        "names",
        "offers",
        "purchase_options",
        "resources",
    )

    def __init__(self, offers: Iterable[tuple[TypeOption, Offering]]) -> None:
        self.offers = tuple(offers)
        self._results: dict[Hashable, Any] = {}
        by_type: dict[str, list[tuple[TypeOption, Offering, PurchaseOption]]] = {}
        purchase_options: dict[PurchaseOption, Offering] = {}
        same: dict[PurchaseOption, PurchaseOption] = {}  # one object for equal ones compares fast
        for type_option, offering in self.offers:
            bought_as = purchase_option(offering)
            bought_as = same.setdefault(bought_as, bought_as)
            purchase_options[bought_as] = offering
            by_type.setdefault(type_option.type.name, []).append((type_option, offering, bought_as))
        self.by_type: Mapping[str, Sequence[tuple[TypeOption, Offering, PurchaseOption]]] = by_type
        self.names = frozenset(by_type)
        self.purchase_options = purchase_options
        different = {id(type_option): type_option for type_option, _ in self.offers}.values()
        amounts = (item for option in different for item in option.room.items())
        self.resources = tuple(sorted({name for name, amount in amounts if amount > 0}))
        self.is_surcharged = any(option.surcharge_hourly_usd for option in different)

    def __len__(self) -> int:
        return len(self.offers)

    @property
    def is_risky(self) -> bool:
        """Whether expected interruptions make some offers cost more than their price."""
        return self.priced(Pricing.PAID) is not self

    def sold(self, dimensions: tuple[str, ...]) -> Mapping[PurchaseOption, Sequence[_SoldOffer]]:
        """Return the offers by the way they are bought, with their capacity in the order of `dimensions`."""
        return self.result(TypeOptions._by_purchase_option, dimensions)

    def _by_purchase_option(
        self, dimensions: tuple[str, ...]
    ) -> Mapping[PurchaseOption, Sequence[_SoldOffer]]:
        by_option: dict[PurchaseOption, list[_SoldOffer]] = {option: [] for option in self.purchase_options}
        rooms: dict[int, Vector] = {}
        for name, offers in self.by_type.items():
            for type_option, offering, option in offers:
                room = rooms.get(id(type_option))
                if room is None:
                    room = rooms[id(type_option)] = vector(type_option.room, dimensions)
                price = offering.cost_hourly_usd + type_option.surcharge_hourly_usd
                by_option[option].append((name, type_option, offering, room, price))
        return by_option

    def priced(self, pricing: Pricing) -> TypeOptions:
        """Return the same offers with a part of their cost."""
        if pricing is Pricing.CHOICE:
            return self
        return self.result(TypeOptions._without, pricing) or self

    def _without(self, pricing: Pricing) -> TypeOptions | None:
        """Return other options, or None if these cost the same: a reference to themselves would keep them alive."""
        if pricing is Pricing.PRICE and self.is_surcharged:
            free = {id(option): replace(option, surcharge_hourly_usd=0.0) for option, _ in self.offers}
            offers = ((free[id(option)], offering) for option, offering in self.offers)
            return TypeOptions(offers).priced(Pricing.PAID)
        if not any(offering.risk_hourly_usd for _, offering in self.offers):
            return None
        return TypeOptions(sorted(map(_at_price, self.offers), key=_by_price))

    def result(self, compute: Callable[..., _T], *arguments: Hashable) -> _T:
        """Return `compute(self, *arguments)`, computed once.

        A cache would outlive the options, and hold megabytes for each set of offerings that were unavailable once.
        """
        key = compute, arguments
        if key not in self._results:
            if len(self._results) >= _MOST_RESULTS:
                self._results.clear()
            self._results[key] = compute(self, *arguments)
        value: _T = self._results[key]
        return value

    def kind(self, name: str) -> InstanceType:
        """Return the instance type with this name."""
        return self.by_type[name][0][0].type


_SoldOffer = tuple[str, TypeOption, Offering, Vector, float]
"""The name of a type, a type option, its offering, its capacity, and what a choice compares of its cost."""


def _at_price(offer: tuple[TypeOption, Offering]) -> tuple[TypeOption, Offering]:
    type_option, offering = offer
    return type_option, replace(offering, risk_hourly_usd=0.0)


def _by_price(offer: tuple[TypeOption, Offering]) -> tuple[float, float, str, str]:
    type_option, offering = offer
    return *offering.costs, type_option.type.name, offering.zone


NO_OPTIONS = TypeOptions(())


def purchase_option(offering: Offering) -> PurchaseOption:
    """Return how an offering is bought."""
    return PurchaseOption(
        offering.zone,
        offering.zone_id,
        offering.capacity_type,
        offering.reservation,
        offering.dedicated,
        offering.commitment,
    )


def vector(resources: Resources, dimensions: Iterable[str]) -> Vector:
    """Return amounts in the order of `dimensions`; negative amounts become 0."""
    amounts = resources.amounts
    return tuple([max(0, amounts.get(name, 0)) for name in dimensions])


@dataclass(frozen=True, slots=True)
class Usage:
    """What counts against a quota: an amount for each resource that it limits, and when the newest such node was begun.

    `since` is None if no node counts. `seconds_left` is how long the month still lasts, `rate` what the nodes cost an
    hour, in millionths of a US dollar.
    """

    quota: Quota
    used: Resources
    since: datetime | None = None
    seconds_left: int = 0
    rate: int = 0

    @property
    def _horizon(self) -> int:
        return max(self.seconds_left, LEAST_HORIZON_SECONDS)

    def left(self, resource: str) -> int:
        """Return what the quota still allows, at least 0; of a month, what nodes may cost an hour until its end.

        Shortly before the end of a month, the nodes must fit into what is left of it for a whole day.
        """
        limit, used = self.quota.limits.of(resource), self.used.of(resource)
        if resource == USD_PER_MONTH:
            used += self.rate * (self._horizon - self.seconds_left)
            return max(0, limit - used) // self._horizon
        return max(0, limit - used)

    def taking(self, resource: str, amount: int) -> int:
        """Return what counts against the limit, given what is taken of `left`."""
        return amount * self.seconds_left if resource == USD_PER_MONTH else amount

    def needed(self, resource: str, amount: int) -> int:
        """Return the limit of which so much would be left."""
        used = self.used.of(resource)
        if resource == USD_PER_MONTH:
            return used + self.rate * (self._horizon - self.seconds_left) + amount * self._horizon
        return used + amount


def limit_cost(type_option: TypeOption, offering: Offering | None, name: str) -> int:
    """Return what one node takes of a NodePool's limit, a quota, a reservation or a placement group's zone.

    Without an offering, it takes nothing of the latter two, and of a quota the least that it may take.
    """
    if name == NODES:
        return 1
    if (shared := shared_limit(name)) is not None:
        return shared.cost(type_option.type, offering)
    if offering is not None and offering.reservation and name == reservation_limit(offering.reservation):
        return 1
    if zone := limited_zone(name):
        return int(offering is not None and offering.zone == zone)
    return type_option.type.capacity.of(name)


_Rooms = tuple[Sequence[Vector], Sequence[Sequence[int]]]


def rooms(type_options: TypeOptions, dimensions: tuple[str, ...]) -> _Rooms:
    """Return the capacity of every offer, in order, and for each dimension the running maximum of these capacities."""
    return type_options.result(_computed_rooms, dimensions)


def _computed_rooms(type_options: TypeOptions, dimensions: tuple[str, ...]) -> _Rooms:
    vectors: dict[int, Vector] = {}
    for type_option, _ in type_options.offers:
        if id(type_option) not in vectors:
            vectors[id(type_option)] = vector(type_option.room, dimensions)
    room_vectors = [vectors[id(type_option)] for type_option, _ in type_options.offers]
    return room_vectors, [list(accumulate(amounts, max)) for amounts in zip(*room_vectors, strict=True)]


def undominated_offers(
    type_options: TypeOptions,
    names: frozenset[str],
    purchase_options: frozenset[PurchaseOption],
    dimensions: tuple[str, ...],
    limits: tuple[str, ...] = (),
) -> tuple[PricedOffer, ...]:
    """Return the offers that no other beats in capacity, price and use of limits together.

    Only offers of these types with these purchase options are considered. Exotic types are compared with each other
    only. Of equal offers, return the first by type and zone.
    """
    return type_options.result(_undominated_offers, names, purchase_options, dimensions, limits)


def _undominated_offers(
    type_options: TypeOptions,
    names: frozenset[str],
    purchase_options: frozenset[PurchaseOption],
    dimensions: tuple[str, ...],
    limits: tuple[str, ...],
) -> tuple[PricedOffer, ...]:
    cheapest = _cheapest_of_equals(type_options, names, purchase_options, dimensions, limits)
    offers = {key: offer for _, key, offer in cheapest.values()}
    bins: tuple[list[Bin], list[Bin]] = [], []
    for (is_exotic, room, cost), (price, key, _) in cheapest.items():
        bins[is_exotic].append(Bin(key, room, price, 1, 0, cost))
    return tuple(offers[bin_.key] for group in bins for bin_ in undominated(group))


_Equals = Mapping[tuple[bool, Vector, Vector], tuple[float, str, PricedOffer]]
"""The cheapest offer, with its price and key, by whether its type is exotic, its capacity and its use of limits.

Of those that a NodeOverlay gives the same price, it is the one that AWS sells for least.
"""


def _cheapest_of_equals(
    type_options: TypeOptions,
    names: frozenset[str],
    purchase_options: frozenset[PurchaseOption],
    dimensions: tuple[str, ...],
    limits: tuple[str, ...] = (),
) -> _Equals:
    cheapest: dict[tuple[bool, Vector, Vector], tuple[float, float, str, PricedOffer]] = {}
    sold = type_options.sold(dimensions)
    is_part = len(names) < len(type_options.names)
    for option in purchase_options & sold.keys():
        bought_as = option.reservation or option.commitment or option.capacity_type
        place = f"{option.zone}/{bought_as}{'/dedicated' if option.dedicated else ''}"
        for name, type_option, offering, room, price in sold[option]:
            if is_part and name not in names:
                continue
            cost = tuple([limit_cost(type_option, offering, limit) for limit in limits]) if limits else ()
            equals = type_option.is_exotic, room, cost
            best = cheapest.get(equals)
            if best is not None and price > best[0]:
                continue
            key = f"{name}/{place}"
            if best is None or (price, offering.paid_hourly_usd, key) < best[:3]:
                offer = PricedOffer(type_option, offering, room, cost)
                cheapest[equals] = price, offering.paid_hourly_usd, key, offer
    return {equals: (price, key, offer) for equals, (price, _, key, offer) in cheapest.items()}


def cheapest_shares(
    type_options: TypeOptions, names: frozenset[str], purchase_options: frozenset[PurchaseOption]
) -> tuple[PricedOffer, ...]:
    """Return the offers, of these types and purchase options, of which a share may be the cheapest place for some pod.

    Leave out offers for which another has at least the same capacity and costs no more per unit of any priced resource.
    Largest first.
    """
    return type_options.result(_cheapest_shares, names, purchase_options)


def _cheapest_shares(
    type_options: TypeOptions, names: frozenset[str], purchase_options: frozenset[PurchaseOption]
) -> tuple[PricedOffer, ...]:
    priced = [place for place, name in enumerate(type_options.resources) if is_priced(name)]
    # cpu and memory first: they distinguish most offers
    priced.sort(key=lambda place: type_options.resources[place] not in (CPU, MEMORY))
    cheapest: dict[bool, list[PricedOffer]] = {False: [], True: []}
    skylines = {False: Skyline(), True: Skyline()}
    offers = _cheapest_of_equals(type_options, names, purchase_options, type_options.resources)
    for price, _, offer in sorted(offers.values(), key=_largest_first):
        is_exotic, room = offer.type_option.is_exotic, offer.room
        offered = (*[-price / room[place] if room[place] else -inf for place in priced], *room)
        if skylines[False].covers(offered) or (is_exotic and skylines[True].covers(offered)):
            continue
        skylines[is_exotic].add(offered)
        cheapest[is_exotic].append(offer)
    return tuple(offer for group in cheapest.values() for offer in group)


def _largest_first(entry: tuple[float, str, PricedOffer]) -> tuple[object, ...]:
    price, key, offer = entry
    return (
        offer.type_option.is_exotic,
        -offer.type_option.room.cpu_milli,
        price,
        [-r for r in offer.room],
        key,
    )


def is_priced(name: str) -> bool:
    """Return whether a resource matters to the choice of nodes: cpu, memory, and devices by their vendor's name."""
    return name in {CPU, MEMORY} or "/" in name
