"""Node scores, with kube-scheduler's default plugins and weights (each plugin 0 to 100)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log

from nodesmith_formats.kubernetes.objects import View, dig
from nodesmith_local.cluster.podfacts import term_matches, tolerates
from nodesmith_local.cluster.scheduler.filters import spread_constraints, spread_counts
from nodesmith_local.cluster.scheduler.needs import Amounts
from nodesmith_local.cluster.scheduler.podcounts import NodeRoom, PodCounts, preferred_terms, term_namespaces

_WEIGHTS = {"taints": 3, "node affinity": 2, "spread": 2, "company": 2}


def best(pod: View, needs: Amounts, rooms: Sequence[NodeRoom], census: PodCounts) -> NodeRoom:
    """Return the best of `rooms`; ties go to the first by name."""
    totals = {room.name: _resources(needs, room) for room in rooms}
    if len(rooms) > 1:
        _add(totals, _WEIGHTS["taints"], _soft_taints(pod, rooms))
        _add(totals, _WEIGHTS["node affinity"], _preferred(pod, rooms))
        _add(totals, _WEIGHTS["spread"], _spread(pod, rooms, census))
        _add(totals, _WEIGHTS["company"], _company(pod, rooms, census))
    return min(rooms, key=lambda room: (-round(totals[room.name], 6), room.name))


def _resources(needs: Amounts, room: NodeRoom) -> float:
    """Score least-allocated and balanced allocation of CPU and memory."""
    free = []
    for name in ("cpu", "memory"):
        offered = room.allocatable.get(name, 0)
        if offered:
            free.append(max(0.0, 1 - (room.used.get(name, 0) + needs.get(name, 0)) / offered))
    if not free:
        return 0.0
    balance = 1 - abs(free[0] - free[-1]) / 2
    return 100 * sum(free) / len(free) + 100 * balance


def _soft_taints(pod: View, rooms: Sequence[NodeRoom]) -> Mapping[str, float]:
    if not any(room.soft_taints for room in rooms):
        return {}
    tolerations = pod["spec"].get("tolerations") or ()
    return _less_is_better(
        rooms, lambda room: float(sum(not tolerates(tolerations, taint) for taint in room.soft_taints))
    )


def _preferred(pod: View, rooms: Sequence[NodeRoom]) -> Mapping[str, float]:
    path = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    terms = dig(pod, "spec", *path)
    if not terms:
        return {}

    def liking(room: NodeRoom) -> float:
        return float(
            sum(term["weight"] for term in terms if term_matches(term.get("preference") or {}, room.node))
        )

    return _more_is_better(rooms, liking)


def _spread(pod: View, rooms: Sequence[NodeRoom], census: PodCounts) -> Mapping[str, float]:
    """Score soft spread constraints.

    Fewer matching pods in the domain score higher; a constraint with fewer domains weighs less.
    """
    constraints = spread_constraints(pod, "ScheduleAnyway")
    if not constraints:
        return {}
    matching = {room.name: 0.0 for room in rooms}
    for constraint in constraints:
        counts, _ = spread_counts(pod, constraint, census)
        key, weight = constraint["topologyKey"], log(len(counts) + 2)
        highest = max(counts.values(), default=0) + 1
        for room in rooms:
            value = room.labels.get(key)
            matching[room.name] += weight * (counts[value] if value is not None else highest)
    return _less_is_better(rooms, lambda room: matching[room.name])


def _company(pod: View, rooms: Sequence[NodeRoom], census: PodCounts) -> Mapping[str, float]:
    """Score preferred affinity and anti-affinity to other pods."""
    weighted = [(preference, 1) for preference in preferred_terms(pod, "podAffinity")]
    weighted += [(preference, -1) for preference in preferred_terms(pod, "podAntiAffinity")]
    if not weighted:
        return {}
    liked = {room.name: 0.0 for room in rooms}
    for preferred, sign in weighted:
        term = preferred["podAffinityTerm"]
        group = census.group(term_namespaces(term, pod), term.get("labelSelector"), with_leaving=True)
        counts = census.by_topology(group.on_node, term["topologyKey"])
        for room in rooms:
            liked[room.name] += sign * preferred["weight"] * counts[room.labels.get(term["topologyKey"], "")]
    return _more_is_better(rooms, lambda room: liked[room.name])


def _more_is_better(rooms: Sequence[NodeRoom], value: Callable[[NodeRoom], float]) -> Mapping[str, float]:
    values = {room.name: value(room) for room in rooms}
    low, high = min(values.values()), max(values.values())
    return {name: 100 * (raw - low) / (high - low) for name, raw in values.items()} if high > low else {}


def _less_is_better(rooms: Sequence[NodeRoom], value: Callable[[NodeRoom], float]) -> Mapping[str, float]:
    return _more_is_better(rooms, lambda room: -value(room))


def _add(totals: dict[str, float], weight: int, scores: Mapping[str, float]) -> None:
    for name, score in scores.items():
        totals[name] += weight * score
