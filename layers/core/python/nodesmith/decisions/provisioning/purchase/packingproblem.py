"""From demands and templates to a packing problem: one item per demand, one bin per undominated offer, and limits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import fsum
from operator import le
from typing import NamedTuple

from nodesmith.decisions.packing import (
    Bin,
    Item,
    Vector,
    commitment_prices,
    lower_bound,
    tight_bound,
)
from nodesmith.decisions.scheduling.demands import Choices, Demand
from nodesmith.decisions.scheduling.offerings.launchable import Admission
from nodesmith.decisions.scheduling.offerings.options import (
    Pricing,
    PurchaseOption,
    TypeOption,
    TypeOptions,
    limit_cost,
    rooms,
    undominated_offers,
    vector,
)
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import SharedLimit, shared_limit
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.quantities import CPU, MEMORY
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType


class Offer(NamedTuple):
    """A type of a NodePool with an offering. `admits` has bit i set for demand i."""

    template: Template
    type_option: TypeOption
    offering: Offering
    room: Vector
    admits: int

    @property
    def key(self) -> str:
        """The name of its bin."""
        offering = self.offering
        billing = offering.reservation or offering.commitment or offering.capacity_type
        return f"{self.template.name}/{self.type_option.type.name}/{offering.zone}/{billing}"

    @property
    def is_exotic(self) -> bool:
        """Whether it is bare metal or has accelerators: bought only for pods that fit nothing else."""
        return self.type_option.is_exotic


def pairs(offers: Iterable[Offer]) -> list[tuple[InstanceType, Offering]]:
    """Return the type and the offering of each."""
    return [(offer.type_option.type, offer.offering) for offer in offers]


class TemplateOffers:
    """All offers of one template to these demands. The demands in `barred` (bits) must do without.

    There are thousands of offers: each `Offer` is created only when needed.
    """

    def __init__(
        self, template: Template, demands: Sequence[Demand], dimensions: tuple[str, ...], barred: int
    ) -> None:
        self._template, self._dimensions, self._open = template, dimensions, ~barred
        self._admission = Admission(template, demands)
        self._limits = tuple(sorted(template.remaining))
        self._made: dict[tuple[bool, int], Offer] = {}
        self._levels: list[list[int]] | None = None
        self._masks: tuple[int, ...] = ()

    def holding(self, demands: int, size: Vector, *, committed: bool = False) -> Iterator[Offer]:
        """Yield the offers that admit these demands (bits) and have at least the capacity `size`, cheapest first.

        With `committed`, they are those that commitments pay for.
        """
        type_options = self._template.committed if committed else self._template.type_options
        offers = type_options.offers
        room, largest = rooms(type_options, self._dimensions)
        for place in range(max(map(bisect_left, largest, size), default=0), len(offers)):
            if all(map(le, size, room[place])):
                offer = self._made.get((committed, place))
                if offer is None:
                    admits = self._admission.mask(*offers[place]) & self._open
                    offer = Offer(self._template, *offers[place], room[place], admits)
                    self._made[committed, place] = offer
                if offer.admits & demands == demands:
                    yield offer

    def offers_key(self, demands: int, size: Vector) -> tuple[object, ...]:
        """Return a key that is equal for demands (bits) and sizes for which `holding` yields the same offers."""
        if self._levels is None:
            both = self._template.type_options, self._template.committed
            stocked = [type_options for type_options in both if len(type_options)]
            room_vectors = [room for options in stocked for room in rooms(options, self._dimensions)[0]]
            self._levels = [sorted(set(amounts)) for amounts in zip(*room_vectors, strict=True)]
            self._masks = tuple(sorted({mask for o in both for mask, *_ in self._admission.by_demands(o)}))
        admitted = tuple([mask & self._open & demands == demands for mask in self._masks])
        return (*admitted, *map(bisect_left, self._levels, size))

    @property
    def rooms(self) -> frozenset[Vector]:
        """The different capacities that the offers have for pods."""
        return frozenset(rooms(self._template.type_options, self._dimensions)[0])

    def cost(self, offer: Offer) -> Vector:
        """Return what a node takes of the NodePool's limits, in order of their names; empty if it has none."""
        return tuple([limit_cost(offer.type_option, offer.offering, name) for name in self._limits])

    def best(self, pricing: Pricing) -> Iterator[tuple[Offer, Vector]]:
        """Yield the offers that none with the same admission dominates, and what they take of the limits.

        With minValues, capacity types are compared separately: one may be refused where another has enough types.
        """
        for type_options in (self._template.type_options, self._template.committed):
            yield from self._best(type_options.priced(pricing))

    def _best(self, type_options: TypeOptions) -> Iterator[tuple[Offer, Vector]]:
        apart = any(r.min_values for r in self._template.requirements.values())
        for demands, types, purchase_options in self._admission.by_demands(type_options):
            admits = demands & self._open
            for same in _by_capacity_type(purchase_options) if apart else (purchase_options,):
                for offer in (
                    undominated_offers(type_options, types, same, self._dimensions, self._limits)
                    if admits
                    else ()
                ):
                    yield (
                        Offer(self._template, offer.type_option, offer.offering, offer.room, admits),
                        offer.cost,
                    )


