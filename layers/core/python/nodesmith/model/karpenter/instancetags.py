"""The tags of everything a launch creates: what IAM policies, bills and people know it by.

Keys: Karpenter's, so that its IAM conditions and cost reports keep working, and one of our own: Karpenter's say whose
cluster it is, and nothing of who made it. What Karpenter made before us must never be taken for a leftover of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass

CLUSTER_TAG = "eks:eks-cluster-name"
NODECLAIM_TAG = "karpenter.sh/nodeclaim"
NAME_TAG = "Name"
FLEET_TAG = "nodesmith.dev/fleet"
"""On instances of a CreateFleet call that serves several claims: the name of that fleet."""
MANAGED_BY_TAG = "nodesmith.dev/managed-by"
"""Its value is the cluster's name. Whatever lacks it was made by others."""
KEEP_VOLUMES_TAG = "nodesmith.dev/keep-volumes"
"""On what an EC2NodeClass launches that says `deleteOnTermination: false`: its volumes are to outlive their nodes."""


def owned_tag(cluster: str) -> str:
    """Return the key by which Kubernetes marks what belongs to a cluster (its value is `owned`)."""
    return f"kubernetes.io/cluster/{cluster}"


def shared_tags(claim: NodeClaim, nodeclass: EC2NodeClass, cluster: str) -> dict[str, str]:
    """Return the tags that all instances of one NodePool and NodeClass share."""
    return {
        **nodeclass.tags,
        owned_tag(cluster): "owned",
        CLUSTER_TAG: cluster,
        MANAGED_BY_TAG: cluster,
        NODEPOOL: claim.nodepool,
        claim.nodeclass.label: claim.nodeclass.name,
    }


def instance_tags(claim: NodeClaim, nodeclass: EC2NodeClass, cluster: str) -> dict[str, str]:
    """Return the tags of one instance, its volumes and its fleet. A Name that the NodeClass sets is kept."""
    mappings = (mapping.ebs for mapping in nodeclass.block_devices)
    kept = any(ebs is not None and ebs.delete_on_termination is False for ebs in mappings)
    keep = {KEEP_VOLUMES_TAG: "true"} if kept else {}
    return {NAME_TAG: claim.name, **shared_tags(claim, nodeclass, cluster), NODECLAIM_TAG: claim.name, **keep}


def claim_tags(claim: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return those of a claim's tags that no other claim shares."""
    return {key: tags[key] for key in (NAME_TAG, NODECLAIM_TAG) if tags.get(key) == claim}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write tags as EC2 takes them, by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
