"""Pods that must share a node with others: they go where these run, or are bought for as one thing with them.

kube-scheduler lets a pod with required affinity over the hostname only onto a node with a matching pod; where there is
none anywhere, the first of pods that match their own term may start on any node, and the others must follow it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.following import followed
from nodesmith.decisions.scheduling.placing import Ground, Placing
from nodesmith.decisions.scheduling.rooms import Room
from nodesmith.decisions.scheduling.topology import attractions
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.labels import HOSTNAME
from nodesmith.model.pods import Pod
from nodesmith.model.resources import total
from nodesmith.model.shapes import Shape

_MOST_ALTERNATIVES = 32


def shares_node(shape: Shape) -> bool:
    """Tell whether pods of a shape must be on a node with others."""
    return any(term.topology_key == HOSTNAME for term in attractions(shape))


class Together:
    """The placing of pods that must share a node; `flock` are all that follow the same pods, those of `shape` first."""

    def __init__(
        self, ground: Ground, shape: Shape, plain: Shape, flock: Sequence[tuple[Shape, list[Pod]]]
    ) -> None:
        self._ground, self._shape, self._plain, self._flock = ground, shape, plain, flock
        sets = ground.neighbours.sets
        self._leaders = followed(shape, sets)
        self._is_own_leader = bool(self._leaders >> sets.number(shape) & 1)

    @property
    def follows_nobody(self) -> bool:
        """True where nobody they must share a node with has a place, and they are not of that kind themselves."""
        return not self._is_own_leader and not self._hosts() and not any(self._hosting())

    def place(self) -> dict[Shape, tuple[list[Pod], str]]:
        """Place pods; give by shape those left and why. Others of the flock are only placed with the first of all."""
        pods = list(self._flock[0][1])
        hosts, hosting = self._hosts(), list(self._hosting())
        if not hosts and not hosting and self._is_own_leader:
            return self._start()
        placing = Placing(self._ground, self._shape, self._plain, only=lambda room: room.name in hosts)
        left, _ = placing.place(pods)
        for demand in hosting:
            left = self._join(demand, left, sum(len(d.pods) // d.unit for d in hosting))
        why = f"required pod affinity over {HOSTNAME}: the nodes with matching pods have no room for them"
        return {self._plain: (left, why if left else "")}

    def _matches(self, shape: Shape) -> bool:
        return bool(self._leaders >> self._ground.neighbours.sets.number(shape) & 1)

    def _hosts(self) -> frozenset[str]:
        """Give the rooms that hold a matching pod."""
        rooms = self._ground.vacancies.rooms.values()
        return frozenset(r.name for r in rooms if any(n and self._matches(s) for s, n in r.hosted.items()))

    def _hosting(self) -> Iterator[Demand]:
        """Give the demands for nodes that will hold a matching pod."""
        return (d for d in self._ground.result.demands if any(map(self._matches, d.members or (d.shape,))))

    def _join(self, demand: Demand, pods: list[Pod], places: int) -> list[Pod]:
        """Add pods to those of a demand, as many to each as must be so that all find one; give those left."""
        each = -(-len(pods) // places)
        while each and not self._is_possible(self._united(demand, each), demand.pins):
            each //= 2
        if not each:
            return pods
        demands = self._ground.result.demands
        units = min(len(pods) // each, len(demand.pods) // demand.unit)
        at = demands.index(demand)
        taken = units * demand.unit
        joined = [
            pod
            for n in range(units)
            for pod in (
                *demand.pods[n * demand.unit : (n + 1) * demand.unit],
                *pods[n * each : (n + 1) * each],
            )
        ]
        rest = replace(demand, pods=demand.pods[taken:])
        demands[at : at + 1] = [
            replace(self._united(demand, each), pods=tuple(joined)),
            *([rest] if rest.pods else []),
        ]
        self._ground.topology.add(demand.pins, self._plain, units * each)
        left = pods[units * each :]
        return self._join(rest, left, 1) if left and rest.pods and len(left) < each else left

    def _united(self, demand: Demand, each: int) -> Demand:
        members = demand.members or (demand.shape,)
        return self._unit((*members, *(self._shape,) * each), demand.pins)

    def _unit(self, members: Sequence[Shape], pins: FrozenMap[str]) -> Demand:
        shape = united(members)
        self._ground.neighbours.unite(shape, members)
        return Demand(shape, (), pins, unit=len(members), members=tuple(members))

    def _is_possible(self, unit: Demand, pins: FrozenMap[str]) -> bool:
        if not self._ground.neighbours.may_share(unit.members):
            return False
        keys = tuple(sorted(pins))
        return tuple(pins[key] for key in keys) in self._ground.launching.domains(unit.shape, keys)

    def _start(self) -> dict[Shape, tuple[list[Pod], str]]:
        """Put all of the flock, or as many as one node can hold, into the tightest room or onto one new node."""
        queue = [(shape, pod) for shape, pods in self._flock for pod in pods]
        room = self._room_for(queue)
        count = len(queue)
        if room is None:
            count = self._most_on_one_node(queue)
            if count:
                self._buy(queue[:count])
        else:
            for shape, number in Counter(shape for shape, _ in queue).items():
                self._ground.vacancies.take(room, shape, number)
                self._ground.topology.add(room.labels, shape, number, room)
            self._ground.result.placed.setdefault(room.name, []).extend(pod.key for _, pod in queue)
        left: dict[Shape, tuple[list[Pod], str]] = {shape: ([], "") for shape, _ in self._flock}
        why = f"required pod affinity over {HOSTNAME}: all must share one node, and none holds more than {count}"
        for shape, pod in queue[count:]:
            left[shape] = ([*left[shape][0], pod], why)
        return left

    def _room_for(self, queue: Sequence[tuple[Shape, Pod]]) -> Room | None:
        unit = self._unit([shape for shape, _ in queue], FrozenMap())
        if not self._ground.neighbours.may_share(unit.members):
            return None
        domains = self._ground.domains(self._plain)
        for room in self._ground.vacancies.candidates(unit.shape):
            domain = tuple(room.labels.get(key, "") for key in domains.keys)
            if domains.allows(domain) and all(tally.admits(domain) for tally in domains.tallies):
                return room
        return None

    def _most_on_one_node(self, queue: Sequence[tuple[Shape, Pod]]) -> int:
        least, most = 0, len(queue)
        while least < most:
            middle = (least + most + 1) // 2
            if self._domain(queue[:middle]) is None:
                most = middle - 1
            else:
                least = middle
        return least

    def _domain(self, queue: Sequence[tuple[Shape, Pod]]) -> dict[str, str] | None:
        """Give the labels of the cheapest domain in which one node can hold these pods, None where there is none."""
        unit = self._unit([shape for shape, _ in queue], FrozenMap())
        if not self._ground.neighbours.may_share(unit.members):
            return None
        domains, launching = self._ground.domains(self._plain), self._ground.launching
        found = launching.domains(unit.shape, domains.keys)
        domains.opened(launching.domains(self._plain, domains.keys))
        open_ = [d for d in found if domains.allows(d) and all(t.admits(d) for t in domains.tallies)]
        if not open_:
            return None
        return domains.pins(min(open_, key=lambda d: (launching.price(unit.shape, domains.keys, d), d)))

    def _buy(self, queue: Sequence[tuple[Shape, Pod]]) -> None:
        pins = self._domain(queue) or {}
        unit = self._unit([shape for shape, _ in queue], FrozenMap(pins))
        is_wish = self._shape is not self._plain
        fallback = Demand(self._plain, ()) if is_wish else None
        self._ground.result.demands.append(
            replace(unit, pods=tuple(pod for _, pod in queue), fallback=fallback)
        )
        for shape, number in Counter(shape for shape, _ in queue).items():
            self._ground.topology.add(pins, shape, number)


def united(members: Sequence[Shape]) -> Shape:
    """Give one shape for pods that come together: it asks for what all ask, and tolerates what all tolerate."""
    kinds = list(dict.fromkeys(members))
    terms = kinds[0].terms
    for one in kinds[1:]:
        terms = tuple(
            own.union(other)
            for own in terms
            for other in one.terms
            if own.conflict(other, undefined=frozenset(other)) is None
        )[:_MOST_ALTERNATIVES]
    first = kinds[0]
    return Shape(
        namespace=first.namespace,
        labels=first.labels,
        owner=first.owner,
        requests=total([shape.requests for shape in members]),
        terms=terms,
        own_terms=terms,
        tolerations=tuple(t for t in first.tolerations if all(t in one.tolerations for one in kinds)),
        host_ports=tuple(port for shape in members for port in shape.host_ports),
    )
