"""Descriptions of NodePools that other software in the cluster serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith.model.karpenter.ownership import nodeclass_group, server_of
from nodesmith_formats.kubernetes.objects import name_of


def owner_message(nodepool: Mapping[str, Any]) -> str:
    """Return which software serves a NodePool, as the end of a sentence about it."""
    group = nodeclass_group(nodepool)
    return f"is served by {server_of(group)} (nodeClassRef.group {group}): nodesmith leaves it alone"


def foreign_nodepool(nodepools: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """Return the foreign NodePool of this name, or None."""
    return next((nodepool for nodepool in nodepools if name_of(nodepool) == name), None)
