"""The tags of everything that a launch creates, by which IAM policies, bills and people identify it.

Most keys are Karpenter's, so that its IAM conditions and cost reports keep working. nodesmith adds a key of its own
because Karpenter's tags name the cluster but not the software: garbage collection must never mistake what Karpenter
created for something that nodesmith left behind.
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
"""On instances of a CreateFleet call for several claims. The value is the name of that fleet."""
MANAGED_BY_TAG = "nodesmith.dev/managed-by"
"""The value is the cluster's name. A resource without this tag was created by other software."""
KEEP_VOLUMES_TAG = "nodesmith.dev/keep-volumes"
"""On instances of an EC2NodeClass with `deleteOnTermination: false`, whose volumes must outlive their nodes."""


def owned_tag(cluster: str) -> str:
    """Return the tag key by which Kubernetes marks the resources of a cluster. Its value is `owned`."""
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
    """Return the tags of one instance, its volumes and its fleet. A Name tag that the NodeClass sets wins."""
    mappings = (mapping.ebs for mapping in nodeclass.block_devices)
    kept = any(ebs is not None and ebs.delete_on_termination is False for ebs in mappings)
    keep = {KEEP_VOLUMES_TAG: "true"} if kept else {}
    return {NAME_TAG: claim.name, **shared_tags(claim, nodeclass, cluster), NODECLAIM_TAG: claim.name, **keep}


def claim_tags(claim: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the claim's tags that no other claim shares."""
    return {key: tags[key] for key in (NAME_TAG, NODECLAIM_TAG) if tags.get(key) == claim}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write tags in the format of EC2's API, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
