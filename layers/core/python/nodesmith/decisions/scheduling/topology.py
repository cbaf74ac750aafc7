"""Where pods are, by the labels of their nodes: what spreads, affinity and anti-affinity over any key count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodesmith.decisions.scheduling.compatibility import label_refusal
from nodesmith.decisions.scheduling.labelsets import LabelSets, bits
from nodesmith.decisions.scheduling.rooms import Room
from nodesmith.model.labels import HOSTNAME
from nodesmith.model.requirements import Requirements
from nodesmith.model.shapes import PodAffinityTerm, Shape, Spread
from nodesmith.model.taints import Toleration, first_untolerated


@dataclass(frozen=True, slots=True)
class View:
    """The nodes that a constraint looks at, by their labels and taints. Without `terms` and `tolerations`: all.

    `leaving` tells whether pods that are being deleted count: for spreads they do not, for (anti-)affinity they do.
    """

    leaving: bool
    terms: tuple[Requirements, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    keys: tuple[str, ...] = ()
    """labels that they must have: a node without one of a pod's topology keys counts for none of its spreads"""

    def shows(self, room: Room) -> bool:
        """Tell whether a node is one of them."""
        if any(key not in room.labels for key in self.keys):
            return False
        if self.terms is not None and label_refusal(room.labels, self.terms):
            return False
        return self.tolerations is None or first_untolerated(room.taints, self.tolerations) is None


ALL_NODES = View(leaving=True)


def spread_view(spread: Spread, shape: Shape) -> View:
    """Give the nodes that a spread of a shape looks at (nodeAffinityPolicy, nodeTaintsPolicy)."""
    keys = {s.topology_key for s in shape.spreads if s.hard} - {spread.topology_key, HOSTNAME}
    return View(
        leaving=False,
        keys=tuple(sorted(keys)),
        terms=shape.own_terms if spread.honor_affinity and any(shape.own_terms) else None,
        tolerations=shape.tolerations if spread.honor_taints else None,
    )


class Topology:
    """Pods counted by domain: on nodes that are there, in rooms given away, and on nodes about to be bought.

    Of a node about to be bought only those labels are known that its pods are pinned to.
    """

    def __init__(self, rooms: Sequence[Room], sets: LabelSets) -> None:
        self._rooms = rooms
        self._sets = sets
        self._log: list[tuple[Mapping[str, str], int, int, Room | None]] = []
        self._pods: dict[tuple[str, View], dict[str, Counter[int]]] = {}
        self._counts: dict[tuple[str, View, int], tuple[dict[str, int], int]] = {}
        """what was counted, and how much of the log is in it"""
        self._aversions: dict[str, dict[str, int]] = {}
        for room in rooms:
            for shape, count in room.hosted.items():
                if count and shape.affinities:
                    self._shun(room.labels, shape)

    def counts(self, key: str, selected: int, view: View = ALL_NODES) -> dict[str, int]:
        """Count the pods of these label sets by value of a key; values of empty nodes are listed with 0.

        Do not change what is given, nor keep it: it is true until pods are added.
        """
        query = key, view, selected
        if query in self._counts:
            counts, seen = self._counts[query]
        else:
            counts, seen = self._counted(self._by_value(key, view), selected), len(self._log)
        for labels, number, count, room in self._log[seen:]:
            if key in labels and selected >> number & 1 and (room is None or view.shows(room)):
                counts[labels[key]] = counts.get(labels[key], 0) + count
        self._counts[query] = counts, len(self._log)
        return counts

    @staticmethod
    def _counted(by_value: Mapping[str, Counter[int]], selected: int) -> dict[str, int]:
        return {
            value: sum(held[number] for number in bits(selected))
            if selected.bit_count() < len(held)
            else sum(count for number, count in held.items() if selected >> number & 1)
            for value, held in by_value.items()
        }

    def repelled(self, key: str, value: str, shape: Shape) -> bool:
        """Tell whether pods in a domain keep those of a shape out of it."""
        return self._aversions.get(key, {}).get(value, 0) >> self._sets.number(shape) & 1 == 1

    def repelling_keys(self, shape: Shape) -> list[str]:
        """Give the keys over which some pods keep those of a shape out of somewhere."""
        number = self._sets.number(shape)
        return [
            key
            for key, found in self._aversions.items()
            if any(bits >> number & 1 for bits in found.values())
        ]

    def add(self, labels: Mapping[str, str], shape: Shape, count: int, room: Room | None = None) -> None:
        """Count pods that get a node with these labels: a room, or one about to be bought. Empty labels are none."""
        labels = {key: value for key, value in labels.items() if value} if room is None else labels
        number = self._sets.number(shape)
        self._log.append((labels, number, count, room))
        for (key, view), by_value in self._pods.items():
            if key in labels and (room is None or view.shows(room)):
                by_value.setdefault(labels[key], Counter())[number] += count
        self._shun(labels, shape)

    def _by_value(self, key: str, view: View) -> dict[str, Counter[int]]:
        if (key, view) not in self._pods:
            found: dict[str, Counter[int]] = {}
            for room in self._rooms:
                if key not in room.labels or not view.shows(room):
                    continue
                held = found.setdefault(room.labels[key], Counter())
                for shape, count in room.hosted.items():
                    held[self._sets.number(shape)] += count - (0 if view.leaving else room.leaving[shape])
            for labels, number, count, there in self._log:
                if there is None and key in labels:
                    found.setdefault(labels[key], Counter())[number] += count
            self._pods[key, view] = found
        return self._pods[key, view]

    def _shun(self, labels: Mapping[str, str], shape: Shape) -> None:
        for term in aversions(shape):
            if term.topology_key in labels:
                banned = self._aversions.setdefault(term.topology_key, {})
                value = labels[term.topology_key]
                selected = self._sets.selected(term.selector, term.namespaces)
                banned[value] = banned.get(value, 0) | selected


def aversions(shape: Shape) -> list[PodAffinityTerm]:
    """Give the required anti-affinity terms over anything but the hostname (for which see `neighbours`)."""
    return [t for t in shape.affinities if t.anti and not t.weight and t.topology_key != HOSTNAME]


def attractions(shape: Shape) -> list[PodAffinityTerm]:
    """Give the required affinity terms, those over the hostname included."""
    return [t for t in shape.affinities if not t.anti and not t.weight]
