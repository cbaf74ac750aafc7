"""What a NodePool may buy now, and which offers in any part of it are not dominated by another.

Offerings seldom change between decisions, and most pods constrain nothing but size, so results are cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from math import inf
from operator import ge, le
from typing import NamedTuple

from nodesmith.decisions.packing import Bin, Vector, undominated
from nodesmith.decisions.scheduling.compatibility import offering_labels
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import limited_zone, reservation_limit
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, NODES, Resources
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ledger.spending import LEAST_HORIZON_SECONDS
from nodesmith.model.policies import LAUNCHES_PER_HOUR, USD_PER_HOUR, USD_PER_MONTH, micro_usd
from nodesmith.model.quotas import Quota


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


class TypeOptions:
    """Type options with the offerings to buy them by, cheapest first; ties go by type and zone.

    `purchase_options` maps each purchase option to one of its offerings. Compared by identity, which makes it a cheap
    key.
    """

    __slots__ = ("_as", "by_type", "is_surcharged", "names", "offers", "purchase_options", "resources")

    def __init__(self, offers: Iterable[tuple[TypeOption, Offering]]) -> None:
        self.offers = tuple(offers)
        self._as: dict[Pricing, TypeOptions] = {}
        by_type: dict[str, list[tuple[TypeOption, Offering, PurchaseOption]]] = {}
        purchase_options: dict[PurchaseOption, Offering] = {}
        for type_option, offering in self.offers:
            bought = purchase_option(offering)
            purchase_options[bought] = offering
            by_type.setdefault(type_option.type.name, []).append((type_option, offering, bought))
        self.by_type: Mapping[str, Sequence[tuple[TypeOption, Offering, PurchaseOption]]] = by_type
        self.names = frozenset(by_type)
        self.purchase_options = purchase_options
        different = {id(type_option): type_option for type_option, _ in self.offers}.values()
        self.resources = tuple(
            sorted({name for each in different for name, amount in each.room.items() if amount > 0})
        )
        self.is_surcharged = any(each.surcharge_hourly_usd for each in different)

    def __len__(self) -> int:
        return len(self.offers)

    @property
    def is_risky(self) -> bool:
        """Whether expected interruptions make some offers cost more than their price."""
        return self.priced(Pricing.PAID) is not self

    def priced(self, pricing: Pricing) -> TypeOptions:
        """Return the same offers with a part of their cost."""
        if pricing is Pricing.CHOICE:
            return self
        if pricing not in self._as:
            self._as[pricing] = self._without(pricing)
        return self._as[pricing]

    def _without(self, pricing: Pricing) -> TypeOptions:
        if pricing is Pricing.PRICE and self.is_surcharged:
            free = {id(each): replace(each, surcharge_hourly_usd=0.0) for each, _ in self.offers}
            return TypeOptions((free[id(each)], sold) for each, sold in self.offers).priced(Pricing.PAID)
        if not any(offering.risk_hourly_usd for _, offering in self.offers):
            return self
        return TypeOptions(sorted(map(_at_price, self.offers), key=_by_price))

    def kind(self, name: str) -> InstanceType:
        """Return the instance type with this name."""
        return self.by_type[name][0][0].type


def _at_price(offer: tuple[TypeOption, Offering]) -> tuple[TypeOption, Offering]:
    type_option, offering = offer
    return type_option, replace(offering, risk_hourly_usd=0.0)


def _by_price(offer: tuple[TypeOption, Offering]) -> tuple[float, str, str]:
    type_option, offering = offer
    return offering.price_hourly_usd, type_option.type.name, offering.zone


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


_QUOTA = "quota:"
_COMMITMENT = "commitment"


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """What is left of a quota for one resource, or of commitments, as a limit that several NodePools share.

    It applies to offers whose own labels, those of the type and of the offering, meet `rest`. That of commitments
    applies to the offers which they pay for.
    """

    owner: str
    resource: str
    rest: Requirements = NO_REQUIREMENTS

    @property
    def name(self) -> str:
        """The name among the limits of a NodePool, from which `shared_limit` reads all of this."""
        rest = [_written(self.rest[key]) for key in sorted(self.rest)]
        return _QUOTA + json.dumps([self.owner, self.resource, rest])

    @classmethod
    def of_commitments(cls, pool: str) -> SharedLimit:
        """Return the limit for what is left of a pool of commitments."""
        return cls(pool, _COMMITMENT)

    @property
    def is_of_commitments(self) -> bool:
        """Whether it is what is left of commitments: it never stops a purchase, only what that costs."""
        return self.resource == _COMMITMENT

    @property
    def key(self) -> tuple[str, str]:
        """What limits with different `rest` have in common if they share one amount."""
        return self.owner, self.resource

    def cost(self, instance_type: InstanceType, offering: Offering | None) -> int:
        """Return what one node takes of it; without an offering, the least that it may take."""
        if self.is_of_commitments:
            return offering.commitment_use if offering and offering.commitment == self.owner else 0
        if offering is None:
            offers = instance_type.offerings
            return min((self.cost(instance_type, each) for each in offers), default=0)
        if self.rest and not self.rest.allow_labels(_labels(instance_type, offering)):
            return 0
        if self.resource in (NODES, LAUNCHES_PER_HOUR):
            return 1
        if self.resource in (USD_PER_HOUR, USD_PER_MONTH):
            return 0 if offering.reservation else micro_usd(offering.paid_hourly_usd)
        return instance_type.capacity.of(self.resource)


def _written(part: Requirement) -> list[object]:
    return [part.key, sorted(part.values), part.complement, part.exists]


def _labels(instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    reserved = {RESERVATION_ID: offering.reservation} if offering.reservation else {}
    return {
        **instance_type.labels,
        **offering_labels(offering.zone, offering.zone_id, offering.capacity_type),
        **reserved,
    }


def shared_limit(name: str) -> SharedLimit | None:
    """Return the shared limit that has this name; None for any other limit."""
    return _shared_limit(name) if name.startswith(_QUOTA) else None


@lru_cache(maxsize=1024)
def _shared_limit(name: str) -> SharedLimit:
    owner, resource, rest = json.loads(name.removeprefix(_QUOTA))
    parts = (Requirement(key, frozenset(values), complement=c, exists=e) for key, values, c, e in rest)
    return SharedLimit(owner, resource, Requirements.of(*parts))


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


@lru_cache(maxsize=64)
def rooms(
    type_options: TypeOptions, dimensions: tuple[str, ...]
) -> tuple[Sequence[Vector], Sequence[Sequence[int]]]:
    """Return the capacity of every offer, in order, and for each dimension the running maximum of these capacities."""
    known: dict[int, Vector] = {}
    for type_option, _ in type_options.offers:
        if id(type_option) not in known:
            known[id(type_option)] = vector(type_option.room, dimensions)
    found = [known[id(type_option)] for type_option, _ in type_options.offers]
    return found, [list(accumulate(amounts, max)) for amounts in zip(*found, strict=True)]


@lru_cache(maxsize=2048)
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
    cheapest: dict[tuple[bool, Vector, Vector], tuple[float, str, PricedOffer]] = {}
    for name in names:
        known: dict[int, Vector] = {}
        for type_option, offering, bought in type_options.by_type[name]:
            if bought not in purchase_options:
                continue
            room = known.get(id(type_option)) or known.setdefault(
                id(type_option), vector(type_option.room, dimensions)
            )
            cost = tuple([limit_cost(type_option, offering, limit) for limit in limits])
            equals = type_option.is_exotic, room, cost
            price = offering.cost_hourly_usd + type_option.surcharge_hourly_usd
            found = cheapest.get(equals)
            if found is not None and price > found[0]:
                continue
            bought_as = offering.reservation or offering.commitment or offering.capacity_type
            key = f"{name}/{offering.zone}/{bought_as}{'/dedicated' if offering.dedicated else ''}"
            if found is None or (price, key) < found[:2]:
                cheapest[equals] = price, key, PricedOffer(type_option, offering, room, cost)
    offers = {key: offer for _, key, offer in cheapest.values()}
    bins: tuple[list[Bin], list[Bin]] = [], []
    for (is_exotic, room, cost), (price, key, _) in cheapest.items():
        bins[is_exotic].append(Bin(key, room, price, 1, 0, cost))
    return tuple(offers[each.key] for group in bins for each in undominated(group))


@lru_cache(maxsize=2048)
def cheapest_shares(
    type_options: TypeOptions, names: frozenset[str], purchase_options: frozenset[PurchaseOption]
) -> tuple[PricedOffer, ...]:
    """Return the offers, of these types and purchase options, of which a share may be the cheapest place for some pod.

    Leave out offers for which another has at least the same capacity and costs no more per unit of any priced resource.
    Largest first.
    """
    priced = [place for place, name in enumerate(type_options.resources) if is_priced(name)]
    kept: dict[bool, list[tuple[PricedOffer, tuple[float, ...]]]] = {False: [], True: []}
    offers = sorted(
        undominated_offers(type_options, names, purchase_options, type_options.resources), key=_largest_first
    )
    for offer in offers:
        price = offer.cost_hourly_usd
        rates = tuple([price / offer.room[place] if offer.room[place] else inf for place in priced])
        rivals = [*kept[False], *kept[True]] if offer.type_option.is_exotic else kept[False]
        if not any(
            all(map(le, offer.room, rival.room)) and all(map(ge, rates, lower)) for rival, lower in rivals
        ):
            kept[offer.type_option.is_exotic].append((offer, rates))
    return tuple(offer for each in kept.values() for offer, _ in each)


def _largest_first(offer: PricedOffer) -> tuple[bool, int, float]:
    return offer.type_option.is_exotic, -offer.type_option.room.cpu_milli, offer.cost_hourly_usd


def is_priced(name: str) -> bool:
    """Return whether a resource matters to the choice of nodes: cpu, memory, and devices by their vendor's name."""
    return name in {CPU, MEMORY} or "/" in name
