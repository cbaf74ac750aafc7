"""From demands and templates to a packing problem: one item per demand, one bin per undominated offer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from operator import le
from typing import NamedTuple

from nodesmith.decisions.packing import Bin, Item, Vector, pack
from nodesmith.decisions.scheduling.demands import Choices, Demand
from nodesmith.decisions.scheduling.offerings.launchable import Admission
from nodesmith.decisions.scheduling.offerings.options import (
    Pricing,
    PurchaseOption,
    TypeOption,
    limit_cost,
    rooms,
    shared_limit,
    undominated_offers,
    vector,
)
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.resources import CPU, MEMORY, Resources
from nodesmith.model.ec2.catalog import Offering


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
        sold = self.offering
        how = sold.reservation or sold.capacity_type
        return f"{self.template.name}/{self.type_option.type.name}/{sold.zone}/{how}"

    @property
    def is_exotic(self) -> bool:
        """Whether it is bare metal or has accelerators: bought only for pods that fit nothing else."""
        return self.type_option.is_exotic


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
        self._made: dict[int, Offer] = {}

    def holding(self, demands: int, size: Vector) -> Iterator[Offer]:
        """Yield the offers that admit these demands (bits) and have at least the capacity `size`, cheapest first."""
        offers = self._template.type_options.offers
        room, largest = rooms(self._template.type_options, self._dimensions)
        for place in range(max(map(bisect_left, largest, size), default=0), len(offers)):
            if all(map(le, size, room[place])):
                offer = self._made.get(place)
                if offer is None:
                    admits = self._admission.mask(*offers[place]) & self._open
                    offer = self._made[place] = Offer(self._template, *offers[place], room[place], admits)
                if offer.admits & demands == demands:
                    yield offer

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
        type_options = self._template.type_options.priced(pricing)
        apart = any(r.min_values for r in self._template.requirements.values())
        for demands, types, purchase_options in self._admission.alike(type_options):
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

    @property
    def is_settled(self) -> bool:
        """Whether more has been settled about some nodes than their pods ask for."""
        return any(demand.is_settled for demand in self.demands)


def packing_problem(
    tier: Sequence[Template],
    demands: Sequence[Demand],
    choices: Choices | None = None,
    pricing: Pricing = Pricing.CHOICE,
) -> PackingProblem:
    """Return the packing problem of one tier's templates for these demands.

    By `choices`, some demands must do without a NodePool that has limits. Without Pricing.CHOICE the problem serves for
    a bound.
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
        barred = _barred(template, demands, choices) if choices is not None and choices.barred else 0
        offers_by_template[template.name] = template_offers = TemplateOffers(
            template, demands, dimensions, barred
        )
        for offer, cost in template_offers.best(pricing):
            made = _bin(offer, limits.number[index], limits.spread(index, cost))
            offers[made.key] = offer
            (exotic if offer.is_exotic else common).append(made)
    bins = tuple(common) + _needed(items, common, exotic)
    return PackingProblem(tuple(demands), items, bins, offers, offers_by_template, dimensions, limits)


def _barred(template: Template, demands: Sequence[Demand], choices: Choices) -> int:
    """Return the demands, as bits, that must do without a NodePool."""
    return sum(1 << i for i, demand in enumerate(demands) if choices.bars(template.name, demand))


def least_nodes_first(offered: PackingProblem) -> PackingProblem:
    """Return the problem with so much added to each bin's price that no price is worth another node.

    A quick plan shows how many nodes suffice: with more than the price of all of these added, fewer nodes cost less.
    """
    alike = [replace(each, price=1.0) for each in offered.bins]
    quick = pack(offered.items, alike, offered.limits.vectors, bounded=False, good_enough=inf)
    enough = sum(node.repeats for node in quick.nodes) + sum(quick.left)
    node_usd = dearer_than(enough, offered.bins)
    return replace(offered, bins=with_node_usd(offered.bins, node_usd), node_usd=node_usd)


def dearer_than(nodes: int, bins: Iterable[Bin]) -> float:
    """Return a price that is higher than that of so many nodes."""
    return (nodes + 1) * max((each.price for each in bins), default=0.0) + 1.0


def with_node_usd(bins: Iterable[Bin], node_usd: float) -> tuple[Bin, ...]:
    """Return bins with so much added to each price."""
    return tuple(replace(each, price=each.price + node_usd) for each in bins)


