"""What stands: every room of a large cluster, as few as a trial needs of them.

A trial needs the rooms that may take one of its pods, and of the others only how many pods are where, for spreads and
affinity to count. So these are merged: nodes that no rule can tell apart become one, without room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.nodes.existing import Room
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.resources import NOTHING
from nodesmith.model.apimachinery.taints import Taint, Toleration
from nodesmith.model.kubernetes.shapes import Shape

MOST_ROOMS = 160
"""How many rooms a trial may fill, the largest that take any of its pods."""
_CPU_WORTH, _MEMORY_WORTH = 1 / 1000, 1 / 2**32
"""of a milli-cpu and a byte, in the size of rooms: 1 cpu is held to be worth 4 GiB"""
_Look = tuple[tuple[Taint, ...], tuple[str | None, ...]]
_Asks = tuple[tuple[Requirements, ...], tuple[Toleration, ...]]


class Standing:
    """Rooms by name. `closed` are those that take no pods of disrupted nodes, full or not."""

    def __init__(self, rooms: Iterable[Room], closed: Collection[str], shapes: Iterable[Shape]) -> None:
        self.rooms = {room.name: room for room in rooms}
        self.closed = set(closed)
        self._keys = _telling(shapes)
        self._looks: dict[str, _Look] = {}
        self._alike: dict[_Look, dict[str, Room]] = {}
        self._hosted: dict[_Look, Counter[Shape]] = {}
        self._leaving: dict[_Look, Counter[Shape]] = {}
        self._admitted: dict[tuple[_Asks, _Look], bool] = {}
        for room in self.rooms.values():
            self._add(room)

    def without(self, gone: Collection[str], shapes: Collection[Shape]) -> list[Room]:
        """Return the rooms for a trial with pods of these shapes, some Nodes (by name) being gone.

        They may be filled.
        """
        opened = self.opened(shapes, frozenset(gone))
        apart: dict[_Look, list[Room]] = {}
        for room in (*opened, *(self.rooms[name] for name in gone if name in self.rooms)):
            apart.setdefault(self._looks[room.name], []).append(room)
        merged = [self._merged(look, apart.get(look, ())) for look in self._alike]
        return [room.copy() for room in opened] + [room for room in merged if room is not None]

    def drop(self, name: str) -> None:
        """Forget a room: its node is gone."""
        room = self.rooms.pop(name, None)
        if room is not None:
            look = self._looks.pop(name)
            del self._alike[look][name]
            self._hosted[look].subtract(room.hosted)
            self._leaving[look].subtract(room.leaving)

    def put(self, room: Room) -> None:
        """Have a room as it is now, or one that is new."""
        self.drop(room.name)
        self.rooms[room.name] = room
        self._add(room)

    def _add(self, room: Room) -> None:
        look = room.taints, tuple(room.labels.get(key) for key in self._keys)
        self._looks[room.name] = look
        self._alike.setdefault(look, {})[room.name] = room
        self._hosted.setdefault(look, Counter()).update(room.hosted)
        self._leaving.setdefault(look, Counter()).update(room.leaving)

    def opened(self, shapes: Collection[Shape], gone: frozenset[str] = frozenset()) -> list[Room]:
        """Return the rooms that take a pod of one of these shapes, the largest first, as many as a trial may fill."""
        kinds: dict[_Asks, list[Shape]] = {}
        for shape in shapes:
            kinds.setdefault((shape.terms, shape.tolerations), []).append(shape)
        found: list[Room] = []
        for look, alike in self._alike.items():
            wanted = [
                one for asks, mine in kinds.items() if self._admits(asks, look, mine[0]) for one in mine
            ]
            if wanted:
                least = min(shape.requests.cpu_milli for shape in wanted)
                found += [
                    room
                    for name, room in alike.items()
                    if name not in gone
                    and name not in self.closed
                    and room.free.cpu_milli >= least
                    and any(room.fits(shape, 1) for shape in wanted)
                ]
        found.sort(key=_size)
        return found[:MOST_ROOMS]

    def _admits(self, asks: _Asks, look: _Look, shape: Shape) -> bool:
        key = asks, look
        if key not in self._admitted:
            self._admitted[key] = any(room.admits(shape) for room in list(self._alike[look].values())[:1])
        return self._admitted[key]

    def _merged(self, look: _Look, apart: Sequence[Room]) -> Room | None:
        """Return one room without room for all that look alike, but for some; None where nobody is left."""
        alike = self._alike[look]
        if len(alike) <= len(apart):
            return None
        hosted, leaving = Counter(self._hosted[look]), Counter(self._leaving[look])
        for room in apart:
            hosted.subtract(room.hosted)
            leaving.subtract(room.leaving)
        other = {room.name for room in apart}
        first = next(room for name, room in alike.items() if name not in other)
        return replace(first, free=NOTHING, hosted=+hosted, leaving=+leaving, expected=())


def _telling(shapes: Iterable[Shape]) -> tuple[str, ...]:
    """Return the labels by which rules tell nodes apart."""
    found: set[str] = set()
    for shape in dict.fromkeys(shapes):
        found.update(spread.topology_key for spread in shape.spreads)
        found.update(term.topology_key for term in shape.affinities)
        wished = (term for _, term in shape.preferred_terms)
        found.update(key for term in (*shape.terms, *shape.own_terms, *wished) for key in term)
    named = any(HOSTNAME in term for shape in shapes for term in (*shape.terms, *shape.own_terms))
    return tuple(sorted(found if named else found - {HOSTNAME}))


def _size(room: Room) -> tuple[float, str]:
    free = room.free
    return -(free.cpu_milli * _CPU_WORTH + free.memory_bytes * _MEMORY_WORTH), room.name
