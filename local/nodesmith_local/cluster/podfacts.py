"""Predicates on pods, shared by several stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nodesmith_formats.kubernetes.objects import View, dig, is_true
from nodesmith_formats.kubernetes.selectors import expression_holds


def is_over(pod: View) -> bool:
    """Return whether the pod has finished, by success or by failure."""
    return dig(pod, "status", "phase") in ("Succeeded", "Failed")


def is_leaving(pod: View) -> bool:
    """Return whether the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_active(pod: View) -> bool:
    """Return whether the pod counts as a replica."""
    return not is_over(pod) and not is_leaving(pod)


def is_ready(pod: View) -> bool:
    """Return whether the pod's Ready condition is True."""
    return is_true(pod, "Ready")


def node_name(pod: View) -> str:
    """Return the name of the node that the pod is bound to, or ""."""
    return str(dig(pod, "spec", "nodeName") or "")


def tolerates(tolerations: Iterable[View], taint: View) -> bool:
    """Return whether one of the tolerations covers the taint."""
    return any(covers(toleration, taint) for toleration in tolerations)


def covers(toleration: View, taint: View) -> bool:
    """Return whether a toleration covers a taint: effect, key and value; an absent field matches any."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    value, tolerated = taint.get("value") or "", toleration.get("value") or ""
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(value == tolerated)
        case "Gt" | "Lt" as operator:
            return _compares(value, tolerated, greater=operator == "Gt")
        case _:
            return False


def node_matches(spec: View, node: View) -> bool:
    """Return whether a node satisfies a pod spec's nodeSelector and required node affinity."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = dig(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def term_matches(term: View, node: View) -> bool:
    """Return whether a node satisfies one node selector term; an empty term matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    names = {"metadata.name": node["metadata"]["name"]}
    return _all(expression_holds, expressions, labels) and _all(expression_holds, fields, names)


def _all(
    holds: Callable[[View, Mapping[str, str]], bool], rules: Iterable[View], values: Mapping[str, str]
) -> bool:
    return all(holds(rule, values) for rule in rules)


def _compares(value: str, bound: str, *, greater: bool) -> bool:
    try:
        return int(value) > int(bound) if greater else int(value) < int(bound)
    except ValueError:
        return False
