"""Nodes of an observed cluster, and nodes to buy, in the form in which decisions read nodesmith's own.

`nodesmith savings` and the shadows of observed clusters use both. A Node of a NodePool stands for its NodeClaim. All
other priced nodes belong to one NodePool that buys nothing, which allows any of them to be moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from nodesmith.decisions.provisioning import Inputs, PlannedNode
from nodesmith.decisions.provisioning.nodepools.tiers import parsed_nodeclasses
from nodesmith.decisions.readiness.launchconditions import LAUNCHES
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    AWS_DOMAIN,
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    EKS_CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    NODECLASS,
    ON_DEMAND,
    RESERVED,
    SPOT,
    ZONE,
    normalised,
)
from nodesmith.model.apimachinery.requirements import read_requirements
from nodesmith.model.ec2.catalog import Catalog, product_of, sold_as
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.nodes import Condition, Node
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, NodeConfiguration, parse_nodeclass
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    Image,
    NodeClassStatus,
    PlacementGroup,
    SecurityGroup,
    StatusCondition,
    Subnet,
)

Manifest = Mapping[str, Any]
OTHERS = "nodesmith-savings-others"
"""The NodePool of the nodes that belong to no NodePool of nodesmith's."""
ASSUMED = "assumed"
AVAILABLE = "availableInstanceCount"
"""EC2's field for the free instances of a capacity reservation. The status of an EC2NodeClass does not have it."""
_SOLD_AS: Mapping[str, Mapping[str, str]] = {
    EKS_CAPACITY_TYPE: {"SPOT": SPOT, "ON_DEMAND": ON_DEMAND, "CAPACITY_BLOCK": RESERVED},
    "spotinst.io/node-lifecycle": {"spot": SPOT, "od": ON_DEMAND},
    "scheduling.cast.ai/spot": {"true": SPOT},
    "node.kubernetes.io/lifecycle": {"spot": SPOT, "on-demand": ON_DEMAND},
    "node-lifecycle": {"spot": SPOT, "on-demand": ON_DEMAND},
    "lifecycle": {"Ec2Spot": SPOT, "OnDemand": ON_DEMAND},
}
"""Labels of other software that name a node's capacity type, with the meaning of their values."""
_PROVIDER_ID = re.compile(r"aws:///(?P<zone>[a-z0-9-]+)/i-[0-9a-z]+", re.ASCII)
_READY = StatusCondition("Ready", "True", "Ready")
_LATEST = datetime.max.replace(tzinfo=UTC)
"""The time of a status. It is the latest one, so that running instances are not subtracted from the free ones."""


def zone_of_provider(node: Node) -> str:
    """Return the zone that a Node's provider id names, or an empty string."""
    match = _PROVIDER_ID.fullmatch(node.provider_id)
    return match["zone"] if match else ""


def named(node: Node) -> tuple[Node, bool]:
    """Return a node with the current labels, and whether its capacity type is assumed."""
    labels = {normalised(key): value for key, value in node.labels.items()}
    labels.setdefault(ZONE, zone_of_provider(node))
    capacity_type, assumed = _sold_as(labels)
    return replace(node, labels=FrozenMap({**node.labels, **labels, CAPACITY_TYPE: capacity_type})), assumed


def _sold_as(labels: Mapping[str, str]) -> tuple[str, bool]:
    """Return a node's capacity type, and whether it is assumed to be on-demand because no label names it."""
    stated = labels.get(CAPACITY_TYPE, "")
    if stated in CAPACITY_TYPES:
        return stated, False
    for key, values in _SOLD_AS.items():
        if labels.get(key) in values:
            return values[labels[key]], False
    return ON_DEMAND, True


def unpriced(node: Node, catalog: Catalog) -> str:
    """Return why a node that is `named` cannot have a price in the catalogue; empty if it may."""
    kind = node.labels.get(INSTANCE_TYPE, "")
    if node.provider_id and not node.provider_id.startswith("aws://"):
        return f"its provider is {node.provider_id.partition(':')[0][:40]}, not AWS"
    if not kind:
        return f"it has no label {INSTANCE_TYPE}"
    if kind not in catalog.facts:
        return f"its instance type {kind[:40]!r} is not in the catalogue of {catalog.region}"
    if not node.allocatable.cpu_milli or not node.allocatable.memory_bytes:
        return "its status has no allocatable cpu and memory"
    return ""


