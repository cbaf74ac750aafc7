"""What a NodePool may buy now, and of any part of it what is never the worse choice.

The market seldom changes from decision to decision, and most pods ask nothing of it but size: answers are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import inf
from operator import ge, le
from typing import NamedTuple

from nodesmith.decisions.packing import Bin, Vector, undominated
from nodesmith.decisions.scheduling.offerings.reservations import reservation_limit
from nodesmith.model.apimachinery.resources import CPU, MEMORY, Resources
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.karpenter.nodepools import NODES


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


class Way(NamedTuple):
    """How an instance is bought, whatever its type."""

    zone: str
    zone_id: str
    capacity_type: str
    reservation: str


class Good(NamedTuple):
    """One choice bought one way: its room, and what it takes of limits, in the order in which they were asked for."""

    choice: Choice
    offering: Offering
    room: Vector
    cost: Vector


class Stock:
    """Choices with the offerings to buy them by, cheapest first; equals go by type and zone.

    `ways` has some offering of each way. Compared by identity, which makes it a cheap key.
    """

    __slots__ = ("_plain", "by_type", "goods", "names", "resources", "ways")

    def __init__(self, goods: Iterable[tuple[Choice, Offering]]) -> None:
        self.goods = tuple(goods)
        self._plain: Stock | None = None
        by_type: dict[str, list[tuple[Choice, Offering, Way]]] = {}
        ways: dict[Way, Offering] = {}
        for choice, offering in self.goods:
            bought = way(offering)
            ways[bought] = offering
            by_type.setdefault(choice.type.name, []).append((choice, offering, bought))
        self.by_type: Mapping[str, Sequence[tuple[Choice, Offering, Way]]] = by_type
        self.names = frozenset(by_type)
        self.ways = ways
        rooms = {id(choice): choice.room for choice, _ in self.goods}.values()
        self.resources = tuple(
            sorted({name for room in rooms for name, amount in room.items() if amount > 0})
        )

    def __len__(self) -> int:
        return len(self.goods)

    @property
    def is_risky(self) -> bool:
        """Whether interruptions make some of it dearer than its price."""
        return self.plain is not self

    @property
    def plain(self) -> Stock:
        """The same at its prices, without what interruptions are taken to cost."""
        if self._plain is None:
            risky = any(offering.risk_hourly_usd for _, offering in self.goods)
            self._plain = Stock(sorted(map(_at_price, self.goods), key=_by_price)) if risky else self
        return self._plain

    def kind(self, name: str) -> InstanceType:
        """Return the type of a name."""
        return self.by_type[name][0][0].type


def _at_price(good: tuple[Choice, Offering]) -> tuple[Choice, Offering]:
    choice, offering = good
    return choice, replace(offering, risk_hourly_usd=0.0)


def _by_price(good: tuple[Choice, Offering]) -> tuple[float, str, str]:
    choice, offering = good
    return offering.price_hourly_usd, choice.type.name, offering.zone


NOTHING_SOLD = Stock(())


def way(offering: Offering) -> Way:
    """Return how an offering is bought."""
    return Way(offering.zone, offering.zone_id, offering.capacity_type, offering.reservation)


def vector(resources: Resources, dimensions: Iterable[str]) -> Vector:
    """Return amounts in the order of their names; less than nothing counts as nothing."""
    amounts = resources.amounts
    return tuple([max(0, amounts.get(name, 0)) for name in dimensions])


def limit_cost(choice: Choice, offering: Offering | None, name: str) -> int:
    """Return what one node takes of a NodePool's limit, or of a reservation; without an offering, in none."""
    if name == NODES:
        return 1
    if offering is not None and offering.reservation and name == reservation_limit(offering.reservation):
        return 1
    return choice.type.capacity.of(name)


@lru_cache(maxsize=64)
def rooms(stock: Stock, dimensions: tuple[str, ...]) -> tuple[Sequence[Vector], Sequence[Sequence[int]]]:
    """Return the room of every good, in order, and for each dimension the most that any up to it has."""
    known: dict[int, Vector] = {}
    for choice, _ in stock.goods:
        if id(choice) not in known:
            known[id(choice)] = vector(choice.room, dimensions)
    found = [known[id(choice)] for choice, _ in stock.goods]
    return found, [list(accumulate(amounts, max)) for amounts in zip(*found, strict=True)]


@lru_cache(maxsize=2048)
def bargains(
    stock: Stock,
    names: frozenset[str],
    ways: frozenset[Way],
    dimensions: tuple[str, ...],
    limits: tuple[str, ...] = (),
) -> tuple[Good, ...]:
    """Return the goods, of these types and bought these ways, that no other beats in room, price and cost together.

    Exotic ones are held against each other only. Of equals the first by type and zone is given.
    """
    cheapest: dict[tuple[bool, Vector, Vector], tuple[float, str, Good]] = {}
    for name in names:
        known: dict[int, Vector] = {}
        for choice, offering, bought in stock.by_type[name]:
            if bought not in ways:
                continue
            room = known.get(id(choice)) or known.setdefault(id(choice), vector(choice.room, dimensions))
            cost = tuple([limit_cost(choice, offering, limit) for limit in limits])
            equals = choice.is_exotic, room, cost
            price, found = offering.cost_hourly_usd, cheapest.get(equals)
            if found is not None and price > found[0]:
                continue
            key = f"{name}/{offering.zone}/{offering.reservation or offering.capacity_type}"
            if found is None or (price, key) < found[:2]:
                cheapest[equals] = price, key, Good(choice, offering, room, cost)
    goods = {key: good for _, key, good in cheapest.values()}
    bins: tuple[list[Bin], list[Bin]] = [], []
    for (is_exotic, room, cost), (price, key, _) in cheapest.items():
        bins[is_exotic].append(Bin(key, room, price, 1, 0, cost))
    return tuple(goods[each.key] for group in bins for each in undominated(group))


@lru_cache(maxsize=2048)
def cheapest_shares(stock: Stock, names: frozenset[str], ways: frozenset[Way]) -> tuple[Good, ...]:
    """Return the goods of these types, bought these ways, of which a share may be the cheapest to hold something.

    Left out is what another holds as well, each share of which costs no more. Largest first.
    """
    priced = [place for place, name in enumerate(stock.resources) if is_priced(name)]
    kept: dict[bool, list[tuple[Good, tuple[float, ...]]]] = {False: [], True: []}
    goods = sorted(bargains(stock, names, ways, stock.resources), key=_largest_first)
    for good in goods:
        price = good.offering.cost_hourly_usd
        rates = tuple([price / good.room[place] if good.room[place] else inf for place in priced])
        rivals = [*kept[False], *kept[True]] if good.choice.is_exotic else kept[False]
        if not any(
            all(map(le, good.room, rival.room)) and all(map(ge, rates, lower)) for rival, lower in rivals
        ):
            kept[good.choice.is_exotic].append((good, rates))
    return tuple(good for each in kept.values() for good, _ in each)


def _largest_first(good: Good) -> tuple[bool, int, float]:
    return good.choice.is_exotic, -good.choice.room.cpu_milli, good.offering.cost_hourly_usd


def is_priced(name: str) -> bool:
    """Return whether nodes are chosen for a resource: cpu, memory, and devices by their vendor's name."""
    return name in {CPU, MEMORY} or "/" in name
