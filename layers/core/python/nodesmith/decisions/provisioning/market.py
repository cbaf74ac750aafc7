"""From demands and templates to a packing problem: one bin per type and offering, one item per demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import le
from typing import NamedTuple

from nodesmith.decisions.packing import Bin, Item, Vector
from nodesmith.decisions.scheduling.admission import Admission
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.lots import Lots
from nodesmith.decisions.scheduling.reservations import reservation_limit
from nodesmith.decisions.scheduling.templates import Choice, Template
from nodesmith.model.catalog import Offering
from nodesmith.model.nodepools import NODES
from nodesmith.model.resources import CPU, MEMORY, Resources


class Ware(NamedTuple):
    """One thing for sale: a type of a NodePool, bought one way. `admits` has bit i set for demand i.

    A tuple and no dataclass because a market has thousands of them.
    """

    template: Template
    choice: Choice
    offering: Offering
    room: Vector
    cost: Vector
    """what a node takes of the NodePool's limits, in order of their names; empty where it has none"""
    admits: int

    @property
    def key(self) -> str:
        """What its bin is called."""
        sold = self.offering
        how = sold.reservation or sold.capacity_type
        return f"{self.template.name}/{self.choice.type.name}/{sold.zone}/{how}"

    @property
    def is_exotic(self) -> bool:
        """Bare metal and accelerators: only bought for what fits nothing else."""
        return self.choice.is_exotic


@dataclass(frozen=True, slots=True)
class Market:
    """Everything one tier of NodePools may sell to these demands.

    `bins` stand for the cheapest ware of each type and admission, `wares` says which by the bin's key; `shelves` hold
    all wares of a template (by name), cheapest first.
    """

    demands: tuple[Demand, ...]
    items: tuple[Item, ...]
    bins: tuple[Bin, ...]
    wares: Mapping[str, Ware]
    shelves: Mapping[str, Sequence[Ware]]
    dimensions: tuple[str, ...]
    """the resources that rooms and sizes are vectors of"""

    def plain(self, bins: Iterable[Bin]) -> list[Bin]:
        """Give bins at the prices of their offerings: surcharges steer the choice, they are no part of a price."""
        return [replace(b, price=self.wares[b.key].offering.price_hourly_usd) for b in bins]


def market(tier: Sequence[Template], demands: Sequence[Demand], lots: Lots | None = None) -> Market:
    """Set out what the templates of one tier can sell for these demands.

    Of a NodePool that cannot buy at will some may have to do without, by `lots`.
    """
    dimensions = _dimensions(demands)
    items = tuple(
        Item(
            _vector(d.shape.requests, dimensions),
            len(d.pods) // d.unit,
            min(d.per_node, len(d.pods) // d.unit),
            d.groups,
            d.caps,
        )
        for d in demands
    )
    shelves: dict[str, Sequence[Ware]] = {}
    wares: dict[str, Ware] = {}
    plain: list[Bin] = []
    exotic: list[Bin] = []
    for purse, template in enumerate(tier):
        barred = _barred(template, demands, lots) if lots is not None else 0
        shelf = _shelf(template, Admission(template, demands), dimensions, barred)
        shelves[template.name] = shelf
        for ware in _cheapest(shelf):
            wares[ware.key] = ware
            (exotic if ware.is_exotic else plain).append(_bin(ware, purse))
    bins = tuple(plain) + _needed(items, plain, exotic)
    return Market(tuple(demands), items, bins, wares, shelves, dimensions)


def _barred(template: Template, demands: Sequence[Demand], lots: Lots) -> int:
    """Give the demands, as bits, that have to do without a NodePool with limits or minValues."""
    if not template.remaining and not any(r.min_values for r in template.requirements.values()):
        return 0
    return sum(
        1 << index
        for index, demand in enumerate(demands)
        if lots.passes_over(template.name, demand.pods[0].key)
    )


def _shelf(
    template: Template, admission: Admission, dimensions: Sequence[str], barred: int = 0
) -> list[Ware]:
    limits = sorted(template.remaining)
    rooms = {choice.type.name: _vector(choice.room, dimensions) for choice in template.choices}
    costs = {
        (choice.type.name, offering.reservation): tuple(limit_cost(choice, offering, name) for name in limits)
        for choice, offering in template.stock
    }
    return [
        Ware(
            template,
            choice,
            offering,
            rooms[choice.type.name],
            costs[choice.type.name, offering.reservation],
            admits,
        )
        for choice, offering in template.stock
        if (admits := admission.mask(choice, offering) & ~barred)
    ]


def _cheapest(shelf: Iterable[Ware]) -> Iterable[Ware]:
    """Leave out what offers the same demands the same room at a higher price, or at the same under a later name."""
    found: dict[tuple[int, Vector, Vector, bool], Ware] = {}
    for ware in shelf:
        found.setdefault((ware.admits, ware.room, ware.cost, ware.is_exotic), ware)
    return found.values()


def _bin(ware: Ware, purse: int) -> Bin:
    price = ware.offering.price_hourly_usd + ware.template.pool.node_surcharge_hourly_usd
    return Bin(ware.key, ware.room, price, ware.admits, purse if ware.cost else -1, ware.cost)


def limit_cost(choice: Choice, offering: Offering | None, name: str) -> int:
    """Give what one node takes of a NodePool's limit, or of a reservation; without an offering, in none."""
    if name == NODES:
        return 1
    if offering is not None and offering.reservation and name == reservation_limit(offering.reservation):
        return 1
    return choice.type.capacity.of(name)


def purses(tier: Sequence[Template]) -> dict[int, Vector]:
    """Give what each template's limits still allow, by its place in the tier."""
    return {
        index: tuple(template.remaining[name] for name in sorted(template.remaining))
        for index, template in enumerate(tier)
        if template.remaining
    }


def _needed(items: Sequence[Item], plain: Iterable[Bin], exotic: Sequence[Bin]) -> tuple[Bin, ...]:
    """Leave out the exotic bins, but for items that fit no plain one."""
    if not exotic:
        return ()
    unserved = (1 << len(items)) - 1
    for candidate in sorted(plain, key=lambda b: (-b.room[0], b.key)):
        for index, item in enumerate(items):
            if candidate.admits & unserved >> index & 1 and all(map(le, item.size, candidate.room)):
                unserved &= ~(1 << index)
        if not unserved:
            break
    return tuple(b for b in exotic if b.admits & unserved)


def _dimensions(demands: Sequence[Demand]) -> tuple[str, ...]:
    named = {name for d in demands for name, amount in d.shape.requests.items() if amount}
    return (CPU, MEMORY, *sorted(named - {CPU, MEMORY}))


def _vector(resources: Resources, dimensions: Sequence[str]) -> Vector:
    return tuple(max(0, resources.of(name)) for name in dimensions)