def hourly_usd(labels: Mapping[str, str], catalog: Catalog) -> float | None:
    """Return the present price of a node with these labels in USD an hour; None if it is unknown.

    Reserved capacity costs nothing more.
    """
    if labels.get(CAPACITY_TYPE) == RESERVED:
        return 0.0
    place = labels.get(ZONE), labels.get(CAPACITY_TYPE)
    offered = sold_as(catalog, labels.get(INSTANCE_TYPE, ""), product_of(labels))
    return next((o.price_hourly_usd for o in offered if (o.zone, o.capacity_type) == place), None)


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node of the cluster with its present price in USD an hour; None if that is unknown, and `reason` says why."""

    node: Node
    price: float | None
    reason: str = ""


def seen_nodes(nodes: Iterable[Node], catalog: Catalog) -> list[ObservedNode]:
    """Return every node with its price, by name."""
    observed = []
    for node in sorted(nodes, key=lambda n: n.name):
        labelled, _ = named(node)
        fault = unpriced(labelled, catalog)
        price = None if fault else hourly_usd(labelled.labels, catalog)
        if price is None and not fault:
            capacity_type, kind, zone = (
                labelled.labels.get(key, "") for key in (CAPACITY_TYPE, INSTANCE_TYPE, ZONE)
            )
            fault = (
                f"the catalogue of {catalog.region} has no {capacity_type} price for {kind} in zone"
                f" {zone[:40] or '?'}"
            )
        observed.append(ObservedNode(labelled, price, fault))
    return observed


def claim_of(node: Node, nodepool: str, pool: NodePool | None) -> NodeClaim:
    """Return the NodeClaim that a Node stands for."""
    labels: Mapping[str, str] = node.labels
    ready = labels.get(INITIALIZED) == "true"
    return NodeClaim(
        name=node.name,
        nodepool=nodepool,
        nodeclass=pool.nodeclass if pool else NodeClassRef(labels.get(NODECLASS, "")),
        created_at=node.created_at,
        phase=Phase.INITIALIZED if ready else Phase.REGISTERED,
        phase_since=node.created_at,
        labels=labels,
        taints=node.taints,
        expire_after=pool.expire_after if pool else None,
        termination_grace_period=pool.termination_grace_period if pool else None,
        provider_id=node.provider_id,
        instance_type=labels.get(INSTANCE_TYPE, ""),
        zone=labels.get(ZONE, ""),
        capacity_type=labels.get(CAPACITY_TYPE, ""),
        node_name=node.name,
        capacity=node.capacity,
        allocatable=node.allocatable,
        initialized_at=node.created_at if ready else None,
    )


def lasting_claim(node: Node, nodepool: str, pools: Mapping[str, NodePool]) -> NodeClaim:
    """Return the NodeClaim that a node stands for. It does not expire, because its replacement costs no less then."""
    return replace(claim_of(node, nodepool, pools.get(nodepool)), expire_after=None)


def others(nodeclass: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the NodePool `OTHERS`, whose nodes may be moved, and its EC2NodeClass, which launches nothing."""
    unready = {
        "type": "ValidationSucceeded",
        "status": "False",
        "reason": "Others",
        "message": "it buys nothing",
    }
    reference = {"group": AWS_DOMAIN, "kind": "EC2NodeClass", "name": OTHERS}
    nodepool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": OTHERS},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "requirements": [], "expireAfter": "Never"}},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
        },
    }
    return nodepool, {**nodeclass, "status": {"conditions": [unready]}}


def assumed_nodeclass(name: str) -> dict[str, Any]:
    """Return the EC2NodeClass that is assumed if there is none."""
    selector = [{"tags": {"karpenter.sh/discovery": ASSUMED}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "role": ASSUMED,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector,
        },
    }


def any_image(_: EC2NodeClass) -> Sequence[Image]:
    """Return an image that is assumed to boot on every instance type."""
    return (Image("ami-assumed"),)


