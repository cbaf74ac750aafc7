"""Where pods are, by the labels of their nodes: what spreads, affinity and anti-affinity over any key count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.labelsets import LabelSets, bits
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.topology.nodefilters import ALL_NODES, Rule, View, spread_rules
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.kubernetes.pods import PodAffinityTerm, Shape


@dataclass(frozen=True, slots=True)
class _Entry:
    """Pods that got a place: an existing node, or a new node of which only `pins` are known (empty: no such label)."""

    pins: Mapping[str, str]
    shape: Shape
    number: int
    count: int
    existing: ExistingNode | None


@dataclass(slots=True)
class Counts:
    """Matching pods by value of a key; values of empty nodes are listed with 0.

    `unsure` counts those that may turn out to be on nodes that do not count. `seen` is how many entries of the log are
    included.
    """

    pods: dict[str, int]
    unsure: dict[str, int] = field(default_factory=dict)
    seen: int = 0


class Topology:
    """Pods counted by domain: on existing nodes, assigned to existing nodes, and on nodes about to be bought.

    For a node about to be bought, only the labels that its pods are pinned to are known.
    """

    def __init__(self, existing_nodes: Sequence[ExistingNode], sets: LabelSets, launching: Launching) -> None:
        self.numbers = 0
        """The label sets, as bits, of which some pod has a place."""
        self._hosted = [(existing, tuple(existing.hosted.items())) for existing in existing_nodes]
        self._sets, self._launching = sets, launching
        self._log: list[_Entry] = []
        self._by_number: dict[int, list[_Entry]] = {}
        self._there: dict[tuple[str, View], dict[str, Counter[int]]] = {}
        self._counts: dict[tuple[str, View, int], Counts] = {}
        self._anti_affinity_terms: dict[str, dict[str, int]] = {}
        self._held: dict[Rule, set[str]] = {}
        for existing in existing_nodes:
            for shape, count in existing.hosted.items():
                if count:
                    self.numbers |= 1 << sets.number(shape)
                    self._shun(existing.labels, shape)

    @property
    def size(self) -> int:
        """How many groups of pods have been added."""
        return len(self._log)

    def counts(self, key: str, selected: int, view: View = ALL_NODES) -> Counts:
        """Count the pods of the label sets `selected` by value of a key.

        Do not change or keep the result: it is valid until pods are added.
        """
        query = key, view, selected
        found = self._counts.get(query)
        if found is None:
            found = self._counts[query] = Counts(_counted(self._were_there(key, view), selected))
            fresh = [entry for number in bits(selected) for entry in self._by_number.get(number, ())]
        else:
            fresh = [entry for entry in self._log[found.seen :] if selected >> entry.number & 1]
        for entry in fresh:
            _count(entry, key, view, found)
        found.seen = len(self._log)
        return found

    def repelled(self, key: str, value: str, shape: Shape) -> bool:
        """Return whether the anti-affinity of pods in a domain keeps pods of a shape out of it."""
        return self._anti_affinity_terms.get(key, {}).get(value, 0) >> self._sets.number(shape) & 1 == 1

    def held_over(self, shape: Shape) -> Iterator[tuple[Rule, set[str]]]:
        """Return the spreads of placed pods that count pods of a shape, each with the domains of these placed pods."""
        number = self._sets.number(shape)
        return ((rule, values) for rule, values in self._held.items() if rule.selected >> number & 1)

    def repelling_keys(self, shape: Shape) -> list[str]:
        """Return the keys over which the anti-affinity of some pods keeps pods of a shape out of a domain."""
        number = self._sets.number(shape)
        return [
            key
            for key, found in self._anti_affinity_terms.items()
            if any(bits >> number & 1 for bits in found.values())
        ]

    def add(
        self,
        labels: Mapping[str, str],
        shape: Shape,
        count: int,
        existing: ExistingNode | None = None,
        bought_as: Shape | None = None,
    ) -> None:
        """Count pods that get a node with these labels: an existing one, or one about to be bought.

        Empty values mean no label.

        `bought_as` is the shape that the new node is bought for, which may ask for more than the pods do.
        """
        entry = _Entry(labels, bought_as or shape, self._sets.number(shape), count, existing)
        self._log.append(entry)
        self.numbers |= 1 << entry.number
        self._by_number.setdefault(entry.number, []).append(entry)
        self._shun(labels, shape)
        for rule in spread_rules(shape, self._sets, self._launching):
            if labels.get(rule.key):
                self._held.setdefault(rule, set()).add(labels[rule.key])

    def _were_there(self, key: str, view: View) -> Mapping[str, Counter[int]]:
        if (key, view) not in self._there:
            found = self._there[key, view] = {}
            for existing, hosted in self._hosted:
                if key not in existing.labels or not view.shows(existing):
                    continue
                held = found.setdefault(existing.labels[key], Counter())
                for shape, count in hosted:
                    held[self._sets.number(shape)] += count - (0 if view.leaving else existing.leaving[shape])
        return self._there[key, view]

    def _shun(self, labels: Mapping[str, str], shape: Shape) -> None:
        for term in anti_affinity_terms(shape):
            if labels.get(term.topology_key):
                banned = self._anti_affinity_terms.setdefault(term.topology_key, {})
                value = labels[term.topology_key]
                selected = self._sets.selected(term.selector, term.namespaces)
                banned[value] = banned.get(value, 0) | selected


def _counted(by_value: Mapping[str, Counter[int]], selected: int) -> dict[str, int]:
    return {
        value: sum(held[number] for number in bits(selected))
        if selected.bit_count() < len(held)
        else sum(count for number, count in held.items() if selected >> number & 1)
        for value, held in by_value.items()
    }


def _count(entry: _Entry, key: str, view: View, found: Counts) -> None:
    if entry.existing is not None:
        if key in entry.existing.labels and view.shows(entry.existing):
            value = entry.existing.labels[key]
            found.pods[value] = found.pods.get(value, 0) + entry.count
        return
    value = entry.pins.get(key, "")
    if value and view.may_show(entry.shape, entry.pins):
        found.pods[value] = found.pods.get(value, 0) + entry.count
        if not view.must_show(entry.shape, entry.pins):
            found.unsure[value] = found.unsure.get(value, 0) + entry.count


def anti_affinity_terms(shape: Shape) -> list[PodAffinityTerm]:
    """Return the required anti-affinity terms over any key but the hostname (for which see `conflicts`)."""
    return [t for t in shape.affinities if t.anti and not t.weight and t.topology_key != HOSTNAME]


def affinity_terms(shape: Shape) -> list[PodAffinityTerm]:
    """Return the required affinity terms, including those over the hostname."""
    return [t for t in shape.affinities if not t.anti and not t.weight]