def _by_capacity_type(purchase_options: Iterable[PurchaseOption]) -> list[frozenset[PurchaseOption]]:
    ordered = sorted(purchase_options, key=lambda purchase_option: purchase_option.capacity_type)
    return [
        frozenset(same)
        for _, same in groupby(ordered, key=lambda purchase_option: purchase_option.capacity_type)
    ]


def _vector_numbers(tier: Sequence[Template], keys: Sequence[Sequence[object]]) -> list[int]:
    """Return the number of each template's vector. Templates that have a key in common have the same one."""
    numbers, first = list(range(len(tier))), dict[object, int]()
    for index, template in enumerate(tier):
        for key in keys[index] if min(template.remaining.values(), default=0) >= 0 else ():
            merged, own = numbers[first.setdefault(key, index)], numbers[index]
            numbers = [merged if number == own else number for number in numbers]
    return numbers


@dataclass(frozen=True, slots=True)
class TierLimits:
    """The limits of a tier's templates as numbered vectors. Templates that share a limit share one vector.

    `number` has the number of each template's vector, and `axes` where in it the template's limits are, in order of
    their names; `vectors` has what is left, by number. `names` are the templates' names, in order.
    """

    number: tuple[int, ...]
    axes: tuple[Vector, ...]
    vectors: Mapping[int, Vector]
    names: tuple[str, ...]
    committed: tuple[tuple[int, int], ...] = ()
    """The vectors' numbers, and the axes in them, that hold what is left of commitments."""

    @classmethod
    def of(cls, tier: Sequence[Template]) -> TierLimits:
        """Return the limits of a tier.

        A template that exceeds a limit of its own buys nothing, and shares no vector, in which it would stop others.
        """
        keys = [[t.shared_key(n) or (index, n) for n in sorted(t.remaining)] for index, t in enumerate(tier)]
        number = _vector_numbers(tier, keys)
        left: dict[int, dict[object, int]] = {}
        for index, template in enumerate(tier):
            vector = left.setdefault(number[index], {})
            for key, name in zip(keys[index], sorted(template.remaining), strict=True):
                vector[key] = min(template.remaining[name], vector.get(key, template.remaining[name]))
        places = {at: {key: place for place, key in enumerate(vector)} for at, vector in left.items()}
        axes = tuple(tuple(places[at][key] for key in mine) for at, mine in zip(number, keys, strict=True))
        vectors = {at: tuple(vector.values()) for at, vector in left.items() if vector}
        names = tuple(template.name for template in tier)
        paid = {limit.key for limit in _committed_limits(tier)}
        committed = tuple((at, axis) for at, of in places.items() for key, axis in of.items() if key in paid)
        return cls(tuple(number), axes, vectors, names, committed)

    def spread(self, index: int, cost: Vector) -> Vector:
        """Return what a node of a template takes, in the axes of its vector."""
        if not cost:
            return ()
        amounts_taken = [0] * len(self.vectors[self.number[index]])
        for axis, amount in zip(self.axes[index], cost, strict=True):
            amounts_taken[axis] += amount
        return tuple(amounts_taken)

    def own(self, template: str, vector: Vector) -> Vector:
        """Return the part of a vector that belongs to a template's limits, in order of their names."""
        return tuple([vector[axis] for axis in self.axes[self.names.index(template)]]) if vector else ()