def statuses(
    manifests: Iterable[Manifest],
    zones: Sequence[str],
    images_of: Callable[[EC2NodeClass], Iterable[Image]] = any_image,
) -> dict[str, NodeClassStatus]:
    """Return the resolved status of each readable EC2NodeClass, by name.

    What its manifest does not show is assumed: a subnet in each of `zones`, and `images_of`.
    """
    by_name: dict[str, NodeClassStatus] = {}
    for manifest in manifests:
        nodeclass = parse_nodeclass(manifest).value
        if nodeclass is not None:
            by_name[nodeclass.name] = _status(nodeclass, manifest.get("status") or {}, zones, images_of)
    return by_name


def _status(
    nodeclass: EC2NodeClass,
    status: Manifest,
    zones: Sequence[str],
    images_of: Callable[[EC2NodeClass], Iterable[Image]],
) -> NodeClassStatus:
    subnets = tuple(
        Subnet(str(s["id"]), str(s["zone"]), str(s.get("zoneID") or "")) for s in status.get("subnets") or ()
    )
    images = tuple(
        Image(str(a["id"]), str(a.get("name") or ""), read_requirements(a.get("requirements") or ()))
        for a in status.get("amis") or ()
    )
    failing = tuple(
        StatusCondition(str(c["type"]), "False", str(c.get("reason") or ""), str(c.get("message") or ""))
        for c in status.get("conditions") or ()
        if c.get("status") == "False" and c.get("type") not in {"Ready", LAUNCHES}
    )
    return NodeClassStatus(
        name=nodeclass.name,
        generation=nodeclass.generation,
        hash=nodeclass.hash,
        resolved_at=_LATEST,
        subnets=subnets or tuple(Subnet(f"subnet-{zone}", zone) for zone in zones),
        security_groups=(SecurityGroup("sg-assumed"),),
        images=images or tuple(images_of(nodeclass)),
        instance_profile=ASSUMED,
        conditions=failing or (_READY,),
        capacity_reservations=tuple(map(_reservation, status.get("capacityReservations") or ())),
        content=nodeclass.content,
        placement_group=_assumed_group(nodeclass),
    )


def _assumed_group(nodeclass: EC2NodeClass) -> PlacementGroup | None:
    """Return the selected placement group, of which only the name or the id is known: it is assumed to have room."""
    selector = nodeclass.placement_group_selector
    if selector is None:
        return None
    return PlacementGroup(selector.id or "pg-assumed", selector.name, strategy="")


def _reservation(manifest: Manifest) -> CapacityReservation:
    """Parse a capacity reservation. Assumes one free instance if the number is unknown."""
    return CapacityReservation(
        id=str(manifest["id"]),
        instance_type=str(manifest["instanceType"]),
        zone=str(manifest["availabilityZone"]),
        available=int(manifest.get(AVAILABLE, 1)),
        kind=str(manifest.get("reservationType") or "default"),
        match_criteria=str(manifest.get("instanceMatchCriteria") or "targeted"),
        owner_id=str(manifest.get("ownerID") or ""),
        interruptible=bool(manifest.get("interruptible")),
        expiring=manifest.get("state") == "expiring",
    )


def types_of(inputs: Inputs) -> Mapping[tuple[str, str], InstanceType]:
    """Return the resolved instance types by EC2NodeClass and name."""
    return {
        (name, kind.name): kind
        for name, nodeclass in parsed_nodeclasses(inputs.snapshot).items()
        for kind in instance_types(inputs.catalog, NodeConfiguration.of(nodeclass), inputs.settings)
    }


def launched(
    planned: PlannedNode, types: Mapping[tuple[str, str], InstanceType], now: datetime
) -> tuple[Node, str]:
    """Return the node that a planned node becomes at its cheapest offering, and its NodePool."""
    claim, cheapest = planned.claim, planned.request.cheapest
    kind = types[claim.nodeclass.name, cheapest.instance_type]
    labels = {
        **kind.labels,
        **claim.requirements.settled,
        **claim.labels,
        INSTANCE_TYPE: cheapest.instance_type,
        ZONE: cheapest.zone,
        CAPACITY_TYPE: planned.request.capacity_type,
        INITIALIZED: "true",
        HOSTNAME: claim.name,
    }
    node = Node(
        claim.name,
        now,
        provider_id=f"savings:///{claim.name}",
        labels=FrozenMap(labels),
        taints=claim.taints,
        capacity=kind.capacity,
        allocatable=kind.allocatable,
        conditions={"Ready": Condition("True")},
        last_pod_event_at=now,
    )
    return node, claim.nodepool
