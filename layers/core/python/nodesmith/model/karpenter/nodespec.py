"""Read and write what NodePool templates and NodeClaims share: NodeClass reference, taints and requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.requirements import Operator, Requirement, Requirements, requirement
from nodesmith.model.apimachinery.taints import Taint


@dataclass(frozen=True, slots=True)
class NodeClassRef:
    """The NodeClass that a NodePool or NodeClaim refers to for its AWS settings."""

    name: str
    group: str = "karpenter.k8s.aws"
    kind: str = "EC2NodeClass"

    @property
    def label(self) -> str:
        """The key of the label on nodes of this NodeClass. The label's value is the NodeClass's name."""
        return f"{self.group}/{self.kind.lower()}"


def read_taints(items: Iterable[Mapping[str, Any]]) -> tuple[Taint, ...]:
    """Read a list of taints that has passed its schema."""
    return tuple(Taint(item["key"], item["effect"], item.get("value", "")) for item in items)


def write_taints(taints: Iterable[Taint]) -> list[dict[str, str]]:
    """Write taints as in a manifest."""
    return [{"key": t.key, "effect": str(t.effect)} | ({"value": t.value} if t.value else {}) for t in taints]


def read_requirements(items: Iterable[Mapping[str, Any]]) -> Requirements:
    """Read a list of requirements that has passed its schema. Requirements on one key are intersected."""
    return Requirements.of(
        *(
            requirement(item["key"], item["operator"], item.get("values", ()), item.get("minValues"))
            for item in items
        )
    )


def write_requirements(requirements: Requirements) -> list[dict[str, object]]:
    """Write requirements so that reading them returns the same: sorted by key, bounds as Gte and Lte.

    A requirement with bounds needs several entries with its key, since an entry has only one operator. Karpenter omits
    the values that are excluded within bounds; this function writes them as NotIn.
    """
    return [entry for key in sorted(requirements) for entry in _entries(requirements[key])]


def _entries(needed: Requirement) -> list[dict[str, object]]:
    parts: list[tuple[Operator, list[str]]] = []
    if needed.gte is not None:
        parts.append((Operator.GTE, [str(needed.gte)]))
    if needed.lte is not None and needed.lte >= 0:
        parts.append((Operator.LTE, [str(needed.lte)]))
    elif needed.lte is not None:
        parts.append((Operator.LT, ["0"]))  # bounds in manifests are not negative
    if needed.exists:
        parts.append((Operator.EXISTS, []))
    if not parts or needed.values:
        parts.append((needed.operator, sorted(needed.values)))
    flexible = {} if needed.min_values is None else {"minValues": needed.min_values}
    return [
        {"key": needed.key, "operator": operator.value, **({"values": values} if values else {}), **flexible}
        for operator, values in parts
    ]
