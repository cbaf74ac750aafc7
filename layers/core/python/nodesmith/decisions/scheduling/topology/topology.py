"""Topology: where pods are, by the labels of their nodes, and which nodes a topology spread looks at.

`Topology` has what spreads, affinity and anti-affinity over any key count. Spreads look at existing nodes, and at new
nodes of which only some labels are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from nodesmith.decisions.scheduling.compatibility import joined_terms, label_refusal
from nodesmith.decisions.scheduling.conflicts import LabelSets, bits
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.model.apimachinery.labels import (
    ARCH,
    CAPACITY_TYPE,
    EKS_CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODEPOOL,
    OS,
    REGION,
    ZONE,
    Toleration,
    common,
    first_untolerated,
)
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.kubernetes.pods import PodAffinityTerm, Shape, Spread

_EVERY_NEW_NODE_HAS = frozenset(
    {ZONE, REGION, CAPACITY_TYPE, EKS_CAPACITY_TYPE, ARCH, OS, INSTANCE_TYPE, HOSTNAME}
)


@dataclass(frozen=True, slots=True)
class View:
    """The nodes that a constraint looks at, by their labels and taints. Without `terms` and `tolerations`: all nodes.

    `leaving` is True if pods being deleted count: they do for affinity and anti-affinity, not for spreads.
    """

    leaving: bool
    terms: tuple[Requirements, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    keys: tuple[str, ...] = ()
    """Labels that the nodes must have: a node without one of a pod's topology keys counts for none of its spreads."""
    closed: frozenset[str] = frozenset()
    """The NodePools whose new nodes are not in view, because their taints are not tolerated."""

    def shows(self, existing: ExistingNode) -> bool:
        """Return whether an existing node is in view."""
        if any(key not in existing.labels for key in self.keys):
            return False
        if self.terms is not None and label_refusal(existing.labels, self.terms):
            return False
        return self.tolerations is None or first_untolerated(existing.taints, self.tolerations) is None

    def may_show(self, shape: Shape, pins: Mapping[str, str]) -> bool:
        """Return whether a new node for pods of a shape, with labels `pins` (empty: without), may be in view."""
        if any(pins.get(key) == "" or _lacks(shape, key) for key in self.keys):
            return False
        if self.terms is None and not self.closed:
            return True
        return any(
            labels.conflict(term, undefined=frozenset(term)) is None
            for labels in _possible_labels(shape, pins)
            if not self._is_closed(labels)
            for term in self.terms or (NO_REQUIREMENTS,)
        )

    def must_show(self, shape: Shape, pins: Mapping[str, str]) -> bool:
        """Return whether such a node is in view whatever its other labels are."""
        if not all(pins.get(key) or key in _EVERY_NEW_NODE_HAS for key in self.keys):
            return False
        if self.tolerations is not None and not (
            all(any(one.covers(other) for one in self.tolerations) for other in shape.tolerations)
            or all(map(self._is_open, _possible_labels(shape, pins)))
        ):
            return False
        return self.terms is None or all(
            any(_implies(labels, term) for term in self.terms) for labels in _possible_labels(shape, pins)
        )

    def _is_closed(self, requirements: Requirements) -> bool:
        """Return whether only closed NodePools have such nodes."""
        nodepool = requirements.get(NODEPOOL)
        return nodepool is not None and not nodepool.complement and nodepool.values <= self.closed

    def _is_open(self, requirements: Requirements) -> bool:
        """Return whether no closed NodePool has such nodes."""
        nodepool = requirements.get(NODEPOOL)
        return not any(nodepool is None or nodepool.allows(name) for name in self.closed)


ALL_NODES = View(leaving=True)
_EVERYTHING = (Toleration(operator="Exists"),)


@lru_cache(maxsize=512)
def seeing(view: View) -> Shape:
    """Return a shape whose pods may be on exactly the nodes of a view, by terms and tolerations."""
    tolerations = _EVERYTHING if view.tolerations is None else view.tolerations
    return Shape("", {}, terms=view.terms or (NO_REQUIREMENTS,), tolerations=tolerations)


