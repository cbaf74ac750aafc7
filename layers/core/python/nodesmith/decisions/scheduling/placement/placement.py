"""Places for the pods of one shape: rooms that are there first, then domains in which nodes are bought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Assignment, Demand
from nodesmith.decisions.scheduling.nodes.available import Vacancies
from nodesmith.decisions.scheduling.nodes.conflicts import Neighbours
from nodesmith.decisions.scheduling.nodes.existing import Room
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.offerings.unavailable import Unsold
from nodesmith.decisions.scheduling.spreadshares import Domain, share_out
from nodesmith.decisions.scheduling.topology.dependencies import Watch
from nodesmith.decisions.scheduling.topology.domains import Domains
from nodesmith.decisions.scheduling.topology.nodefilters import kept_out, keyed_spreads, narrowed, undecided
from nodesmith.decisions.scheduling.topology.topology import Topology
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.shapes import Shape


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that placing pods looks at and changes."""

    neighbours: Neighbours
    vacancies: Vacancies
    topology: Topology
    launching: Launching
    watch: Watch
    choices: Choices = field(default_factory=Choices)
    unsold: Unsold = field(default_factory=Unsold)
    result: Assignment = field(default_factory=Assignment)

    def domains(self, shape: Shape, plain: Shape | None = None) -> Domains:
        """Return the domains that pods of a shape may have as things stand."""
        return Domains(shape, plain or shape, self.topology, self.neighbours.sets, self.watch, self.launching)


