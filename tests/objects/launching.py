"""A claim, its offerings and its NodeClass: valid arguments of a launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.launch import launch_plan
from nodesmith.decisions.launch.templates import needs_dedicated_tenancy
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.ec2.launches import Instance, LaunchRequest, LaunchTemplate
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, NodeConfiguration
from nodesmith.model.nodeclasses.status import NodeClassStatus
from tests.fakes.cloud import CLUSTER, ready_status

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
NODECLASS = EC2NodeClass("default", role="node-role")
CLAIM = NodeClaim(
    "default-x7k2p",
    "default",
    NodeClassRef("default"),
    NOW,
    Phase.PENDING,
    NOW,
    labels={"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"},
)


def status(nodeclass: EC2NodeClass = NODECLASS, **changes: Any) -> NodeClassStatus:
    """Return the resolution of a NodeClass."""
    return replace(ready_status(nodeclass, CLUSTER, NOW), **changes)


def options(
    names: Iterable[str],
    nodeclass: EC2NodeClass = NODECLASS,
    capacity_type: str = "spot",
    zones: Iterable[str] = ZONES,
    tenancy: str = "default",
) -> list[tuple[InstanceType, Offering]]:
    """Return the offerings of these types in the embedded catalogue."""
    wanted, places = set(names), set(zones)
    return [
        (kind, offering)
        for kind in instance_types(embedded_catalog("us-east-1"), NodeConfiguration.of(nodeclass, (tenancy,)))
        for offering in kind.offerings
        if kind.name in wanted and offering.capacity_type == capacity_type and offering.zone in places
    ]


def plan(
    *names: str, claim: NodeClaim = CLAIM, nodeclass: EC2NodeClass = NODECLASS, capacity_type: str = "spot"
) -> tuple[LaunchRequest, tuple[LaunchTemplate, ...]]:
    """Plan a launch with these types."""
    tenancy = "dedicated" if needs_dedicated_tenancy(claim) else "default"
    offered = options(names or ("m5.large",), nodeclass, capacity_type, tenancy=tenancy)
    return launch_plan(claim, offered, nodeclass, status(nodeclass), CLUSTER)


def instance_of(node: PlannedNode, image: str = "ami-1") -> Instance:
    """Return the running instance of a planned node, of the first type and zone that its launch names."""
    first = node.request.overrides[0]
    return Instance(
        "i-1",
        node.claim.name,
        first.instance_type,
        first.zone,
        node.request.capacity_type,
        image,
        "running",
        node.claim.created_at,
        first.subnet_id,
    )
