"""From pending pods to demands: pods go to nodes that are there or coming, the rest becomes what must be bought."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from nodesmith.decisions.scheduling.demands import Assignment, Demand, by_shape
from nodesmith.decisions.scheduling.neighbours import Neighbours
from nodesmith.decisions.scheduling.rooms import Room
from nodesmith.decisions.scheduling.sharing import shared
from nodesmith.decisions.scheduling.spread import ZoneCounts, blocking_zone, share_out, zone_counts
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.decisions.scheduling.vacancies import Vacancies
from nodesmith.model.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.labels import ZONE
from nodesmith.model.pods import Pod
from nodesmith.model.shapes import Shape, Spread


@dataclass(frozen=True, slots=True)
class _Task:
    """The pods of one shape, where they may go, and the spreads over zones that they keep to."""

    shape: Shape
    pods: list[Pod]
    zones: Sequence[str]
    vacancies: Vacancies
    fitting: Sequence[Room]
    constraints: Sequence[ZoneCounts]


def assign(
    pending: Iterable[Pod],
    rooms: Sequence[Room],
    launchable_zones: Callable[[Shape], Sequence[str]],
    templates: Sequence[Template] = (),
    daemonsets: Sequence[Shape] = (),
    scarce_zones: Collection[str] = (),
) -> Assignment:
    """Assign pods to rooms and turn the rest into demands.

    `launchable_zones` gives the zones in which some NodePool can launch a node for a shape. Where EC2 lately had
    little (`scarce_zones`), a spread that is only wished for gives way.
    """
    result = Assignment()
    waiting = by_shape(pending)
    there = [shape for room in rooms for shape in (*room.hosted, *room.expected)]
    neighbours = Neighbours([*(shape for shape, _ in waiting), *daemonsets, *there])
    vacancies = Vacancies(rooms, neighbours)
    for shape, pods in waiting:
        spreads = [s for s in shape.spreads if s.topology_key == ZONE]
        zones = launchable_zones(shape)
        constraints = [
            zone_counts(s, shape, _matching_by_zone(s, shape, rooms, result.demands, neighbours), zones)
            for s in spreads
        ]
        task = _Task(shape, pods, zones, vacancies, vacancies.fitting(shape), constraints)
        if any(s.hard for s in spreads):
            _spread_hard(task, result)
        else:
            _spread_soft(task, scarce_zones, result)
    result.demands = shared(result.demands, neighbours, templates, daemonsets)
    return result


def _spread_hard(task: _Task, result: Assignment) -> None:
    room: dict[str, int | None] = {}
    for candidate in task.fitting:
        zone = candidate.labels.get(ZONE, "")
        room[zone] = (room.get(zone) or 0) + task.vacancies.capacity(candidate, task.shape, len(task.pods))
    room = {zone: amount for zone, amount in room.items() if zone} | dict.fromkeys(task.zones)
    shares = share_out(len(task.pods), task.constraints, dict(sorted(room.items())))
    waiting = list(task.pods)
    for zone, share in shares.items():
        mine, waiting = waiting[:share], waiting[share:]
        rest = _fill_rooms(mine, [r for r in task.fitting if r.labels.get(ZONE) == zone], task, result)
        if rest:
            result.demands.append(Demand(task.shape, tuple(rest), FrozenMap({ZONE: zone})))
    if waiting:
        result.stuck.append((tuple(waiting), blocking_zone(task.constraints)))


def _spread_soft(task: _Task, scarce_zones: Collection[str], result: Assignment) -> None:
    """Without a hard spread, room that is paid for is used first; ScheduleAnyway then spreads what must be bought."""
    waiting = _fill_rooms(task.pods, task.fitting, task, result, task.constraints)
    if not waiting:
        return
    if not task.constraints or not task.zones:
        result.demands.append(Demand(task.shape, tuple(waiting), NO_ITEMS))
        return
    zones = [zone for zone in sorted(task.zones) if zone not in scarce_zones] or sorted(task.zones)
    shares = share_out(len(waiting), task.constraints, dict.fromkeys(zones))
    for zone, share in shares.items():
        mine, waiting = waiting[:share], waiting[share:]
        if mine:
            result.demands.append(Demand(task.shape, tuple(mine), FrozenMap({ZONE: zone})))


def _fill_rooms(
    pods: Sequence[Pod],
    fitting: Sequence[Room],
    task: _Task,
    result: Assignment,
    constraints: Sequence[ZoneCounts] = (),
) -> list[Pod]:
    waiting = list(pods)
    for room in fitting:
        if not waiting:
            break
        count = task.vacancies.capacity(room, task.shape, len(waiting))
        mine, waiting = waiting[:count], waiting[count:]
        result.place(task.vacancies, room, mine)
        for constraint in constraints:
            for _ in mine:
                constraint.add(room.labels.get(ZONE, ""))
    return waiting


def _matching_by_zone(
    spread: Spread, shape: Shape, rooms: Iterable[Room], demands: Iterable[Demand], neighbours: Neighbours
) -> dict[str, int]:
    """Count matching pods per zone, over the nodes that the spread looks at (nodeAffinityPolicy, nodeTaintsPolicy).

    Nodes about to be bought for earlier pods count where their zone is settled.
    """
    counted = neighbours.sets.selected(spread.selector, frozenset((shape.namespace,)))
    found: dict[str, int] = {}
    for room in rooms:
        zone = room.labels.get(ZONE)
        if zone and room.counts_for(spread, shape):
            found[zone] = found.get(zone, 0) + sum(
                count - room.leaving[other]
                for other, count in room.hosted.items()
                if counted >> neighbours.sets.number(other) & 1
            )
    for demand in demands:
        if demand.zone and counted >> neighbours.sets.number(demand.shape) & 1:
            found[demand.zone] = found.get(demand.zone, 0) + len(demand.pods)
    return found
