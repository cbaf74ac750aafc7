"""Label and field selectors of list, watch and deletecollection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from nodesmith_formats.kubernetes.errors import ApiError, bad_request
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import View, dig, labels_of

Matcher: TypeAlias = Callable[[View], bool]

_SET = re.compile(r"\s*([^\s,!=()]+)\s+(in|notin)\s*\(([^)]*)\)\s*(?:,|$)")
_EQUAL = re.compile(r"\s*([^\s,!=()]+)\s*(==|=|!=)\s*([^\s,!=()]*)\s*(?:,|$)")
_NUMBER = re.compile(r"\s*([^\s,!=()<>]+)\s*([<>])\s*(\d+)\s*(?:,|$)")
_PRESENT = re.compile(r"\s*(!?)\s*([^\s,!=()]+)\s*(?:,|$)")

# Field selectors that a real server supports in addition to metadata.name and metadata.namespace.
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    ),
    "jobs.batch": ("status.successful",),
    "replicasets.apps": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
}  # fmt: skip
_EMPTY = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.replicas": "0"}


def label_matcher(text: str) -> Matcher | None:
    """Return a matcher for a selector such as `a=b,c in (d, e),!f`, or None for an empty one. Raises ApiError 400."""
    if not text.strip():
        return None
    tests = _label_tests(text)
    return lambda obj: all(test(labels_of(obj)) for test in tests)


def field_matcher(resource: Resource, text: str) -> Matcher | None:
    """Return a matcher for a selector such as `spec.nodeName=n1,status.phase!=Failed`, or None for an empty one.

    Raises ApiError 400.
    """
    if not text.strip():
        return None
    supported = {"metadata.name", *(("metadata.namespace",) if resource.namespaced else ())}
    supported |= {*_FIELDS.get(resource.name, ()), *resource.selectable}
    tests: list[tuple[str, bool, str]] = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name, operator, value = match.groups()
        if name not in supported:
            raise _unselectable(resource, name)
        tests.append((name, operator != "!=", value))
    return lambda obj: all((_field(obj, name) == value) == is_equal for name, is_equal, value in tests)


def selector_matcher(selector: View | None) -> Callable[[Mapping[str, str]], bool]:
    """Return a matcher of a metav1.LabelSelector for label maps; None matches nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    equal = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or ()
    return lambda labels: (
        all(labels.get(key) == value for key, value in equal.items())
        and all(expression_holds(rule, labels) for rule in rules)
    )


def expression_holds(rule: View, labels: Mapping[str, str]) -> bool:
    """Return whether `labels` satisfy one `{key, operator, values}` of a label or node selector."""
    value, values = labels.get(rule.get("key", "")), rule.get("values") or ()
    match rule.get("operator"):
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compare(value, operator == "Gt", values[0] if values else "")
        case _:
            return False


def selector_text(selector: View) -> str:
    """Format a metav1.LabelSelector as the scale subresource and kubectl show it."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for rule in selector.get("matchExpressions") or ():
        match rule.get("operator"):
            case "Exists":
                terms.append(rule["key"])
            case "DoesNotExist":
                terms.append(f"!{rule['key']}")
            case operator:
                terms.append(f"{rule['key']} {str(operator).lower()} ({','.join(rule.get('values') or ())})")
    return ",".join(terms)


def _unselectable(resource: Resource, name: str) -> ApiError:
    """Return the error for an unsupported field selector. Kinds without selectable fields have another message."""
    if resource.name in _FIELDS:
        return bad_request(f"field label not supported: {name}")
    supported = ["metadata.name", "metadata.namespace", *resource.selectable]
    listed = ", ".join(f'"{field}"' for field in supported)
    return bad_request(f'"{name}" is not a known field selector: only {listed}')


def _label_tests(text: str) -> list[Callable[[Mapping[str, str]], bool]]:
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(text):
        parsed = next(
            ((build, match) for pattern, build in _TERMS if (match := pattern.match(text, position))), None
        )
        if parsed is None:
            raise bad_request(f"unable to parse requirement: {text[position:]!r} in label selector {text!r}")
        build, match = parsed
        tests.append(build(*match.groups()))
        position = match.end()
    return tests


def _set_test(key: str, operator: str, inside: str) -> Callable[[Mapping[str, str]], bool]:
    values = frozenset(value.strip() for value in inside.split(","))
    if operator == "in":
        return lambda labels: key in labels and labels[key] in values
    return lambda labels: key not in labels or labels[key] not in values


def _equal_test(key: str, operator: str, value: str) -> Callable[[Mapping[str, str]], bool]:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _number_test(key: str, operator: str, bound: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: _compare(labels.get(key), operator == ">", bound)


def _present_test(absent: str, key: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: (key in labels) != bool(absent)


_TERMS: tuple[tuple[re.Pattern[str], Callable[..., Callable[[Mapping[str, str]], bool]]], ...] = (
    (_SET, _set_test),
    (_EQUAL, _equal_test),
    (_NUMBER, _number_test),
    (_PRESENT, _present_test),
)


def _compare(label: str | None, greater: bool, bound: str) -> bool:
    try:
        value, limit = int(label or ""), int(bound)
    except ValueError:
        return False
    return value > limit if greater else value < limit


def _field(obj: View, name: str) -> str:
    value = dig(obj, *name.split("."))
    if name == "source":
        value = dig(obj, "source", "component")
    if name == "reportingComponent" and not value:
        value = dig(obj, "source", "component")
    if name == "status.podIPs":  # the server accepts this name, but no pod ever matches it
        return ""
    if value is None:
        return _EMPTY.get(name, "")
    return str(value).lower() if isinstance(value, bool) else str(value)
