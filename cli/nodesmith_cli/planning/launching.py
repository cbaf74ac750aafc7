"""EC2NodeClasses that are readable but cannot launch nodes, as a cluster would report in their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from yaml import ScalarNode

from nodesmith.decisions.launch.validation import launch_obstacle
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, StatusCondition
from nodesmith_cli.planning.nodeclasses import KUBERNETES
from nodesmith_formats.manifests.documents import node_at
from nodesmith_formats.manifests.manifests import Document, Fault

_CLUSTER = ClusterInfo("cluster", "https://cluster.invalid", "", "10.100.0.0/16", KUBERNETES)
"""An arbitrary cluster, since the obstacles depend on the EC2NodeClass only."""


def judged(status: NodeClassStatus, manifest: Mapping[str, Any]) -> NodeClassStatus:
    """Return the status, with a failed validation if the EC2NodeClass cannot launch nodes."""
    nodeclass = parse_nodeclass(manifest).value
    obstacle = launch_obstacle(nodeclass, _CLUSTER) if nodeclass else None
    if obstacle is None:
        return status
    failed = StatusCondition("ValidationSucceeded", "False", obstacle.reason, obstacle.message)
    return replace(status, conditions=(failed,))


def unlaunchable(document: Document) -> Fault | None:
    """Return the reason why an EC2NodeClass cannot launch nodes, or None if it can or is unreadable."""
    nodeclass = parse_nodeclass(document.manifest).value
    obstacle = launch_obstacle(nodeclass, _CLUSTER) if nodeclass else None
    if obstacle is None:
        return None
    message = obstacle.message.removeprefix(f"{obstacle.field}: ").removeprefix(f"{obstacle.field} ")
    fault = document.fault(f"cannot launch nodes: {message}", obstacle.field)
    node = node_at(document.node, obstacle.field) if document.was is None else None
    is_block = isinstance(node, ScalarNode) and node.style == "|"
    return replace(fault, line=fault.line + obstacle.line) if is_block else fault
