"""From pending pods to demands: pods go to nodes that are there or coming, the rest becomes what must be bought."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.decisions.scheduling.rooms import Room, by_age
from nodesmith.decisions.scheduling.spread import (
    ZoneCounts,
    blocking_zone,
    selects_self,
    share_out,
    zone_counts,
)
from nodesmith.model.labels import HOSTNAME, ZONE
from nodesmith.model.pods import Pod
from nodesmith.model.shapes import Shape, Spread

UNLIMITED = 2**31
HostPort = tuple[str, int, str]
_EVERY_IP = frozenset({"0.0.0.0", "::"})  # noqa: S104 (read from pods, not bound)


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


def assign(
    pending: Iterable[Pod],
    rooms: Sequence[Room],
    launchable_zones: Callable[[Shape], Sequence[str]],
    separate: Mapping[Shape, str],
) -> Assignment:
    """Assign pods to rooms and turn the rest into demands.

    `launchable_zones` gives the zones in which some NodePool can launch a node for a shape; `separate` names shapes
    that may share a node with nobody outside their company.
    """
    result = Assignment()
    for shape, pods in by_shape(pending):
        zone_spreads = [s for s in shape.spreads if s.topology_key == ZONE]
        zones = launchable_zones(shape)
        fitting = [room for room in rooms if room_capacity(room, shape, 1)]
        constraints = [
            zone_counts(s, shape, _matching_by_zone(s, shape, rooms, result.demands), zones)
            for s in zone_spreads
        ]
        if any(s.hard for s in zone_spreads):
            _spread_hard(shape, pods, zones, fitting, constraints, separate.get(shape, ""), result)
        else:
            _spread_soft(shape, pods, zones, fitting, constraints, separate.get(shape, ""), result)
    return result


def _spread_hard(
    shape: Shape,
    pods: list[Pod],
    zones: Sequence[str],
    fitting: Sequence[Room],
    constraints: Sequence[ZoneCounts],
    company: str,
    result: Assignment,
) -> None:
    room: dict[str, int | None] = {}
    for candidate in fitting:
        zone = candidate.labels.get(ZONE, "")
        room[zone] = (room.get(zone) or 0) + room_capacity(candidate, shape, len(pods))
    room = {zone: amount for zone, amount in room.items() if zone} | dict.fromkeys(zones)
    shares = share_out(len(pods), constraints, dict(sorted(room.items())))
    waiting = list(pods)
    for zone, share in shares.items():
        mine, waiting = waiting[:share], waiting[share:]
        rest = _fill_rooms(mine, [r for r in fitting if r.labels.get(ZONE) == zone], result)
        if rest:
            result.demands.append(Demand(shape, tuple(rest), zone, per_node_cap(shape), company))
    if waiting:
        result.stuck.append((tuple(waiting), blocking_zone(constraints)))


def _spread_soft(
    shape: Shape,
    pods: list[Pod],
    zones: Sequence[str],
    fitting: Sequence[Room],
    constraints: Sequence[ZoneCounts],
    company: str,
    result: Assignment,
) -> None:
    """Without a hard spread, room that is paid for is used first; ScheduleAnyway then spreads what must be bought."""
    waiting = _fill_rooms(pods, fitting, result, constraints)
    cap = per_node_cap(shape)
    if not constraints or not zones:
        if waiting:
            result.demands.append(Demand(shape, tuple(waiting), None, cap, company))
        return
    shares = share_out(len(waiting), constraints, dict.fromkeys(sorted(zones)))
    for zone, share in shares.items():
        mine, waiting = waiting[:share], waiting[share:]
        if mine:
            result.demands.append(Demand(shape, tuple(mine), zone, cap, company))


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


def room_capacity(room: Room, shape: Shape, wanted: int) -> int:
    """Give how many of `wanted` pods a room takes, all rules of the node considered but spread over zones."""
    count = room.fits(shape, wanted)
    if not count or not room.admits(shape) or _excluded(room, shape):
        return 0
    for spread in hostname_spreads(shape):
        spare = spread.max_skew - _matching(spread, shape, room)
        count = min(count, spare) if selects_self(spread, shape) else count if spare >= 0 else 0
    if per_node_cap(shape) == 1:
        count = min(count, 1 - room.hosted[shape])
    return max(0, count)


def per_node_cap(shape: Shape) -> int:
    """Give how many pods of this shape one new node may hold: host ports, own anti-affinity, spread over hostnames."""
    caps = [s.max_skew for s in hostname_spreads(shape) if selects_self(s, shape)]
    return min([1 if in_conflict(shape, shape) else UNLIMITED, *caps])


def hostname_spreads(shape: Shape) -> list[Spread]:
    """Give the hard spreads over nodes."""
    return [s for s in shape.spreads if s.hard and s.topology_key == HOSTNAME]


def _excluded(room: Room, shape: Shape) -> bool:
    hosted = (other for other, count in room.hosted.items() if count and other is not shape)
    return any(in_conflict(shape, other) for other in (*hosted, *room.expected))


def in_conflict(shape: Shape, other: Shape) -> bool:
    """Tell whether pods of these two shapes may not share a node: host ports, or anti-affinity either way."""
    return ports_collide(shape.host_ports, other.host_ports) or _repels(shape, other) or _repels(other, shape)


def ports_collide(some: Iterable[HostPort], others: Sequence[HostPort]) -> bool:
    """Tell whether two sets of host ports (ip, port, protocol) cannot be had on one node; 0.0.0.0 means every ip."""
    return any(
        (port, protocol) == (other_port, other_protocol)
        and (ip == other_ip or not _EVERY_IP.isdisjoint((ip, other_ip)))
        for ip, port, protocol in some
        for other_ip, other_port, other_protocol in others
    )


def _repels(shape: Shape, other: Shape) -> bool:
    return any(
        term.anti
        and term.selector is not None
        and (term.all_namespaces or other.namespace in (term.namespaces or (shape.namespace,)))
        and term.selector.matches(other.labels)
        for term in shape.affinities
    )


def _matching(spread: Spread, shape: Shape, room: Room) -> int:
    return sum(
        count - room.leaving[other] for other, count in room.hosted.items() if counted(spread, shape, other)
    )


def counted(spread: Spread, shape: Shape, other: Shape) -> bool:
    """Tell whether a spread of `shape` counts pods of `other`: selected, and of the same namespace."""
    return (
        spread.selector is not None
        and other.namespace == shape.namespace
        and spread.selector.matches(other.labels)
    )


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
            found[zone] = found.get(zone, 0) + _matching(spread, shape, room)
    for demand in demands:
        if demand.zone and counted(spread, shape, demand.shape):
            found[demand.zone] = found.get(demand.zone, 0) + len(demand.pods)
    return found
