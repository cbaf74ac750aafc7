"""Schema of a NodeClaim, and of the fields that NodePool templates share with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    KWOK_KEYS,
    LABEL_VALUE,
    LONGEST_LABEL_VALUE,
    NODEPOOL,
    WELL_KNOWN,
    Effect,
    in_domain,
    normalised,
    restriction,
)
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.requirements import Operator
from nodesmith.model.apimachinery.times import is_time
from nodesmith.model.schema.fields import Array, Integer, Kind, Map, Object, Quantity, Rule, Text

_DOMAIN_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
QUALIFIED_NAME = rf"^({_DOMAIN_PART}(\.{_DOMAIN_PART})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
DURATION = "^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = "^(([0-9]+(s|m|h))+|Never)$"

_OPERATORS = tuple(operator.value for operator in Operator)
_BOUNDS = ("Gt", "Lt", "Gte", "Lte")


def _reserved(allowed: frozenset[str]) -> Rule:
    listed = ", ".join(f"'{key}'" for key in sorted(allowed - KWOK_KEYS))  # KWOK's domain is not reserved
    domains = r"'^([^/]+\\.)?karpenter\\.(sh|k8s\\.aws)/'"
    return Rule(
        f"self in [{listed}] || (self != 'kubernetes.io/hostname' && !self.matches({domains}))",
        "this key is reserved: use a well-known one, or a domain of your own",
        lambda key: _reservation(key, allowed) is None,
        lambda key: _reservation(key, allowed),
    )


def _reservation(key: str, allowed: frozenset[str]) -> str | None:
    if normalised(key) == NODEPOOL and NODEPOOL not in allowed:
        return "nodes get this label from their NodePool; leave it out"
    return restriction(key)


LABEL_KEYS = Text(
    pattern=QUALIFIED_NAME,
    example="example.com/team",
    max_length=316,
    rules=(_reserved(WELL_KNOWN - {NODEPOOL}),),
)
LABELS = Map(
    Text(pattern=LABEL_VALUE, example="blue", max_length=LONGEST_LABEL_VALUE),
    "Labels of every node.",
    keys=LABEL_KEYS,
    max_entries=100,
)
_MOST_ANNOTATED = 262_144
"""The most bytes of annotations, as in Kubernetes, here of JSON: an item of the ledger holds 400 kB."""
ANNOTATIONS = Map(
    Text(),
    "Annotations of every node.",
    rules=(
        Rule(
            "",
            f"must be at most {_MOST_ANNOTATED:,} bytes of JSON together: the API server allows no more on a NodeClaim",
            lambda annotations: len(json.dumps(annotations)) <= _MOST_ANNOTATED,
        ),
    ),
)

TIME_RULE = Rule("", "must be a time such as 2026-01-31T12:00:00Z", is_time)
_TAINT = Object(
    {
        "key": Text("Name of the taint.", QUALIFIED_NAME, "example.com/gpu", min_length=1, max_length=316),
        "value": Text(
            "Value of the taint. May be empty.", LABEL_VALUE, "true", max_length=LONGEST_LABEL_VALUE
        ),
        "effect": Text(
            "What happens to pods that do not tolerate it.", enum=tuple(effect.value for effect in Effect)
        ),
        "timeAdded": Text(
            "When the taint was added. Scheduling ignores it.", format="date-time", rules=(TIME_RULE,)
        ),
    },
    required=("key", "effect"),
)
TAINTS = Array(_TAINT, "Taints of every node. Only pods that tolerate them are placed.", atomic=True)
STARTUP_TAINTS = Array(
    _TAINT,
    "Taints that another component, such as a CNI or a driver, removes while the node starts. Pods need not tolerate "
    "them.",
    atomic=True,
)

NODE_CLASS_REF = Object(
    {
        "group": Text("API group of the NodeClass.", "^[^/]+$", "karpenter.k8s.aws", min_length=1),
        "kind": Text("Kind of the NodeClass.", min_length=1),
        "name": Text("Name of the NodeClass.", min_length=1),
    },
    "The NodeClass that nodes are launched from.",
    required=("group", "kind", "name"),
)

EXPIRE_AFTER = Text(
    "Maximum age of a node before it is replaced. The value Never disables expiration.",
    DURATION_OR_NEVER,
    "720h",
    default="720h",
)
TERMINATION_GRACE_PERIOD = Text(
    "How long a drain may take before the remaining pods are deleted. Defaults to waiting for them.",
    DURATION,
    "1h30m",
)


def _has_a_bound(item: Mapping[str, Any]) -> bool:
    values = item.get("values", [])
    return len(values) == 1 and values[0].isdigit() and int(values[0]) < 2**63


_A_BOUND = "Gt, Lt, Gte and Lte need exactly one value, an integer that is not negative"


def _unit_of(item: Mapping[str, Any]) -> str | None:
    """Return advice on the unit of a `-memory` key, which users often write with a suffix; None for other keys."""
    return f"{_A_BOUND}; it counts MiB, so 64Gi is 65536" if item["key"].endswith("-memory") else None


def _mistyped(key: str) -> str:
    """Return advice for a key that looks like a misspelt label of Kubernetes' domain, empty for any other key."""
    if normalised(key) in WELL_KNOWN or not in_domain(key, "kubernetes.io"):
        return ""
    name = key.partition("/")[2]
    label = next((label for label in _OF_KUBERNETES if did_you_mean(name, (label.partition("/")[2],))), "")
    return f"not a label that Kubernetes sets on nodes, did you mean {label!r}?" if label else ""