@dataclass(frozen=True, slots=True)
class Rule:
    """A hard spread without its selector, the label sets that the selector selects, and the nodes that count."""

    spread: Spread
    selected: int
    view: View

    @property
    def key(self) -> str:
        """The topology key."""
        return self.spread.topology_key


def keyed_spreads(shape: Shape) -> list[Spread]:
    """Return the hard spreads over any key but the hostname (for which see `conflicts`)."""
    return [s for s in shape.spreads if s.hard and s.topology_key != HOSTNAME]


def spread_rules(shape: Shape, sets: LabelSets, launching: Launching) -> list[Rule]:
    """Return the hard spreads of a shape, except those over the hostname and those that select no pod.

    Spreads that select no pod only require their label; they are kept where new nodes may lack it.
    """
    spreads = keyed_spreads(shape)
    if not spreads:
        return []
    home = frozenset((shape.namespace,))
    return [
        Rule(
            Spread(s.topology_key, s.max_skew, hard=True, selector=None, min_domains=s.min_domains),
            selected,
            View(
                leaving=False,
                terms=shape.own_terms if s.honor_affinity and any(shape.own_terms) else None,
                tolerations=shape.tolerations if s.honor_taints else None,
                keys=tuple(sorted({other.topology_key for other in spreads} - {s.topology_key})),
                closed=launching.refusing(shape.tolerations) if s.honor_taints else frozenset(),
            ),
        )
        for s in spreads
        if (selected := sets.counted(shape, s.selector, home)) or s.topology_key not in _EVERY_NEW_NODE_HAS
    ]


def undecided(shape: Shape, rules: Iterable[Rule], pins: Mapping[str, str]) -> list[View]:
    """Return the views of these spreads that a new node for pods of a shape may or may not be in."""
    views = dict.fromkeys(rule.view for rule in rules)
    return [view for view in views if view.may_show(shape, pins) and not view.must_show(shape, pins)]


def narrowed(shape: Shape, views: Iterable[View]) -> Shape:
    """Return a shape whose pods go only to nodes in these views, as far as terms and tolerations can express that."""
    terms, tolerations = shape.terms, shape.tolerations
    for view in views:
        if view.terms is not None:
            terms = joined_terms(terms, view.terms) or terms
        if view.tolerations is not None:
            tolerations = common(tolerations, view.tolerations)
    if terms == shape.terms and tolerations == shape.tolerations:
        return shape
    return replace(shape, terms=terms, tolerations=tolerations)


def kept_out(
    shape: Shape, views: Iterable[View], pins: Mapping[str, str], is_sold: Callable[[Shape], bool]
) -> Shape:
    """Return a shape whose pods go only to nodes outside these views, as far as such nodes are for sale (`is_sold`)."""
    for view in views:
        if view.may_show(shape, pins) and not view.must_show(shape, pins):
            outside = (replace(shape, terms=terms) for terms in _outside(shape.terms, view, pins))
            shape = next(filter(is_sold, outside), shape)
    return shape


def _outside(
    terms: tuple[Requirements, ...], view: View, pins: Mapping[str, str]
) -> Iterator[tuple[Requirements, ...]]:
    """Yield terms for nodes outside a view.

    Such a node lacks a label that the view needs, has another value of a label that each of its terms names, or belongs
    to a NodePool whose taints are not tolerated.
    """
    opposites = [Requirement(key) for key in view.keys if key not in _EVERY_NEW_NODE_HAS]
    for key in sorted(set.intersection(*(set(term) for term in view.terms)) if view.terms else ()):
        requirements = [term[key] for term in view.terms or ()]
        if all(requirement.gte is None and requirement.lte is None for requirement in requirements):
            opposites += Requirements.of(
                *(
                    Requirement(key, requirement.values, complement=not requirement.complement)
                    for requirement in requirements
                )
            ).values()
    if view.closed:
        opposites.append(Requirement(NODEPOOL, view.closed))
    for opposite in opposites:
        joined = joined_terms(terms, [Requirements.of(opposite)]) if opposite.key not in pins else ()
        if joined:
            yield joined


def _lacks(shape: Shape, key: str) -> bool:
    return bool(shape.terms) and all(key in term and term[key].is_empty for term in shape.terms)


