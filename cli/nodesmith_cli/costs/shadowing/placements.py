"""Whether pods could run where the shadow has them now: the audit, which shares no code with decisions, checks it.

The cluster is read as it is. The audit gets its pods as if none had a node, and the shadow's nodes as those of a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith.decisions.shadow.fleet import OTHERS, hourly_usd
from nodesmith.model.costs.shadow import Fleet
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith_cli.audit import Kind, audit
from nodesmith_formats.kubernetes.objects import pod_key

Manifest = Mapping[str, Any]
_OF_PLACES = frozenset(
    {
        Kind.FORMAT,
        Kind.UNREADABLE,
        Kind.POD_TWICE,
        Kind.NODE_TWICE,
        Kind.NODEPOOL,
        Kind.INSTANCE_TYPE,
        Kind.OFFERING,
        Kind.PRICE,
        Kind.REQUIREMENTS,
        Kind.TAINT,
        Kind.RESOURCES,
        Kind.HOST_PORT,
        Kind.VOLUME,
        Kind.AFFINITY,
        Kind.ANTI_AFFINITY,
    }
)
"""The rules that always hold for pods on nodes. A spread only holds at the time of binding: pods may leave later."""
_NOT_ASKED = ("Node", "NodeClaim")


def checked(fleet: Fleet, manifests: Sequence[Manifest], catalog: Catalog) -> dict[str, Any]:
    """Return how many pods were checked, and the violations. Pods that came or went since the last look are left out.

    Copies of the cluster's own nodes are left out as well: no decision placed their pods.
    """
    claims = {c.name: c for c in fleet.claims if c.nodepool != OTHERS and c.provider_id.startswith("shadow:")}
    pods = {pod_key(manifest): manifest for manifest in manifests if manifest.get("kind") == "Pod"}
    held: dict[str, list[str]] = {}
    for key, location in sorted(fleet.locations.items()):
        if location.node in claims and key in pods:
            held.setdefault(location.node, []).append(key)
    placed = {key for keys in held.values() for key in keys}
    nodes = [_planned(claims[name], keys, catalog) for name, keys in sorted(held.items())]
    price = sum(node["priceHourly"] for node in nodes)
    plan = {
        "nodes": nodes,
        "existing": [],
        "unplaced": [],
        "priceHourly": price,
        "lowerBoundHourly": 0.0,
        "seconds": 0.0,
        "steps": 0,
    }
    others = [manifest for manifest in manifests if manifest.get("kind") not in (*_NOT_ASKED, "Pod")]
    all_pods = [*others, *(_free(pods[key]) for key in sorted(placed))]
    violations = audit(all_pods, catalog, plan)
    return {
        "pods": len(placed),
        "violations": [str(violation) for violation in violations if violation.kind in _OF_PLACES],
    }


def _planned(claim: NodeClaim, keys: Sequence[str], catalog: Catalog) -> dict[str, Any]:
    return {
        "name": claim.name,
        "nodePool": claim.nodepool,
        "instanceType": claim.instance_type,
        "instanceTypes": [claim.instance_type],
        "zone": claim.zone,
        "capacityType": claim.capacity_type,
        "priceHourly": hourly_usd(claim.labels, catalog) or claim.price_hourly_usd,
        "requests": {},
        "pods": list(keys),
        "labels": dict(claim.labels),
    }


def _free(pod: Manifest) -> dict[str, Any]:
    """Return a pod as if it had no node yet."""
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    metadata = {name: value for name, value in pod["metadata"].items() if name != "deletionTimestamp"}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