def _bin(offer: Offer, limit: int, cost: Vector) -> Bin:
    price = offer.offering.cost_hourly_usd + offer.type_option.surcharge_hourly_usd
    return Bin(offer.key, offer.room, price, offer.admits, limit if cost else -1, cost)


@dataclass(frozen=True, slots=True)
class TierLimits:
    """The limits of a tier's templates as numbered vectors. Templates that share a quota share one vector.

    `number` has the number of each template's vector, and `axes` where in it the template's limits are, in order of
    their names; `vectors` has what is left, by number. `names` are the templates' names, in order.
    """

    number: tuple[int, ...]
    axes: tuple[Vector, ...]
    vectors: Mapping[int, Vector]
    names: tuple[str, ...]

    @classmethod
    def of(cls, tier: Sequence[Template]) -> TierLimits:
        """Return the limits of a tier.

        A template that exceeds a limit of its own buys nothing, and shares no vector, in which it would stop others.
        """
        keys = [
            [(index, name) if one is None else one.key for name in names for one in (shared_limit(name),)]
            for index, names in enumerate(sorted(template.remaining) for template in tier)
        ]
        number = list(range(len(tier)))
        first: dict[object, int] = {}
        for index, template in enumerate(tier):
            for key in keys[index] if min(template.remaining.values(), default=0) >= 0 else ():
                known, mine = number[first.setdefault(key, index)], number[index]
                number = [known if each == mine else each for each in number]
        left: dict[int, dict[object, int]] = {}
        for index, template in enumerate(tier):
            vector = left.setdefault(number[index], {})
            for key, name in zip(keys[index], sorted(template.remaining), strict=True):
                vector[key] = min(template.remaining[name], vector.get(key, template.remaining[name]))
        places = {at: {key: place for place, key in enumerate(vector)} for at, vector in left.items()}
        axes = tuple(tuple(places[at][key] for key in mine) for at, mine in zip(number, keys, strict=True))
        vectors = {at: tuple(vector.values()) for at, vector in left.items() if vector}
        return cls(tuple(number), axes, vectors, tuple(template.name for template in tier))

    def spread(self, index: int, cost: Vector) -> Vector:
        """Return what a node of a template takes, in the axes of its vector."""
        if not cost:
            return ()
        found = [0] * len(self.vectors[self.number[index]])
        for axis, amount in zip(self.axes[index], cost, strict=True):
            found[axis] += amount
        return tuple(found)

    def own(self, template: str, vector: Vector) -> Vector:
        """Return the part of a vector that belongs to a template's limits, in order of their names."""
        return tuple([vector[axis] for axis in self.axes[self.names.index(template)]]) if vector else ()


def with_limits_left(tier: Iterable[Template], others: Iterable[Template]) -> list[Template]:
    """Return the templates of a tier with no more left of each quota than the `others` have."""
    least: dict[tuple[str, str], int] = {}
    for template in others:
        for name, left in template.remaining.items():
            if (shared := shared_limit(name)) is not None:
                least[shared.key] = min(left, least.get(shared.key, left))

    def lowered(template: Template) -> Template:
        left = dict(template.remaining)
        for name, amount in template.remaining.items():
            if (shared := shared_limit(name)) is not None:
                left[name] = min(amount, least.get(shared.key, amount))
        return template if left == template.remaining else replace(template, remaining=Resources(left))

    return list(map(lowered, tier)) if least else list(tier)


def _needed(items: Sequence[Item], common: Iterable[Bin], exotic: Sequence[Bin]) -> tuple[Bin, ...]:
    """Return the exotic bins that admit an item for which no common bin is large enough."""
    if not exotic:
        return ()
    unserved = (1 << len(items)) - 1
    for candidate in sorted(common, key=lambda b: (-b.capacity[0], b.key)):
        for index, item in enumerate(items):
            if candidate.admits & unserved >> index & 1 and all(map(le, item.size, candidate.capacity)):
                unserved &= ~(1 << index)
        if not unserved:
            break
    return tuple(b for b in exotic if b.admits & unserved)


def _dimensions(demands: Sequence[Demand]) -> tuple[str, ...]:
    named = {name for d in demands for name, amount in d.shape.requests.items() if amount}
    return (CPU, MEMORY, *sorted(named - {CPU, MEMORY}))
