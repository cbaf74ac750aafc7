"""Pods grouped by namespace and labels, to evaluate selectors without comparing every pair of pods."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.reading.fields import Manifest, dig, today
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.selectors import selects

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Term:
    """A pod selector with a topology key. `names` are namespaces, or None for all.

    `key` is equal for terms with the same meaning, except for the topology key.
    """

    key: str
    topology_key: str
    names: frozenset[str] | None
    selector: Manifest | None

    def takes(self, pod: Pod) -> bool:
        """Return whether the term selects a pod."""
        return (self.names is None or pod.namespace in self.names) and selects(self.selector, pod.labels)


@dataclass(slots=True)
class EqualPods:
    """Pods with the same namespace and labels: the number on each place (`on`), and those that stay (`staying`)."""

    example: Pod
    on: Counter[str] = field(default_factory=Counter)
    staying: Counter[str] = field(default_factory=Counter)


class Peers:
    """All pods of an outcome, on places that are not closed."""

    def __init__(self, result: Outcome) -> None:
        self._namespaces = result.cluster.namespaces
        self._alike: dict[tuple[object, ...], EqualPods] = {}
        self._by_label: dict[tuple[str, str], list[EqualPods]] = {}
        self._selected: dict[str, list[EqualPods]] = {}
        self._terms: dict[tuple[str, str], tuple[Term, ...]] = {}
        for pod in result.cluster.pods.values():
            self.group_of(pod)
        for place in result.places.values():
            for pod in () if place.closed else (*place.bound, *place.pods):
                alike = self.group_of(pod)
                alike.on[place.name] += 1
                alike.staying[place.name] += not pod.deleting

    def group_of(self, pod: Pod) -> EqualPods:
        """Return the group of pods with the same namespace and labels."""
        key = (pod.namespace, frozenset(pod.labels.items()))
        if key not in self._alike:
            self._alike[key] = EqualPods(pod)
            for label in pod.labels.items():
                self._by_label.setdefault(label, []).append(self._alike[key])
        return self._alike[key]

    def selected(self, term: Term) -> list[EqualPods]:
        """Return the groups of pods that a term selects."""
        if term.key not in self._selected:
            candidates = self._candidates(term.selector)
            self._selected[term.key] = [alike for alike in candidates if term.takes(alike.example)]
        return self._selected[term.key]

    def _candidates(self, selector: Manifest | None) -> Iterable[EqualPods]:
        """Return the groups that may match, narrowed by the first entry of matchLabels if there is one."""
        label = next(iter((dig(selector, "matchLabels") or {}).items()), None)
        return self._alike.values() if label is None else self._by_label.get(label, ())

    def affinity_terms(self, pod: Pod, kind: str) -> tuple[Term, ...]:
        """Return the required terms of a pod's `podAffinity` or `podAntiAffinity`."""
        if (pod.key, kind) not in self._terms:
            self._terms[pod.key, kind] = tuple(self._read_terms(pod, kind))
        return self._terms[pod.key, kind]

    def _read_terms(self, pod: Pod, kind: str) -> Iterator[Term]:
        for raw in dig(pod.spec, "affinity", kind, _REQUIRED) or ():
            given, selector = set(raw.get("namespaces") or ()), raw.get("namespaceSelector")
            names: frozenset[str] | None = frozenset(given or {pod.namespace})
            if selector is not None:
                names = frozenset(given | self._named(selector)) if selector else None
            rules = [
                *_rules(pod, raw, "matchLabelKeys", "In"),
                *_rules(pod, raw, "mismatchLabelKeys", "NotIn"),
            ]
            yield _term(raw, names, rules)

    def spread_term(self, pod: Pod, constraint: Manifest) -> Term:
        """Return the term that selects the pods counted by a topology spread constraint."""
        rules = [*_rules(pod, constraint, "matchLabelKeys", "In")]
        return _term(constraint, frozenset({pod.namespace}), rules)

    def _named(self, selector: Manifest) -> set[str]:
        """Return the selected namespaces, among those that exist or have pods."""
        names = {*self._namespaces, *(alike.example.namespace for alike in self._alike.values())}
        labels = {name: self._namespaces.get(name, {"kubernetes.io/metadata.name": name}) for name in names}
        return {name for name in names if selects(selector, labels[name])}


def _rules(pod: Pod, raw: Manifest, field: str, operator: str) -> Iterator[dict[str, Any]]:
    """Yield the expressions for matchLabelKeys or mismatchLabelKeys, with the values of the pod's own labels."""
    for key in raw.get(field) or ():
        if key in pod.labels:
            yield {"key": key, "operator": operator, "values": [pod.labels[key]]}


def _term(raw: Manifest, names: frozenset[str] | None, rules: list[dict[str, Any]]) -> Term:
    selector: Mapping[str, Any] | None = raw.get("labelSelector")
    if selector is not None and rules:
        selector = {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *rules]}
    spoken = json.dumps([None if names is None else sorted(names), selector], sort_keys=True)
    return Term(spoken, today(raw["topologyKey"]), names, selector)
