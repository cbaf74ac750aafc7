"""NodeOverlays for tests, and the cases of Karpenter's own tests of their validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_FAMILY, NODEPOOL, ZONE
from tests.builders import expression

EVERY: Sequence[dict[str, Any]] = ()
API_VERSION = "karpenter.sh/v1alpha1"
PATH = f"/apis/{API_VERSION}/nodeoverlays"


def overlay(
    name: str = "o", requirements: Sequence[dict[str, Any]] = EVERY, generation: int = 1, **spec: Any
) -> dict[str, Any]:
    """Return a NodeOverlay's manifest."""
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeOverlay",
        "metadata": {"name": name, "generation": generation, "uid": f"uid-of-{name}"},
        "spec": {"requirements": list(requirements), **spec},
    }


def family(*names: str) -> list[dict[str, Any]]:
    """Return the requirement that a type is of one of these families."""
    return [expression(INSTANCE_FAMILY, "In", *names)]


def _requires(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {
        "requirements": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]
    }


CASES: Sequence[tuple[str, dict[str, Any], bool]] = (
    ("In without values", _requires("Test", "In"), False),
    ("NotIn without values", _requires("Test", "NotIn"), False),
    ("a key without a domain", _requires("Test", "Exists"), True),
    ("a key with a domain", _requires("test.com/Test", "Exists"), True),
    ("a key with a dash", _requires("key-only", "Exists"), True),
    ("a key with a brace", _requires("test.com.com}", "Exists"), False),
    ("a key with a capital in its domain", _requires("Test.com/test", "Exists"), False),
    ("a key with two slashes", _requires("test/test/test", "Exists"), False),
    ("a key without a name", _requires("test/", "Exists"), False),
    ("a key without a domain before its slash", _requires("/test", "Exists"), False),
    ("a key that is too long", _requires(f"test.com/{'x' * 310}", "Exists"), False),
    ("the label of the NodePool", _requires(NODEPOOL, "In", "default"), True),
    ("Gt", _requires(ZONE, "Gt", "1"), True),
    ("Lt", _requires(ZONE, "Lt", "1"), True),
    ("Gte", _requires(ZONE, "Gte", "1"), True),
    ("Lte", _requires(ZONE, "Lte", "1"), True),
    ("NotIn", _requires(ZONE, "NotIn", "1"), True),
    ("an unknown operator", _requires(ZONE, "unknown", "test"), False),
    ("a reserved domain", _requires("karpenter.sh/test", "In", "test"), False),
    ("the host name", _requires("kubernetes.io/hostname", "In", "test"), False),
    ("a domain of Kubernetes", _requires("kops.k8s.io/test", "In", "test"), True),
    ("a well-known label of AWS", _requires(INSTANCE_FAMILY, "In", "test"), True),
    ("no requirement", {"requirements": []}, True),
    ("no list of requirements", {"requirements": None}, False),
    ("101 requirements", {"requirements": [expression("a", "Exists")] * 101}, False),
    *(
        (f"{operator} {list(values)}", _requires(ZONE, operator, *values), False)
        for operator in ("Gt", "Lt", "Gte", "Lte")
        for values in ((), ("1", "2"), ("a",), ("-1",))
    ),
    ("price and priceAdjustment", {"price": "0.432", "priceAdjustment": "+10%"}, False),
    *((f"adjusted by {text!r}", {"priceAdjustment": text}, False) for text in ("1%", "1", "1.3", "-101.1%", "-129%")),
    *((f"adjusted by {text!r}", {"priceAdjustment": text}, False) for text in ("-100.0%", "+", "", "+5 ", "+1e3")),
    *((f"adjusted by {text!r}", {"priceAdjustment": text}, True) for text in ("+1%", "-1%", "-100%", "-0%")),
    *((f"adjusted by {text!r}", {"priceAdjustment": text}, True) for text in ("+100.102%", "+298%", "-99.9%")),
    *((f"adjusted by {text!r}", {"priceAdjustment": text}, True) for text in ("+43", "-43", "+34.43", "-34.43")),
    *(
        (f"priced {text!r}", {"price": text}, False)
        for text in ("+42", ".5", "42.", "42%", "3,14", "1e10", "0x42", "forty-two", "42a", "42 ", " 42")
    ),
    *((f"priced {text!r}", {"price": text}, False) for text in ("42.0.0", "-", ".", "-.42", "-1", "")),
    *((f"priced {text!r}", {"price": text}, True) for text in ("0", "0.0", "42", "42.0", "1.5")),
    ("an extended resource", {"capacity": {"smarter-devices/fuse": "1"}}, True),
    ("huge pages", {"capacity": {"hugepages-2Mi": "1Gi"}}, True),
    *(
        (f"capacity {name}", {"capacity": {name: "1"}}, False)
        for name in ("cpu", "memory", "ephemeral-storage", "pods")
    ),
    ("weight 0", {"weight": 0}, False),
    ("weight 1", {"weight": 1}, True),
    ("weight 10000", {"weight": 10_000}, True),
    ("weight 10001", {"weight": 10_001}, False),
)  # fmt: skip
"""What is tried, the spec, and whether it is valid. Karpenter's table, with the limits of its CRD."""

UNKNOWN_CAPACITY_TYPE = _requires(CAPACITY_TYPE, "In", "cheap")
"""The API server takes it, since it does not know the capacity types; nodesmith and Karpenter do not."""


def spec_of(change: dict[str, Any]) -> dict[str, Any]:
    """Return a complete spec with a change of one case."""
    usual: dict[str, Any] = {"requirements": [expression(CAPACITY_TYPE, "Exists")]}
    return {key: value for key, value in (usual | change).items() if value is not None}
