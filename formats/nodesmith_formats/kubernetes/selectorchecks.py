"""Checks of label selectors, node selectors and affinity terms."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_formats.kubernetes.errors import FieldProblem, forbidden_field, invalid_value, required
from nodesmith_formats.kubernetes.names import key_problems, label_map_problems
from nodesmith_formats.kubernetes.objects import View, dig

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_NUMERIC = ("Gt", "Lt")


def label_selector_problems(selector: View | None, path: str) -> Iterator[FieldProblem]:
    """Check a metav1.LabelSelector."""
    if selector is None:
        return
    yield from label_map_problems(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, rule in enumerate(selector.get("matchExpressions") or ()):
        yield from _expression(rule, f"{path}.matchExpressions[{index}]", "a valid label selector operator")


def affinity_problems(affinity: View | None, path: str) -> Iterator[FieldProblem]:
    """Check the node and pod affinity of a pod spec."""
    node = f"{path}.nodeAffinity"
    terms = dig(affinity, "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    if dig(affinity, "nodeAffinity", _REQUIRED) is not None and not terms:
        detail = "must have at least one node selector term"
        yield required(f"{node}.{_REQUIRED}.nodeSelectorTerms", detail)
    for index, term in enumerate(terms or ()):
        yield from _node_term(term, f"{node}.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, preference in enumerate(dig(affinity, "nodeAffinity", _PREFERRED) or ()):
        preference_path = f"{node}.{_PREFERRED}[{index}]"
        yield from _weight(preference, preference_path)
        yield from _node_term(preference.get("preference") or {}, f"{preference_path}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        for index, term in enumerate(dig(affinity, kind, _REQUIRED) or ()):
            yield from _pod_term(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, preference in enumerate(dig(affinity, kind, _PREFERRED) or ()):
            preference_path = f"{path}.{kind}.{_PREFERRED}[{index}]"
            yield from _weight(preference, preference_path)
            yield from _pod_term(
                preference.get("podAffinityTerm") or {}, f"{preference_path}.podAffinityTerm"
            )


def _node_term(term: View, path: str) -> Iterator[FieldProblem]:
    for field in ("matchExpressions", "matchFields"):
        for index, rule in enumerate(term.get(field) or ()):
            yield from _expression(
                rule, f"{path}.{field}[{index}]", "a valid selector operator", numeric=True
            )


def _pod_term(term: View, path: str) -> Iterator[FieldProblem]:
    if not term.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from label_selector_problems(term.get("labelSelector"), f"{path}.labelSelector")
    yield from label_selector_problems(term.get("namespaceSelector"), f"{path}.namespaceSelector")


def _weight(term: View, path: str) -> Iterator[FieldProblem]:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        yield invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _expression(
    rule: View, path: str, operator_phrase: str, *, numeric: bool = False
) -> Iterator[FieldProblem]:
    operator, values = rule.get("operator", ""), rule.get("values") or ()
    if operator in _WITH_VALUES and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _WITHOUT_VALUES and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield forbidden_field(f"{path}.values", detail)
    elif numeric and operator in _NUMERIC and len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield required(f"{path}.values", detail)
    elif operator not in (*_WITH_VALUES, *_WITHOUT_VALUES, *(_NUMERIC if numeric else ())):
        yield invalid_value(f"{path}.operator", operator, f"not {operator_phrase}")
    yield from key_problems(rule.get("key", ""), f"{path}.key")