class Placing:
    """The placing of pods of one shape. `shape` may ask for more than `plain`, which is what the pods really need.

    `siblings` must be able to come where the first of these pods goes, if all must be in one domain. With `only`
    they go to such rooms, and nothing is bought for them. With `present` they keep to values of a key that some
    node will have anyway. Pods that are the `last` heed no spreads of others: kube-scheduler asks for none.
    """

    def __init__(
        self,
        ground: Ground,
        shape: Shape,
        plain: Shape,
        siblings: Sequence[Shape] = (),
        only: Callable[[Room], bool] | None = None,
        present: Mapping[str, Collection[str]] | None = None,
        *,
        last: bool = False,
    ) -> None:
        self._ground, self._shape, self._plain, self._siblings = ground, shape, plain, siblings
        self._only, self._present = only, present
        self._domains = ground.domains(shape, plain)
        if last:
            self._domains.forget_others()
        self._bound = self._domains.bound if plain is shape else ground.domains(plain).bound
        self._avoided_zones = frozenset() if ZONE in self._bound else ground.launching.scarce_zones

    def place(self, pods: Sequence[Pod]) -> tuple[list[Pod], str]:
        """Place pods; give those left and why."""
        ground, domains = self._ground, self._domains
        if domains.follows_nobody:
            return list(pods), ""
        if not domains.keys:
            return self._place_anywhere(pods)
        rooms = self._rooms()
        launchable = self._launchable()
        if not (launchable or rooms or self._only or ground.launching.domains(self._shape, ())):
            return self._buy_anywhere(pods)
        domains.open(self._present, self._avoided_zones)
        open_ = [domain for domain in launchable if domains.allows(domain)] if self._only is None else []
        left = list(pods)
        if domains.is_first:
            chosen = self._first(len(left), rooms, open_)
            rooms = {d: found for d, found in rooms.items() if domains.follows(chosen, d)}
            open_ = [d for d in open_ if domains.follows(chosen, d)]
        if not domains.is_spread:  # then room that is paid for comes first
            left = self._share(left, rooms, ())
            rooms = {}
            if len(open_) > 1 and left:
                open_ = self._in_turn(open_, {})
        left = self._share(left, rooms, open_)
        return left, domains.why_none(launchable) if left else ""

    def _place_anywhere(self, pods: Sequence[Pod]) -> tuple[list[Pod], str]:
        left = self._fill(list(pods), self._candidates())
        return self._buy_anywhere(left) if left and self._only is None else (left, "")

    def _buy_anywhere(self, pods: Sequence[Pod]) -> tuple[list[Pod], str]:
        if self._shape is not self._plain and not self._ground.launching.domains(self._shape, ()):
            return list(pods), ""
        self._demand(pods, {})  # where nothing would do, whoever buys says why
        return [], ""

    def _launchable(self) -> Sequence[Domain]:
        """Return the domains in which nodes can be launched; for a mere wish only those where EC2 has enough."""
        domains, launching = self._domains, self._ground.launching
        found = launching.domains(self._shape, domains.keys)
        for key, values in (self._present or {}).items():
            if key in domains.keys:
                found = [domain for domain in found if domain[domains.keys.index(key)] in values]
        if ZONE not in domains.keys:
            return found
        axis = domains.keys.index(ZONE)
        return [domain for domain in found if domain[axis] not in self._avoided_zones] or found

    def _candidates(self) -> Iterator[Room]:
        labelled = {spread.topology_key for spread in keyed_spreads(self._shape)}
        for room in self._ground.vacancies.candidates(self._shape):
            if labelled <= room.labels.keys() and (self._only is None or self._only(room)):
                if self._ground.choices.pick(("rooms", self._plain), 2):
                    return
                yield room

    def _rooms(self) -> dict[Domain, list[Room]]:
        """Return the rooms that take such pods, tightest first, by domain."""
        found: dict[Domain, list[Room]] = {}
        for room in self._candidates():
            domain = tuple(room.labels.get(key, "") for key in self._domains.keys)
            if self._domains.allows(domain):
                found.setdefault(domain, []).append(room)
        return found

    def _first(
        self, count: int, rooms: Mapping[Domain, Sequence[Room]], open_: Iterable[Domain]
    ) -> Domain | None:
        """Choose where the first pod goes that all must follow: where most of them have room, else the cheapest."""
        ground, keys = self._ground, self._domains.keys
        launching = ground.launching
        candidates = sorted({*rooms, *open_})
        candidates = [d for d in candidates if all(tally.admits(d) for tally in self._domains.tallies)]
        for sibling in self._siblings:
            reachable = frozenset(launching.domains(sibling, keys))
            candidates = [d for d in candidates if d in reachable] or candidates

        def rank(domain: Domain) -> tuple[int, float, Domain]:
            price = fsum(launching.price(one, keys, domain) for one in (self._shape, *self._siblings))
            return -self._room(rooms.get(domain, ()), count), price, domain

        candidates.sort(key=rank)
        return next(iter(ground.choices.first(("first", self._plain), candidates)), None)

    def _room(self, rooms: Iterable[Room], wanted: int) -> int:
        return min(wanted, sum(self._capacity(room, wanted) for room in rooms))

    def _capacity(self, room: Room, wanted: int) -> int:
        count = self._ground.vacancies.capacity(room, self._shape, wanted)
        return self._ground.choices.some(("room", self._plain, room.name), count)

    def _share(
        self, pods: list[Pod], rooms: Mapping[Domain, Sequence[Room]], open_: Sequence[Domain]
    ) -> list[Pod]:
        """Share pods out over domains; what finds no room in its domain is bought for. Give those that are left."""
        if self._ground.unsold.is_empty:
            most: dict[Domain, int | None] = dict.fromkeys(open_)
        else:
            most = {domain: self._most(domain) for domain in open_}
        for domain, found in rooms.items():
            sold = most.get(domain, 0)
            if sold is not None:
                most[domain] = sold + self._room(found, len(pods))
        if self._domains.is_spread:
            most = {domain: most[domain] for domain in self._in_turn(most, rooms)}
        first = self._ground.choices.one(("filled", self._plain), most) if len(most) > 1 else None
        wanted = len(pods)
        for domain, share in share_out(wanted, self._domains.tallies, most, first).items():
            mine, pods = pods[:share], pods[share:]
            rest = self._fill(mine, rooms.get(domain, ()), wanted)
            if rest:
                self._demand(rest, self._domains.pins(domain))
        return pods

    def _in_turn(self, domains: Iterable[Domain], rooms: Mapping[Domain, Sequence[Room]]) -> list[Domain]:
        """Order domains: where there is most room, then where a new node is cheapest."""
        launching, keys = self._ground.launching, self._domains.keys
        free = {d: len(rooms.get(d, ())) for d in domains}
        alike = Counter(free.values())
        prices = {d: launching.price(self._shape, keys, d) for d, rooms_ in free.items() if alike[rooms_] > 1}
        ordered = sorted(free, key=lambda d: (-free[d], prices.get(d, 0.0), d))
        return self._ground.choices.first(("domain", self._plain), ordered)

    def _fill(self, pods: list[Pod], rooms: Iterable[Room], wanted: int = 0) -> list[Pod]:
        """Put pods into rooms, one after the other; give those that find none.

        Where rooms were asked before how many of `wanted` pods they take, each takes as many as it said.
        """
        ground = self._ground
        for room in rooms:
            if not pods:
                break
            count = min(len(pods), self._capacity(room, wanted or len(pods)))
            mine, pods = pods[:count], pods[count:]
            if mine:
                ground.vacancies.take(room, self._plain, count)
                ground.topology.add(room.labels, self._plain, count, room)
                ground.result.placed.setdefault(room.name, []).extend(pod.key for pod in mine)
        return pods

    def _demand(self, pods: Sequence[Pod], pins: Mapping[str, str]) -> None:
        """Demand nodes. What is not bound is for others' sake, or only wished for: better elsewhere than nowhere."""
        bound = FrozenMap({key: value for key, value in pins.items() if key in self._bound})
        is_wish = self._shape is not self._plain or len(bound) < len(pins)
        shape = self._counting(pins)
        fallback = Demand(self._plain, (), bound) if is_wish or shape is not self._shape else None
        demand = Demand(shape, tuple(pods), FrozenMap(pins) if pins else NO_ITEMS, fallback=fallback)
        self._ground.result.demands.append(demand)
        self._ground.topology.add(pins, self._plain, len(pods), bought_as=shape)

    def _most(self, domain: Domain) -> int | None:
        """Return how many pods may be bought for in a domain, None for any number."""
        pins, demanded = self._domains.pins(domain), self._ground.result.demands
        return self._ground.unsold.most(self._plain, self._counting(pins), pins, demanded)

    def _counting(self, pins: Mapping[str, str]) -> Shape:
        """Return the shape to buy for, where spreads of others may or may not look at a node of these pods.

        Usually it is on nodes that count for all of them, if there are such: then all is known.
        """
        ground = self._ground
        views = undecided(self._shape, ground.watch.rules_over(self._plain), pins)
        if not views:
            return self._shape
        keys, values = tuple(pins), tuple(pins.values())

        def is_sold(shape: Shape) -> bool:
            return values in ground.launching.domains(shape, keys)

        shown, hidden = narrowed(self._shape, views), kept_out(self._shape, views, pins, is_sold)
        sold = list(dict.fromkeys((*filter(is_sold, (shown,)), self._shape, hidden)))
        shape = sold[ground.choices.pick(("counted", self._plain), len(sold))]
        if shape is self._shape or ground.unsold.most(self._plain, shape, pins) is not None:
            return self._shape
        ground.neighbours.sets.liken(shape, self._shape)
        return shape