def _committed_limits(tier: Iterable[Template]) -> Iterator[SharedLimit]:
    for template in tier:
        for name in template.remaining if len(template.committed) else ():
            shared = shared_limit(name)
            if shared is not None and shared.is_of_commitments:
                yield shared


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """Everything that one tier of NodePools offers to these demands.

    `bins` stand for the undominated offers, and `offers` has those by the bin's key. `offers_by_template` holds all
    offers of a template, by its name.
    """

    demands: tuple[Demand, ...]
    items: tuple[Item, ...]
    bins: tuple[Bin, ...]
    offers: Mapping[str, Offer]
    offers_by_template: Mapping[str, TemplateOffers]
    dimensions: tuple[str, ...]
    """The resources that capacities and sizes are vectors of."""
    limits: TierLimits
    node_usd: float = 0.0
    """What is added to the price of each bin, if the plan is to have as few nodes as possible."""
    worth_hourly_usd: float = 0.0
    """What the commitments that are left are worth to it: the bins that use them cost so much more together."""
    commitment_prices: tuple[float, ...] = ()
    """What one more unit of each of `limits.committed` would save."""

    def offer(self, one: Bin) -> Offer:
        """Return the offer that a bin stands for. Where commitments pay for a part, it has the price of the rest."""
        offer = self.offers[one.whole_key]
        if one.key == one.whole_key:
            return offer
        offering, use = offer.offering, one.cost[one.paid_axis]
        price = offering.listed_hourly_usd * (1 - use / offering.commitment_use)
        return offer._replace(offering=replace(offering, price_hourly_usd=price, commitment_use=use))

    def bound(self, items: Sequence[Item]) -> float:
        """Return a price that no packing of these of its items can undercut."""
        bound = tight_bound if self.limits.committed else lower_bound
        return max(0.0, bound(items, self.bins) - self.worth_hourly_usd)

    @property
    def is_settled(self) -> bool:
        """Whether more has been settled about some nodes than their pods ask for."""
        return any(demand.is_settled for demand in self.demands)


