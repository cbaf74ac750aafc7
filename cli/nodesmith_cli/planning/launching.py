"""EC2NodeClasses that can be read and yet not be launched from: what a cluster would say of them in their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nodesmith.decisions.launch.validation import launch_obstacle
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, StatusCondition
from nodesmith_cli.local.manifests import Document, Fault
from nodesmith_cli.planning.nodeclasses import KUBERNETES

_CLUSTER = ClusterInfo("cluster", "https://cluster.invalid", "", "10.100.0.0/16", KUBERNETES)
"""Any: what stands in the way is in the EC2NodeClass."""


def judged(status: NodeClassStatus, manifest: Mapping[str, Any]) -> NodeClassStatus:
    """Return the status that says so too where no node can be launched from an EC2NodeClass."""
    nodeclass = parse_nodeclass(manifest).value
    obstacle = launch_obstacle(nodeclass, _CLUSTER) if nodeclass else None
    if obstacle is None:
        return status
    failed = StatusCondition("ValidationSucceeded", "False", obstacle.reason, obstacle.message)
    return replace(status, conditions=(failed,))


def unlaunchable(document: Document) -> Fault | None:
    """Return why no node can be launched from an EC2NodeClass; None where one can, or where it cannot be read."""
    nodeclass = parse_nodeclass(document.manifest).value
    obstacle = launch_obstacle(nodeclass, _CLUSTER) if nodeclass else None
    if obstacle is None:
        return None
    message = obstacle.message.removeprefix(f"{obstacle.field}: ").removeprefix(f"{obstacle.field} ")
    return document.fault(f"no node can be launched from it: {message}", obstacle.field)
