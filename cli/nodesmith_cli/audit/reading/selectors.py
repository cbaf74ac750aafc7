"""Evaluating selectors, affinity terms and taints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith_cli.audit.reading.fields import Manifest, dig, today
from nodesmith_cli.audit.violations import Kind

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def holds(operator: str, values: Iterable[str], actual: str | None) -> bool:
    """Return whether a label with the value `actual` (None: absent) satisfies an operator. Unknown operators fail."""
    values = [str(value) for value in values]
    match operator:
        case "In":
            return actual in values
        case "NotIn":
            return actual not in values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            return _compares(operator, values, actual)
        case _:
            return False


def _compares(operator: str, values: list[str], value: str | None) -> bool:
    try:
        label, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return {"Gt": label > bound, "Lt": label < bound, "Gte": label >= bound, "Lte": label <= bound}[operator]


def selects(selector: Manifest | None, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector matches labels. An absent one matches nothing, an empty one everything."""
    if selector is None:
        return False
    equal = (selector.get("matchLabels") or {}).items()
    rules = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in equal) and all(
        holds(rule["operator"], rule.get("values") or (), labels.get(rule["key"])) for rule in rules
    )


def term_holds(term: Manifest, labels: Mapping[str, str], name: str | None) -> bool:
    """Return whether a node selector term matches a node. An empty term matches none. `name` is None for a new node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(
        holds(e["operator"], e.get("values") or (), labels.get(today(e["key"]))) for e in expressions
    ) and all(holds(e["operator"], e.get("values") or (), name) for e in fields)


def label_refusal(spec: Manifest, labels: Mapping[str, str], name: str | None) -> str:
    """Return the part of nodeSelector or required node affinity that a node does not satisfy, or an empty string."""
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(today(key)) != value:
            return f"nodeSelector requires {key}={value}, but the node has {labels.get(today(key))!r}"
    required = dig(spec, "affinity", "nodeAffinity", _REQUIRED)
    if required is None or any(term_holds(t, labels, name) for t in required.get("nodeSelectorTerms") or ()):
        return ""
    return f"no term of its required node affinity matches: {required.get('nodeSelectorTerms')}"


def selecting_keys(spec: Manifest) -> set[str]:
    """Return the node labels that nodeSelector and required node affinity use."""
    terms = dig(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms") or ()
    named = {e["key"] for term in terms for e in term.get("matchExpressions") or ()}
    return {today(key) for key in (*named, *(spec.get("nodeSelector") or {}))}


def tolerates(toleration: Manifest, taint: Manifest) -> bool:
    """Return whether a toleration matches a taint. Its empty fields match anything."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    value, tolerated = str(taint.get("value") or ""), str(toleration.get("value") or "")
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.get("key")) and value == tolerated
        case "Gt" | "Lt" as operator:
            return _compares(operator, [tolerated], value)
        case _:
            return False


def taint_refusal(spec: Manifest, taints: Iterable[Manifest]) -> str:
    """Return the first taint that a pod does not tolerate, or an empty string. PreferNoSchedule is ignored."""
    tolerations = spec.get("tolerations") or ()
    for taint in taints:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(tolerates(toleration, taint) for toleration in tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"the taint {taint['key']}{value}:{taint['effect']} is not tolerated"
    return ""


def refusals(
    spec: Manifest, labels: Mapping[str, str], taints: Iterable[Manifest], name: str | None
) -> list[tuple[Kind, str]]:
    """Return the reasons why a pod may not run on a node, by labels and taints."""
    candidates = [(Kind.LABELS, label_refusal(spec, labels, name)), (Kind.TAINT, taint_refusal(spec, taints))]
    return [(kind, reason) for kind, reason in candidates if reason]
