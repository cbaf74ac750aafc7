"""The tags of everything a launch creates: what IAM policies, bills and people know it by.

Keys: Karpenter's, so that its IAM conditions and cost reports keep working.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.labels import NODEPOOL
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses import EC2NodeClass

CLUSTER_TAG = "eks:eks-cluster-name"
NODECLAIM_TAG = "karpenter.sh/nodeclaim"
NAME_TAG = "Name"


def owned_tag(cluster: str) -> str:
    """Give the key by which Kubernetes marks what belongs to a cluster (its value is `owned`)."""
    return f"kubernetes.io/cluster/{cluster}"


def shared_tags(claim: NodeClaim, nodeclass: EC2NodeClass, cluster: str) -> dict[str, str]:
    """Give the tags that all instances of one NodePool and NodeClass share."""
    return {
        **nodeclass.tags,
        owned_tag(cluster): "owned",
        CLUSTER_TAG: cluster,
        NODEPOOL: claim.nodepool,
        claim.nodeclass.label: claim.nodeclass.name,
    }


def instance_tags(claim: NodeClaim, nodeclass: EC2NodeClass, cluster: str) -> dict[str, str]:
    """Give the tags of one instance, its volumes and its fleet. A Name that the NodeClass sets is kept."""
    return {NAME_TAG: claim.name, **shared_tags(claim, nodeclass, cluster), NODECLAIM_TAG: claim.name}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write tags as EC2 takes them, by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
