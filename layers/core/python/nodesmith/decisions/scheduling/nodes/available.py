"""Room on nodes that are there or coming, and who may still have it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from nodesmith.decisions.packing.sharing import Sharing
from nodesmith.decisions.scheduling.nodes.conflicts import Neighbours
from nodesmith.decisions.scheduling.nodes.existing import Room
from nodesmith.model.kubernetes.shapes import Shape


class Vacancies:
    """Rooms, tightest first, so that large ones stay free for large pods; those in flight come last."""

    def __init__(self, rooms: Sequence[Room], neighbours: Neighbours) -> None:
        self.rooms = {room.name: room for room in rooms}
        self._neighbours = neighbours
        self._company: dict[str, Sharing] = {}
        self._order = sorted(_rank(room) for room in rooms)
        self._admitted: dict[tuple[object, ...], dict[tuple[object, ...], bool]] = {}

    def candidates(self, shape: Shape) -> Iterator[Room]:
        """Yield the rooms that take at least one pod of a shape, tightest first, as they were when this was asked."""
        cpu = max(0, shape.requests.cpu_milli)
        for in_flight in (False, True):
            start = bisect_left(self._order, (in_flight, cpu) if cpu else (in_flight,))
            end = bisect_left(self._order, (True,)) if not in_flight else len(self._order)
            for rank in self._order[start:end]:
                room = self.rooms[rank[-1]]
                if self.capacity(room, shape, 1):
                    yield room

    def capacity(self, room: Room, shape: Shape, wanted: int) -> int:
        """Return how many of `wanted` pods a room takes, all rules of the node considered."""
        count = room.fits(shape, wanted)
        if not count or not self._admits(room, shape):
            return 0
        return self._company_of(room).capacity(self._neighbours.rules(shape), count)

    def take(self, room: Room, shape: Shape, count: int) -> None:
        """Assign pods of a shape to a room."""
        company = self._company_of(room)
        del self._order[bisect_left(self._order, _rank(room))]
        room.take(shape, count)
        insort(self._order, _rank(room))
        company.hold(self._neighbours.rules(shape), count)

    def _admits(self, room: Room, shape: Shape) -> bool:
        """Ask a room whether it admits a shape, once for all rooms that look the same to it."""
        if not room.taints and not any(shape.terms):
            return bool(shape.terms)
        known = self._admitted.setdefault((shape.terms, shape.tolerations), {})
        keys = {key for term in shape.terms for key in term}
        looks = room.taints, *(room.labels.get(key) for key in sorted(keys))
        if looks not in known:
            known[looks] = room.admits(shape)
        return known[looks]

    def _company_of(self, room: Room) -> Sharing:
        """Return whom a room holds; most rooms are never asked."""
        known = self._company.get(room.name)
        if known is not None:
            return known
        company = self._company[room.name] = Sharing()
        for shape, count in room.hosted.items():
            rules = self._neighbours.rules(shape, running=True)
            company.hold(rules, count)
            left = room.leaving[shape]
            for group in rules.groups if left else ():
                if not self._neighbours.counts_leaving(group):
                    company.held[group] -= left
        for shape in room.expected:
            company.hold(self._neighbours.rules(shape, running=True), 1)
        return company


def _rank(room: Room) -> tuple[bool, int, int, str]:
    return room.in_flight, room.free.cpu_milli, room.free.memory_bytes, room.name
