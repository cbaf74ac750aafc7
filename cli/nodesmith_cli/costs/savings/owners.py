"""The software that manages a node, by the labels that it puts on its nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nodesmith.model.apimachinery.labels import NODECLASS, NODEPOOL, PROVISIONER_NAME

COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
NODE_GROUP = "eks.amazonaws.com/nodegroup"
_AUTO_MODE_CLASS = "eks.amazonaws.com/nodeclass"
_SELF_MANAGED = ("alpha.eksctl.io/nodegroup-name", "kops.k8s.io/instancegroup")
_OCEAN = ("spotinst.io/node-lifecycle", "spotinst.io/ocean-vng-id", "spotinst.io/oceanid")
_CAST = ("provisioner.cast.ai/managed-by", "provisioner.cast.ai/node-id")
_NOT_EC2 = {"fargate": "AWS Fargate", "hybrid": "EKS Hybrid Nodes"}

NODESMITH, KARPENTER, AUTO_MODE = "nodesmith", "Karpenter", "EKS Auto Mode"


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The software that manages a node, and the NodePool or group there.

    `is_ours` is True if nodesmith can take the node over as it is: it belongs to a NodePool of `karpenter.k8s.aws`.
    `is_ec2` is False for capacity that is not an EC2 instance of this account.
    """

    software: str
    group: str = ""
    is_ours: bool = False
    is_ec2: bool = True


def owner_of(labels: Mapping[str, str], *, marked: bool, has_cluster_autoscaler: bool = False) -> Owner:
    """Return the manager of a node with these labels. `marked` is True if nodesmith has taken on its NodeClaim."""
    kind = labels.get(COMPUTE_TYPE, "")
    if kind in _NOT_EC2:
        return Owner(_NOT_EC2[kind], is_ec2=False)
    if kind == "auto" or _AUTO_MODE_CLASS in labels:
        return Owner(AUTO_MODE, labels.get(NODEPOOL, ""))
    if NODEPOOL in labels and NODECLASS in labels:
        return Owner(NODESMITH if marked else KARPENTER, labels[NODEPOOL], is_ours=True)
    if PROVISIONER_NAME in labels or NODEPOOL in labels:
        return Owner(KARPENTER, labels.get(NODEPOOL) or labels.get(PROVISIONER_NAME, ""))
    for software, keys in (("Spot Ocean", _OCEAN), ("CAST AI", _CAST)):
        if _has(labels, keys):
            return Owner(software)
    scaled = "Cluster Autoscaler" if has_cluster_autoscaler else ""
    if NODE_GROUP in labels:
        return Owner(_scaled("EKS managed node group", scaled), labels[NODE_GROUP])
    for key in _SELF_MANAGED:
        if key in labels:
            return Owner(_scaled("self-managed node group", scaled), labels[key])
    return Owner("no known autoscaler")


def _scaled(software: str, scaler: str) -> str:
    return f"{software} ({scaler})" if scaler else software


def _has(labels: Mapping[str, str], keys: Collection[str]) -> bool:
    return any(key in labels for key in keys)