def _possible_labels(shape: Shape, pins: Mapping[str, str]) -> Iterator[Requirements]:
    """Return what is known of a new node's labels, by alternative."""
    requirements = [
        Requirement(key, frozenset((value,)) if value else frozenset()) for key, value in pins.items()
    ]
    return (term.adding(*requirements) for term in shape.terms)


def _implies(offered: Requirements, required: Requirements) -> bool:
    """Return whether every node that meets `offered` meets `required`."""
    for key, requirement in required.items():
        given = offered.get(key)
        if given is None or given.intersection(requirement) != given:
            return False
        if given.tolerates_absence and not requirement.tolerates_absence:
            return False
    return True


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
                    self._add_anti_affinity(existing.labels, shape)

    @property
    def size(self) -> int:
        """How many groups of pods have been added."""
        return len(self._log)

    def counts(self, key: str, selected: int, view: View = ALL_NODES) -> Counts:
        """Count the pods of the label sets `selected` by value of a key.

        Do not change or keep the result: it is valid until pods are added.
        """
        query = key, view, selected
        counts = self._counts.get(query)
        if counts is None:
            counts = self._counts[query] = Counts(_counted(self._existing_counts(key, view), selected))
            fresh = [entry for number in bits(selected) for entry in self._by_number.get(number, ())]
        else:
            fresh = [entry for entry in self._log[counts.seen :] if selected >> entry.number & 1]
        for entry in fresh:
            _count(entry, key, view, counts)
        counts.seen = len(self._log)
        return counts

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
            for key, sets in self._anti_affinity_terms.items()
            if any(bits >> number & 1 for bits in sets.values())
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
        self._add_anti_affinity(labels, shape)
        for rule in spread_rules(shape, self._sets, self._launching):
            if labels.get(rule.key):
                self._held.setdefault(rule, set()).add(labels[rule.key])

    def _existing_counts(self, key: str, view: View) -> Mapping[str, Counter[int]]:
        if (key, view) not in self._there:
            by_value = self._there[key, view] = {}
            for existing, hosted in self._hosted:
                if key not in existing.labels or not view.shows(existing):
                    continue
                counts = by_value.setdefault(existing.labels[key], Counter())
                for shape, count in hosted:
                    counts[self._sets.number(shape)] += count - (
                        0 if view.leaving else existing.leaving[shape]
                    )
        return self._there[key, view]

    def _add_anti_affinity(self, labels: Mapping[str, str], shape: Shape) -> None:
        for term in anti_affinity_terms(shape):
            if labels.get(term.topology_key):
                banned = self._anti_affinity_terms.setdefault(term.topology_key, {})
                value = labels[term.topology_key]
                selected = self._sets.selected(term.selector, term.namespaces)
                banned[value] = banned.get(value, 0) | selected


def _counted(by_value: Mapping[str, Counter[int]], selected: int) -> dict[str, int]:
    return {
        value: sum(counts[number] for number in bits(selected))
        if selected.bit_count() < len(counts)
        else sum(count for number, count in counts.items() if selected >> number & 1)
        for value, counts in by_value.items()
    }


def _count(entry: _Entry, key: str, view: View, counts: Counts) -> None:
    if entry.existing is not None:
        if key in entry.existing.labels and view.shows(entry.existing):
            value = entry.existing.labels[key]
            counts.pods[value] = counts.pods.get(value, 0) + entry.count
        return
    value = entry.pins.get(key, "")
    if value and view.may_show(entry.shape, entry.pins):
        counts.pods[value] = counts.pods.get(value, 0) + entry.count
        if not view.must_show(entry.shape, entry.pins):
            counts.unsure[value] = counts.unsure.get(value, 0) + entry.count


def anti_affinity_terms(shape: Shape) -> list[PodAffinityTerm]:
    """Return the required anti-affinity terms over any key but the hostname (for which see `conflicts`)."""
    return [t for t in shape.affinities if t.anti and not t.weight and t.topology_key != HOSTNAME]


def affinity_terms(shape: Shape) -> list[PodAffinityTerm]:
    """Return the required affinity terms, including those over the hostname."""
    return [t for t in shape.affinities if not t.anti and not t.weight]
