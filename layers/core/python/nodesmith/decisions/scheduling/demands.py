"""From pending pods to demands: pods go to nodes that are there or coming, the rest becomes what must be bought."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.decisions.scheduling.neighbours import (
    UNLIMITED,
    counted,
    matching,
    per_node_cap,
    room_capacity,
)
from nodesmith.decisions.scheduling.rooms import Room, by_age
from nodesmith.decisions.scheduling.spread import ZoneCounts, blocking_zone, share_out, zone_counts
from nodesmith.model.labels import ZONE
from nodesmith.model.pods import Pod
from nodesmith.model.shapes import Shape, Spread


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods alike that need new nodes. `zone` pins them (None: any); one node takes `per_node` of them at most.

    Only demands of the same `company` may share a node.
    """

    shape: Shape
    pods: tuple[Pod, ...]
    zone: str | None = None
    per_node: int = UNLIMITED
    company: str = ""


@dataclass(slots=True)
class Assignment:
    """What came of the pending pods. `placed` is pods by room name, `stuck` pods with the reason."""

    placed: dict[str, list[str]] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    stuck: list[tuple[tuple[Pod, ...], str]] = field(default_factory=list)

    def place(self, room: Room, pods: Sequence[Pod]) -> None:
        """Put pods into a room."""
        if pods:
            room.take(pods[0].shape, len(pods))
            self.placed.setdefault(room.name, []).extend(pod.key for pod in pods)


def by_shape(pods: Iterable[Pod]) -> list[tuple[Shape, list[Pod]]]:
    """Group pods by shape: largest cpu first, then largest memory, then the oldest pod (Karpenter's queue order)."""
    groups: dict[Shape, list[Pod]] = {}
    for pod in by_age(pods):
        groups.setdefault(pod.shape, []).append(pod)
    return sorted(
        groups.items(),
        key=lambda g: (
            -g[0].requests.cpu_milli,
            -g[0].requests.memory_bytes,
            g[1][0].created_at,
            g[1][0].key,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """The pods of one shape, where they may go, and the spreads over zones that they keep to."""

    shape: Shape
    pods: list[Pod]
    zones: Sequence[str]
    fitting: Sequence[Room]
    constraints: Sequence[ZoneCounts]
    company: str

    def demand(self, pods: Sequence[Pod], zone: str | None) -> Demand:
        """Give what must be bought for some of the pods."""
        return Demand(self.shape, tuple(pods), zone, per_node_cap(self.shape), self.company)


def assign(
    pending: Iterable[Pod],
    rooms: Sequence[Room],
    launchable_zones: Callable[[Shape], Sequence[str]],
    separate: Mapping[Shape, str],
    scarce_zones: Collection[str] = (),
) -> Assignment:
    """Assign pods to rooms and turn the rest into demands.

    `launchable_zones` gives the zones in which some NodePool can launch a node for a shape; `separate` names shapes
    that may share a node with nobody outside their company. Where EC2 lately had little (`scarce_zones`), a spread
    that is only wished for gives way.
    """
    result = Assignment()
    for shape, pods in by_shape(pending):
        spreads = [s for s in shape.spreads if s.topology_key == ZONE]
        zones = launchable_zones(shape)
        constraints = [
            zone_counts(s, shape, _matching_by_zone(s, shape, rooms, result.demands), zones) for s in spreads
        ]
        fitting = [room for room in rooms if room_capacity(room, shape, 1)]
        task = _Task(shape, pods, zones, fitting, constraints, separate.get(shape, ""))
        if any(s.hard for s in spreads):
            _spread_hard(task, result)
        else:
            _spread_soft(task, scarce_zones, result)
    return result


def _spread_hard(task: _Task, result: Assignment) -> None:
    room: dict[str, int | None] = {}
    for candidate in task.fitting:
        zone = candidate.labels.get(ZONE, "")
        room[zone] = (room.get(zone) or 0) + room_capacity(candidate, task.shape, len(task.pods))
    room = {zone: amount for zone, amount in room.items() if zone} | dict.fromkeys(task.zones)
    shares = share_out(len(task.pods), task.constraints, dict(sorted(room.items())))
    waiting = list(task.pods)
    for zone, share in shares.items():
        mine, waiting = waiting[:share], waiting[share:]
        rest = _fill_rooms(mine, [r for r in task.fitting if r.labels.get(ZONE) == zone], result)
        if rest:
            result.demands.append(task.demand(rest, zone))
    if waiting:
        result.stuck.append((tuple(waiting), blocking_zone(task.constraints)))


def _spread_soft(task: _Task, scarce_zones: Collection[str], result: Assignment) -> None:
    """Without a hard spread, room that is paid for is used first; ScheduleAnyway then spreads what must be bought."""
    waiting = _fill_rooms(task.pods, task.fitting, result, task.constraints)
    if not waiting:
        return
    if not task.constraints or not task.zones:
        result.demands.append(task.demand(waiting, None))
        return
    zones = [zone for zone in sorted(task.zones) if zone not in scarce_zones] or sorted(task.zones)
    shares = share_out(len(waiting), task.constraints, dict.fromkeys(zones))
    for zone, share in shares.items():
        mine, waiting = waiting[:share], waiting[share:]
        if mine:
            result.demands.append(task.demand(mine, zone))


def _fill_rooms(
    pods: Sequence[Pod],
    fitting: Sequence[Room],
    result: Assignment,
    constraints: Sequence[ZoneCounts] = (),
) -> list[Pod]:
    waiting = list(pods)
    for room in fitting:
        if not waiting:
            break
        count = room_capacity(room, waiting[0].shape, len(waiting))
        mine, waiting = waiting[:count], waiting[count:]
        result.place(room, mine)
        for constraint in constraints:
            for _ in mine:
                constraint.add(room.labels.get(ZONE, ""))
    return waiting


def _matching_by_zone(
    spread: Spread, shape: Shape, rooms: Iterable[Room], demands: Iterable[Demand]
) -> dict[str, int]:
    """Count matching pods per zone, over the nodes that the spread looks at (nodeAffinityPolicy, nodeTaintsPolicy).

    Nodes about to be bought for earlier pods count where their zone is settled.
    """
    found: dict[str, int] = {}
    for room in rooms:
        zone = room.labels.get(ZONE)
        if zone and room.counts_for(spread, shape):
            found[zone] = found.get(zone, 0) + matching(spread, shape, room)
    for demand in demands:
        if demand.zone and counted(spread, shape, demand.shape):
            found[demand.zone] = found.get(demand.zone, 0) + len(demand.pods)
    return found
