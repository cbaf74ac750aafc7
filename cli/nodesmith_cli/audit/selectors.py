"""Selectors, affinity terms, taints: does this expression hold, does this node suit this pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith_cli.audit.reading import Manifest, dig, today
from nodesmith_cli.audit.violations import Kind

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def holds(operator: str, values: Iterable[str], found: str | None) -> bool:
    """Return whether a label whose value is `found` (None: absent) satisfies an operator. An unknown one never does."""
    values = [str(value) for value in values]
    match operator:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            return _compares(operator, values, found)
        case _:
            return False


def _compares(operator: str, values: list[str], found: str | None) -> bool:
    try:
        label, bound = int(found or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return {"Gt": label > bound, "Lt": label < bound, "Gte": label >= bound, "Lte": label <= bound}[operator]


def selects(selector: Manifest | None, labels: Mapping[str, str]) -> bool:
    """Apply a LabelSelector to a pod's labels: an absent one selects nothing, an empty one everything."""
    if selector is None:
        return False
    equal = (selector.get("matchLabels") or {}).items()
    rules = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in equal) and all(
        holds(rule["operator"], rule.get("values") or (), labels.get(rule["key"])) for rule in rules
    )


def term_holds(term: Manifest, labels: Mapping[str, str], name: str | None) -> bool:
    """Apply one node selector term; one that is empty holds for no node. `name` is None for a node that is to come."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(
        holds(e["operator"], e.get("values") or (), labels.get(today(e["key"]))) for e in expressions
    ) and all(holds(e["operator"], e.get("values") or (), name) for e in fields)


def label_refusal(spec: Manifest, labels: Mapping[str, str], name: str | None) -> str:
    """Return which part of nodeSelector or required node affinity a node does not satisfy; empty when all hold."""
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(today(key)) != value:
            return f"nodeSelector wants {key}={value}, the node has {labels.get(today(key))!r}"
    required = dig(spec, "affinity", "nodeAffinity", _REQUIRED)
    if required is None or any(term_holds(t, labels, name) for t in required.get("nodeSelectorTerms") or ()):
        return ""
    return f"no term of its required node affinity holds: {required.get('nodeSelectorTerms')}"


def selecting_keys(spec: Manifest) -> set[str]:
    """Name the node labels that nodeSelector and required node affinity look at."""
    terms = dig(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms") or ()
    named = {e["key"] for term in terms for e in term.get("matchExpressions") or ()}
    return {today(key) for key in (*named, *(spec.get("nodeSelector") or {}))}


def tolerates(toleration: Manifest, taint: Manifest) -> bool:
    """Return whether a toleration covers a taint; what it leaves empty covers anything."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    found, given = str(taint.get("value") or ""), str(toleration.get("value") or "")
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.get("key")) and found == given
        case "Gt" | "Lt" as operator:
            return _compares(operator, [given], found)
        case _:
            return False


def taint_refusal(spec: Manifest, taints: Iterable[Manifest]) -> str:
    """Name the first taint that keeps a pod off; PreferNoSchedule keeps nobody off."""
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
    """Return why a pod may not be on a node, whatever else is there: labels and taints."""
    found = [(Kind.LABELS, label_refusal(spec, labels, name)), (Kind.TAINT, taint_refusal(spec, taints))]
    return [(kind, why) for kind, why in found if why]
