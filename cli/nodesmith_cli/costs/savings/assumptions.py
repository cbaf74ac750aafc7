"""NodePools for a cluster that has none of its own: one for each kind of node that it runs now.

Nodes are of one kind if they agree in capacity type, architecture, taints, and the labels that pods select by. So no
pod gets a node that it could not have had before, and on-demand stays on-demand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.labels import (
    ARCH,
    AWS_DOMAIN,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    OS,
    WELL_KNOWN,
    ZONE,
    Taint,
    is_ephemeral,
    normalised,
    restriction,
)
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE
from nodesmith_cli.costs.savings.nodeprices import PricedNode
from nodesmith_cli.planning.nodeclasses import assumed_nodeclass

Manifest = Mapping[str, Any]
NODECLASS_NAME = "assumed"
_USUAL = frozenset("cmr")
"""The categories of instance types for general use, which every NodePool here may buy."""
_OLD = 2
"""Instance generations up to this one are left out unless the cluster has them: they cost more for less."""
_FAMILY = re.compile(r"(?P<category>[a-z]+?)(?P<generation>[0-9]+)[a-z0-9-]*\.", re.ASCII)
_LINUX = "linux"
_NOT_TEMPLATED = ("eks.amazonaws.com/compute-type", "topology.kubernetes.io/", "kubernetes.io/hostname")


@dataclass(frozen=True, slots=True, order=True)
class _Kind:
    """What nodes of one NodePool have in common."""

    capacity_type: str
    arch: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[tuple[str, str, str], ...]


def assumed_nodepools(nodes: Iterable[PricedNode], pods: Iterable[Manifest]) -> list[dict[str, Any]]:
    """Return NodePools that serve what the nodes serve now, and their EC2NodeClass first; nothing without nodes."""
    selected = selected_labels(pods)
    kinds: dict[_Kind, list[PricedNode]] = {}
    for node in nodes:
        if node.price is not None and node.node.labels.get(OS, _LINUX) == _LINUX:
            kinds.setdefault(_kind(node, selected), []).append(node)
    pools = [_nodepool(f"assumed-{n}", kind, kinds[kind]) for n, kind in enumerate(sorted(kinds), start=1)]
    return [assumed_nodeclass(NODECLASS_NAME), *pools] if pools else []


def selected_labels(pods: Iterable[Manifest]) -> frozenset[str]:
    """Return the keys that pods select nodes by and that a NodePool may set: not the well-known ones."""
    keys = {normalised(key) for pod in pods for key in _selected(pod.get("spec") or {})}
    return frozenset(
        key
        for key in keys
        if key not in WELL_KNOWN and not restriction(key) and not key.startswith(_NOT_TEMPLATED)
    )


def _selected(spec: Manifest) -> Iterator[str]:
    yield from spec.get("nodeSelector") or ()
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            yield str(expression.get("key"))


def _kind(node: PricedNode, selected: Collection[str]) -> _Kind:
    labels = node.node.labels
    return _Kind(
        node.capacity_type,
        labels.get(ARCH, "amd64"),
        tuple(sorted((key, labels[key]) for key in selected if key in labels)),
        tuple(sorted((t.key, t.value, t.effect) for t in node.node.taints if _lasts(t))),
    )


def _lasts(taint: Taint) -> bool:
    """Return whether a taint belongs to a node's configuration, rather than to its state or to a drain."""
    is_state = is_ephemeral(taint) or taint.identity == REGISTERED_UNSCHEDULABLE.identity
    return not (is_state or taint.key.startswith(("karpenter.sh/", "node.kubernetes.io/")))


def _nodepool(name: str, kind: _Kind, nodes: Sequence[PricedNode]) -> dict[str, Any]:
    metadata = {"metadata": {"labels": dict(kind.labels)}} if kind.labels else {}
    taints = [
        {"key": key, "effect": effect, **({"value": value} if value else {})}
        for key, value, effect in kind.taints
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                **metadata,
                "spec": {
                    "nodeClassRef": {"group": AWS_DOMAIN, "kind": "EC2NodeClass", "name": NODECLASS_NAME},
                    **({"taints": taints} if taints else {}),
                    "requirements": _requirements(kind, [node.instance_type for node in nodes]),
                },
            },
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"},
        },
    }


def _requirements(kind: _Kind, types: Iterable[str]) -> list[dict[str, Any]]:
    families = [match for name in types if (match := _FAMILY.match(name))]
    categories = _USUAL | {match["category"] for match in families}
    requirements = [
        _allows(ARCH, kind.arch),
        _allows(OS, _LINUX),
        _allows(CAPACITY_TYPE, kind.capacity_type),
        _allows(f"{AWS_DOMAIN}/instance-category", *sorted(categories)),
    ]
    if all(int(match["generation"]) > _OLD for match in families):
        requirements.append(
            {"key": f"{AWS_DOMAIN}/instance-generation", "operator": "Gt", "values": [str(_OLD)]}
        )
    return requirements


def _allows(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def in_zones(nodeclass: Manifest, nodes: Iterable[PricedNode]) -> dict[str, Any]:
    """Return an assumed EC2NodeClass with subnets in the zones of the nodes, as its status would show them."""
    zones = sorted(
        {node.zone for node in nodes if node.price is not None and node.node.labels.get(INSTANCE_TYPE)}
    )
    subnets = [{"id": f"subnet-{zone}", ZONE.rpartition("/")[2]: zone} for zone in zones]
    return {**nodeclass, "status": {"subnets": subnets}} if subnets else dict(nodeclass)