def packing_problem(
    tier: Sequence[Template],
    demands: Sequence[Demand],
    choices: Choices | None = None,
    pricing: Pricing = Pricing.CHOICE,
    *,
    known_prices: Sequence[float] = (),
) -> PackingProblem:
    """Return the packing problem of one tier's templates for these demands.

    By `choices`, some demands must do without a NodePool that has limits. Without Pricing.CHOICE the problem serves for
    a bound. `known_prices` are the prices of commitments, if another problem of this tier has found them.
    """
    dimensions, limits = _dimensions(demands), TierLimits.of(tier)
    items = tuple(
        Item(
            vector(d.shape.requests, dimensions),
            len(d.pods) // d.unit,
            min(d.per_node, len(d.pods) // d.unit),
            d.groups,
            d.caps,
        )
        for d in demands
    )
    offers_by_template: dict[str, TemplateOffers] = {}
    offers: dict[str, Offer] = {}
    common: list[Bin] = []
    exotic: list[Bin] = []
    for index, template in enumerate(tier):
        barred = _barred(template, demands, choices) if choices is not None and choices.excluded else 0
        offers_by_template[template.name] = template_offers = TemplateOffers(
            template, demands, dimensions, barred
        )
        for offer, cost in template_offers.best(pricing):
            new_bin = _bin(offer, limits.number[index], limits.spread(index, cost))
            offers[new_bin.key] = offer
            (exotic if offer.is_exotic else common).append(new_bin)
    bins = tuple(common) + _needed(items, common, exotic)
    worth = 0.0
    if limits.committed:
        known_prices = known_prices or commitment_prices(items, bins, limits.vectors, limits.committed)
        bins, worth = _at_their_worth(
            bins, limits, known_prices, _SHARE_OF_WORTH if pricing is Pricing.CHOICE else 1.0
        )
    return PackingProblem(
        tuple(demands),
        items,
        bins,
        offers,
        offers_by_template,
        dimensions,
        limits,
        worth_hourly_usd=worth,
        commitment_prices=tuple(known_prices),
    )


_SHARE_OF_WORTH = 0.8
"""The part of their worth that commitments cost a plan: at all of it, they are no better than what they replace."""


def _at_their_worth(
    bins: Sequence[Bin], limits: TierLimits, prices: Sequence[float], share: float
) -> tuple[tuple[Bin, ...], float]:
    """Return the bins with what they use of commitments in their price, and the worth of all commitments left.

    Commitments are scarce: a bin that uses them takes them from others. Each unit is charged at its dual price, as in
    Lagrangian relaxation, so that they go where they save most. A bound on these prices, less the worth of everything
    that is left, is a bound on the real prices.
    """
    charged = limits.committed
    priced = [(place, share * price) for place, price in zip(charged, prices, strict=True)]
    worth = fsum(price * limits.vectors[number][axis] for (number, axis), price in priced)

    def dual_cost(one: Bin) -> float:
        return fsum(
            unit * one.cost[axis] for (number, axis), unit in priced if number == one.limit and one.cost
        )

    dual_costs = map(dual_cost, bins)
    priced_bins = [
        replace(one, price=one.price + much, dual_cost=much) if much else one
        for one, much in zip(bins, dual_costs, strict=True)
    ]
    return tuple(_with_substitutes(priced_bins, charged)), worth


def _with_substitutes(bins: Sequence[Bin], charged: Sequence[tuple[int, int]]) -> Iterator[Bin]:
    """Yield the bins; those that use commitments with the cheapest other one that has the same items and room."""
    paid = {
        one.key: axis for one in bins for number, axis in charged if one.limit == number and one.cost[axis]
    }
    others = sorted((one for one in bins if one.key not in paid), key=lambda one: (one.price, one.key))
    for one in bins:
        if one.key in paid:
            alike = (
                other
                for other in others
                if not one.admits & ~other.admits and all(map(le, one.capacity, other.capacity))
            )
            yield replace(one, substitute=next(alike, None), paid_axis=paid[one.key])
        else:
            yield one


def _barred(template: Template, demands: Sequence[Demand], choices: Choices) -> int:
    """Return the demands, as bits, that must do without a NodePool."""
    return sum(1 << i for i, demand in enumerate(demands) if choices.bars(template.name, demand))


def _bin(offer: Offer, limit: int, cost: Vector) -> Bin:
    price = offer.offering.cost_hourly_usd + offer.type_option.surcharge_hourly_usd
    unpaid = offer.offering.paid_hourly_usd + offer.type_option.surcharge_hourly_usd
    number = limit if cost else -1
    return Bin(offer.key, offer.room, price, offer.admits, number, cost, unpaid_price=unpaid)


def _needed(items: Sequence[Item], common: Iterable[Bin], exotic: Sequence[Bin]) -> tuple[Bin, ...]:
    """Return the exotic bins that admit an item for which no common bin is large enough."""
    if not exotic:
        return ()
    unserved = (1 << len(items)) - 1
    for candidate in sorted(common, key=lambda b: (-b.capacity[0], b.key)):
        admitted = candidate.admits & unserved
        while admitted:
            index = admitted.bit_length() - 1
            admitted ^= 1 << index
            if all(map(le, items[index].size, candidate.capacity)):
                unserved ^= 1 << index
        if not unserved:
            break
    return tuple(b for b in exotic if b.admits & unserved)


def _dimensions(demands: Sequence[Demand]) -> tuple[str, ...]:
    names = {name for d in demands for name, amount in d.shape.requests.items() if amount}
    return (CPU, MEMORY, *sorted(names - {CPU, MEMORY}))