_OF_KUBERNETES = tuple(sorted(each for each in WELL_KNOWN if in_domain(each, "kubernetes.io")))
_KNOWN_CAPACITY_TYPES = f"use one of {', '.join(CAPACITY_TYPES)}"


def _unknown_capacity_types(item: Mapping[str, Any]) -> set[str]:
    concrete = normalised(item["key"]) == CAPACITY_TYPE and item["operator"] == "In"
    return set(item.get("values", ())).difference(CAPACITY_TYPES) if concrete else set()


def _enough_capacity_types(item: Mapping[str, Any]) -> bool:
    """Return whether at least minValues of the values are known capacity types. Unknown ones alone are not fatal."""
    unknown = _unknown_capacity_types(item)
    return not unknown or len(set(item["values"]) - unknown) >= item.get("minValues", 1)


def requirements(key_rules: tuple[Rule, ...]) -> Array:
    """Return the schema of a list of requirements whose keys follow `key_rules`."""
    return Array(
        Object(
            {
                "key": Text(
                    "Label key that the requirement applies to.",
                    QUALIFIED_NAME,
                    "topology.kubernetes.io/zone",
                    min_length=1,
                    max_length=316,
                    rules=key_rules,
                ),
                "operator": Text(
                    "How the label's value relates to the values.",
                    enum=_OPERATORS,
                ),
                "values": Array(
                    Text(pattern=LABEL_VALUE, example="us-east-1a", max_length=LONGEST_LABEL_VALUE),
                    "Values to allow or exclude, or the single integer bound.",
                    atomic=True,
                ),
                "minValues": Integer("Minimum number of distinct values that must stay possible.", 1, 50),
            },
            required=("key", "operator"),
            rules=_REQUIREMENT_RULES,
        ),
        "Requirements for the labels of nodes. All of them must hold.",
        max_items=100,
        atomic=True,
    )


_REQUIREMENT_RULES = (
    Rule(
        "self.operator != 'In' || (has(self.values) && self.values.size() > 0)",
        "In needs at least one value",
        lambda item: item["operator"] != "In" or bool(item.get("values")),
        field="values",
    ),
    Rule(
        "!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || "
        "(has(self.values) && self.values.size() == 1 && self.values[0].matches('^[0-9]+$') && "
        "int(self.values[0]) >= 0)",
        _A_BOUND,
        lambda item: item["operator"] not in _BOUNDS or _has_a_bound(item),
        _unit_of,
        field="values",
    ),
    Rule(
        "self.operator != 'In' || !has(self.minValues) || "
        "(has(self.values) && self.values.size() >= self.minValues)",
        "In needs at least minValues values",
        lambda item: item["operator"] != "In" or len(item.get("values", ())) >= item.get("minValues", 0),
        field="values",
    ),
    Rule("", "", lambda item: not _mistyped(item["key"]), lambda item: _mistyped(item["key"]), False, "key"),
    Rule("", _KNOWN_CAPACITY_TYPES, _enough_capacity_types, field="values"),
    Rule(
        "", _KNOWN_CAPACITY_TYPES, lambda item: not _unknown_capacity_types(item), fatal=False, field="values"
    ),
)
TEMPLATE_REQUIREMENTS = requirements((_reserved(WELL_KNOWN - {NODEPOOL}),))
CLAIM_REQUIREMENTS = requirements((_reserved(WELL_KNOWN),))


def taints_differ(spec: Mapping[str, Any]) -> bool:
    """Return whether each pair of key and effect occurs only once across taints and startup taints."""
    pairs = [(t["key"], t["effect"]) for kind in ("taints", "startupTaints") for t in spec.get(kind, ())]
    return len(pairs) == len(set(pairs))


TAINTS_DIFFER = Rule(
    "",
    "each pair of key and effect may occur only once across taints and startupTaints",
    taints_differ,
    field="startupTaints",
)


NODE_CLAIM = Kind(
    "karpenter.sh",
    "NodeClaim",
    "nodeclaims",
    Object(
        {
            "requirements": CLAIM_REQUIREMENTS,
            "nodeClassRef": NODE_CLASS_REF,
            "taints": TAINTS,
            "startupTaints": STARTUP_TAINTS,
            "resources": Object(
                {"requests": Map(Quantity(), "Minimum resources that the node must offer to pods.")},
                "Resources that the node must provide.",
            ),
            "expireAfter": EXPIRE_AFTER,
            "terminationGracePeriod": TERMINATION_GRACE_PERIOD,
        },
        "Desired state of the node.",
        required=("requirements", "nodeClassRef"),
        rules=(
            Rule("self == oldSelf", "a NodeClaim cannot be changed; create a new one", None),
            TAINTS_DIFFER,
        ),
    ),
    "A request for one node.",
)
