"""Who may share a node with whom: host ports, anti-affinity, and spreads over nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodesmith.decisions.scheduling.rooms import Room
from nodesmith.decisions.scheduling.spread import selects_self
from nodesmith.model.labels import HOSTNAME
from nodesmith.model.shapes import Shape, Spread

UNLIMITED = 2**31
HostPort = tuple[str, int, str]
_EVERY_IP = frozenset({"0.0.0.0", "::"})  # noqa: S104 (read from pods, not bound)


def room_capacity(room: Room, shape: Shape, wanted: int) -> int:
    """Give how many of `wanted` pods a room takes, all rules of the node considered but spread over zones."""
    count = room.fits(shape, wanted)
    if not count or not room.admits(shape) or _excluded(room, shape):
        return 0
    for spread in hostname_spreads(shape):
        spare = spread.max_skew - matching(spread, shape, room)
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
    others = [other for other, count in room.hosted.items() if count and other is not shape]
    others += room.expected
    if not is_touchy(shape):
        others = [other for other in others if is_touchy(other)]
    return any(in_conflict(shape, other) for other in others)


def is_touchy(shape: Shape) -> bool:
    """Tell whether there can be pods that this shape may not share a node with, by its own wishes."""
    return bool(shape.host_ports or shape.affinities)


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
    return any(term.anti and not term.weight and term.selects(other) for term in shape.affinities)


def matching(spread: Spread, shape: Shape, room: Room) -> int:
    """Count the pods in a room that a spread of `shape` counts; those being deleted no longer do."""
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
