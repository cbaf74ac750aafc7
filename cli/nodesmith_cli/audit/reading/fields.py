"""Reading manifests: optional fields, resource amounts, and deprecated label keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from nodesmith.model.apimachinery.quantities import cpu_milli, whole_units

Manifest: TypeAlias = Mapping[str, Any]
Amounts: TypeAlias = dict[str, int]  # cpu in millicores, memory and storage in bytes, all else as counts

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
"""The exceptions raised for manifests that no API server would accept."""
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
_TODAY = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "topology.ebs.csi.aws.com/zone": ZONE,
}


def dig(manifest: Any, *path: str) -> Any:
    """Return a field by its path, or None if any part of the path is absent."""
    for name in path:
        if not manifest:
            return None
        manifest = manifest.get(name)
    return manifest


def today(key: str) -> str:
    """Return the current name of a node label."""
    return _TODAY.get(key, key)


def node_labels(raw: Mapping[str, str] | None) -> dict[str, str]:
    """Return a node's labels, with deprecated ones also under their current name."""
    labels = {str(key): str(value) for key, value in (raw or {}).items()}
    return {**{today(key): value for key, value in labels.items()}, **labels}


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Parse a resource list. Raises ValueError for an invalid quantity."""
    return {
        name: cpu_milli(value) if name == "cpu" else whole_units(value)
        for name, value in (quantities or {}).items()
    }


def plus(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """Add two resource lists."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


def largest(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """Return the maximum of two resource lists, resource by resource."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def add_to(sums: Amounts, part: Mapping[str, int]) -> None:
    """Add a resource list to a running sum."""
    for name, amount in part.items():
        sums[name] = sums.get(name, 0) + amount


def shown(name: str, amount: float) -> str:
    """Format an amount for a message, in cores and GiB."""
    if name == "cpu":
        return f"{amount / 1000:g} cpu"
    return (
        f"{amount / 2**30:.6g} GiB {name}" if name in ("memory", "ephemeral-storage") else f"{amount} {name}"
    )
