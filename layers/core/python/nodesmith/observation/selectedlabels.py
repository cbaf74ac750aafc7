"""The labels of pods and namespaces that matter, because a selector in the cluster uses them.

Other labels (`job-name`, `statefulset.kubernetes.io/pod-name`, `pod-template-hash`, a workflow's run id …) cannot
affect decisions, but would give every pod a shape of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

_KEY_LISTS = ("matchLabelKeys", "mismatchLabelKeys")


def selected_keys(shapes: Iterable[str]) -> frozenset[str]:
    """Return the pod label keys that any spread constraint or pod (anti-)affinity term in these manifests uses."""
    return frozenset().union(*map(_keys_of, shapes))


def guarded_keys(budgets: Iterable[Mapping[str, Any]]) -> Mapping[str, frozenset[str]]:
    """Return the pod label keys that PodDisruptionBudgets use, by namespace, since they only select in their own."""
    found: dict[str, frozenset[str]] = {}
    for budget in budgets:
        namespace = budget["metadata"]["namespace"]
        selector = (budget.get("spec") or {}).get("selector") or {}
        found[namespace] = found.get(namespace, frozenset()).union(_selector_keys(selector))
    return found


def selected_namespace_keys(shapes: Iterable[str]) -> frozenset[str]:
    """Return the namespace label keys that any namespaceSelector in these manifests uses."""
    return frozenset().union(*map(_namespace_keys_of, shapes))


@lru_cache(maxsize=8192)
def _keys_of(shape: str) -> frozenset[str]:
    spec = json.loads(shape).get("spec") or {}
    return frozenset(key for constraint in _constraints(spec) for key in _keys(constraint))


@lru_cache(maxsize=8192)
def _namespace_keys_of(shape: str) -> frozenset[str]:
    if "namespaceSelector" not in shape:
        return frozenset()
    spec = json.loads(shape).get("spec") or {}
    selectors = (term.get("namespaceSelector") for term in _constraints(spec))
    return frozenset(key for selector in selectors for key in _selector_keys(selector or {}))


def _constraints(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("topologySpreadConstraints") or ()
    for part in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(part) or {}
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}


def _keys(constraint: Mapping[str, Any]) -> Iterator[str]:
    yield from _selector_keys(constraint.get("labelSelector") or {})
    for name in _KEY_LISTS:
        yield from constraint.get(name) or ()


def _selector_keys(selector: Mapping[str, Any]) -> Iterator[str]:
    yield from selector.get("matchLabels") or ()
    yield from (str(expression.get("key")) for expression in selector.get("matchExpressions") or ())
