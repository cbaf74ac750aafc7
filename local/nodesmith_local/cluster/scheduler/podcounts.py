"""Counts of pods on nodes by selector, for topology spread and affinity between pods."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nodesmith_formats.kubernetes.objects import View, dig, labels_of
from nodesmith_formats.kubernetes.selectors import selector_matcher
from nodesmith_local.cluster.podfacts import is_leaving
from nodesmith_local.cluster.scheduler.needs import Amounts, Port, amounts

Matches: TypeAlias = Callable[[Mapping[str, str]], bool]
_GROUPS = 2_000  # groups kept; beyond this, all are recounted


@dataclass(slots=True)
class NodeRoom:
    """One node, its allocatable resources, and what its pods use."""

    node: View
    name: str
    labels: Mapping[str, str]
    allocatable: Amounts
    soft_taints: list[View]
    used: Amounts = field(default_factory=dict)
    ports: Counter[Port] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node."""

    pod: View
    node: str
    needs: Amounts
    ports: frozenset[Port]


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of some namespaces that a selector matches, counted by node. An empty `namespaces` means all."""

    namespaces: frozenset[str]
    matches: Matches
    with_leaving: bool
    on_node: Counter[str] = field(default_factory=Counter)

    def takes(self, pod: View) -> bool:
        """Return whether the pod belongs to the group."""
        if self.namespaces and pod["metadata"]["namespace"] not in self.namespaces:
            return False
        return (self.with_leaving or not is_leaving(pod)) and self.matches(labels_of(pod))


@dataclass(frozen=True, slots=True)
class AntiAffinityTerm:
    """A required anti-affinity term of pods on nodes.

    `group` are the pods that it repels, `topology_key` defines the domains, and `holders` counts the pods with the term
    by node.
    """

    group: Group
    topology_key: str
    holders: Counter[str]


class PodCounts:
    """Keeps nodes, residents and groups up to date as pods are added and removed."""

    def __init__(self) -> None:
        self.rooms: dict[str, NodeRoom] = {}
        self.residents: dict[str, PlacedPod] = {}
        self._groups: dict[str, Group] = {}
        self._aversions: dict[str, AntiAffinityTerm] = {}

    def set_node(self, node: View) -> None:
        """Add a node, or update its state."""
        name = node["metadata"]["name"]
        known_room = self.rooms.get(name)
        offered = amounts(dig(node, "status", "allocatable") or {})
        taints = dig(node, "spec", "taints") or ()
        soft = [taint for taint in taints if taint.get("effect") == "PreferNoSchedule"]
        room = NodeRoom(node, name, labels_of(node), offered, soft)
        if known_room is not None:
            room.used, room.ports = known_room.used, known_room.ports
        self.rooms[name] = room
        if known_room is None:
            for resident in [placed for placed in self.residents.values() if placed.node == name]:
                self._fill(room, resident, 1)

    def drop_node(self, name: str) -> None:
        """Remove a node; its pods stay residents until they are gone."""
        self.rooms.pop(name, None)

    def settle(self, resident: PlacedPod) -> None:
        """Count a pod on its node; this replaces its earlier entry."""
        uid = resident.pod["metadata"]["uid"]
        self.leave(uid)
        self.residents[uid] = resident
        self._count(resident, 1)

    def leave(self, uid: str) -> bool:
        """Stop counting a pod; return whether it was counted."""
        resident = self.residents.pop(uid, None)
        if resident is not None:
            self._count(resident, -1)
        return resident is not None

    def group(
        self, namespaces: frozenset[str], selector: View | None, *, with_leaving: bool = False
    ) -> Group:
        """Return the group of pods that a selector matches; the census keeps it up to date from then on."""
        key = json.dumps([sorted(namespaces), selector, with_leaving], sort_keys=True)
        existing = self._groups.get(key)
        if existing is None:
            if len(self._groups) >= _GROUPS:
                self._groups.clear()
            existing = Group(namespaces, selector_matcher(selector), with_leaving)
            for resident in self.residents.values():
                if existing.takes(resident.pod):
                    existing.on_node[resident.node] += 1
            self._groups[key] = existing
        return existing

    def aversions_to(self, pod: View) -> list[AntiAffinityTerm]:
        """Return the anti-affinity terms of pods on nodes that repel `pod`."""
        return [
            aversion
            for aversion in self._aversions.values()
            if +aversion.holders and aversion.group.takes(pod)
        ]

    def by_topology(self, on_node: Mapping[str, int], key: str) -> Counter[str]:
        """Sum counts by node into counts by the nodes' values of a label."""
        counts: Counter[str] = Counter()
        for name, count in on_node.items():
            room = self.rooms.get(name)
            value = room.labels.get(key) if room else None
            if value is not None and count:
                counts[value] += count
        return counts

    def _count(self, resident: PlacedPod, by: int) -> None:
        room = self.rooms.get(resident.node)
        if room is not None:
            self._fill(room, resident, by)
        for group in self._groups.values():
            if group.takes(resident.pod):
                group.on_node[resident.node] += by
        for term in required_terms(resident.pod, "podAntiAffinity"):
            namespaces = term_namespaces(term, resident.pod)
            key = json.dumps(
                [sorted(namespaces), term.get("labelSelector"), term["topologyKey"]], sort_keys=True
            )
            if key not in self._aversions:
                group = Group(namespaces, selector_matcher(term.get("labelSelector")), with_leaving=True)
                self._aversions[key] = AntiAffinityTerm(group, term["topologyKey"], Counter())
            self._aversions[key].holders[resident.node] += by

    def _fill(self, room: NodeRoom, resident: PlacedPod, by: int) -> None:
        for name, amount in resident.needs.items():
            room.used[name] = room.used.get(name, 0) + by * amount
        for port in resident.ports:
            room.ports[port] += by


def required_terms(pod: View, kind: str) -> list[View]:
    """Return the required terms of podAffinity or podAntiAffinity."""
    return dig(pod, "spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution") or []


def preferred_terms(pod: View, kind: str) -> list[View]:
    """Return the weighted terms of podAffinity or podAntiAffinity."""
    return dig(pod, "spec", "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution") or []


def term_namespaces(term: View, pod: View) -> frozenset[str]:
    """Return the namespaces of an affinity term: those it names, else the pod's.

    An empty set means all namespaces and stands for an empty namespaceSelector.
    """
    if term.get("namespaceSelector") is not None and not term["namespaceSelector"]:
        return frozenset()
    return frozenset(term.get("namespaces") or (pod["metadata"]["namespace"],))
