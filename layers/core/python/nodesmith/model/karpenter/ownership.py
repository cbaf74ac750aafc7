"""What belongs to nodesmith: the objects of a cluster that it serves, and the tags of its AWS resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import AWS_DOMAIN, NODECLASS, NODEPOOL
from nodesmith.model.hashes import NODECLASS_HASH, NODEPOOL_HASH, OWN_VERSIONS
from nodesmith.model.karpenter.nodeclaimobjects import DECISION, ORIGIN
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import PROVISIONER_UID
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass

Manifest = Mapping[str, Any]
# EKS Auto Mode, Karpenter and nodesmith share the kinds of `karpenter.sh`. The API group of the NodeClass
# determines which software serves a NodePool or NodeClaim; nodesmith serves only `karpenter.k8s.aws`.
AUTO_MODE_GROUP = "eks.amazonaws.com"
_OWNERS = frozenset({"NodePool", "Provisioner"})
KARPENTERS_LEASE = "karpenter-leader-election"
"""Karpenter's default name. Its chart disables leader election for a single replica."""
KARPENTERS_MANAGER = "karpenter"
"""The manager of the fields that Karpenter writes, in `metadata.managedFields`."""


def owner_uid(manifest: Mapping[str, Any]) -> str:
    """Return the uid of the owner of a NodePool's NodeClaims, whether or not the NodePool can be read.

    Empty if there is no owner.
    """
    metadata = manifest.get("metadata") or {}
    return str(metadata.get("uid") or (metadata.get("annotations") or {}).get(PROVISIONER_UID) or "")


@dataclass(frozen=True, slots=True)
class KarpenterSign:
    """The last sign that a Karpenter controller runs in the cluster. `what` is it, as the end of a sentence."""

    at: datetime
    what: str


def nodeclass_group(manifest: Manifest) -> str:
    """Return the API group of the NodeClass that a NodePool or NodeClaim names.

    In v1beta1 the group was optional and could be given as an `apiVersion`; v1alpha5 has no such reference. If no group
    is given, or it cannot be read, the group is `karpenter.k8s.aws`: the parser of the manifest reports the mistake.
    """
    ref = _nodeclass_ref(manifest)
    group, api_version = ref.get("group"), ref.get("apiVersion")
    if isinstance(group, str) and group:
        return group
    if isinstance(api_version, str) and "/" in api_version:
        return api_version.partition("/")[0]
    return AWS_DOMAIN


def nodeclass_name(manifest: Manifest) -> str:
    """Return the name of the NodeClass that a NodePool or NodeClaim refers to, empty if it refers to none."""
    return str(_nodeclass_ref(manifest).get("name") or "")


def is_foreign(manifest: Manifest) -> bool:
    """Return whether other software serves a NodePool or NodeClaim."""
    return nodeclass_group(manifest) != AWS_DOMAIN


def is_foreign_node(labels: Mapping[str, str]) -> bool:
    """Return whether a Node with these labels comes from a NodePool that other software serves."""
    return NODEPOOL in labels and NODECLASS not in labels


def server_of(group: str) -> str:
    """Return a display name for the software that serves NodeClasses of this group."""
    return "EKS Auto Mode" if group == AUTO_MODE_GROUP else f"the controller of {group}"


def is_marked(nodeclaim: Manifest) -> bool:
    """Return whether nodesmith has taken on a NodeClaim: it annotates each with DECISION, or a user's with ORIGIN.

    Earlier releases wrote a hash version of their own instead of ORIGIN.
    """
    annotations, versions = _annotations(nodeclaim), _hash_versions(nodeclaim)
    is_of_old = any(version.startswith(OWN_VERSIONS) for version in versions)
    return DECISION in annotations or ORIGIN in annotations or is_of_old


def is_karpenters(nodeclaim: Manifest) -> bool:
    """Return whether Karpenter's own controller has created or launched a NodeClaim of `karpenter.k8s.aws`.

    Karpenter sets a NodePool as the owner, and annotates the object with the version of its hashes. A NodeClaim that a
    user created has neither, and has no instance before nodesmith marks it.
    """
    if is_marked(nodeclaim):
        return False
    owners = _mapping(nodeclaim.get("metadata")).get("ownerReferences") or ()
    is_owned = any(_mapping(owner).get("kind") in _OWNERS for owner in owners)
    return is_owned or bool(_hash_versions(nodeclaim)) or bool(provider_id(nodeclaim))


def _hash_versions(nodeclaim: Manifest) -> list[str]:
    annotations = _annotations(nodeclaim)
    keys = (f"{key}-version" for key in (NODEPOOL_HASH, NODECLASS_HASH))
    return [str(annotations[key]) for key in keys if annotations.get(key)]


def _annotations(manifest: Manifest) -> Manifest:
    return _mapping(_mapping(manifest.get("metadata")).get("annotations"))


def is_unclaimed(nodeclaim: Manifest) -> bool:
    """Return whether a NodeClaim is a user's request for a node that has not been launched yet.

    A NodeClaim that nodesmith or Karpenter's own controller created is not a user's request.
    """
    metadata = _mapping(nodeclaim.get("metadata"))
    is_ours = DECISION in _mapping(metadata.get("annotations"))
    launched = metadata.get("deletionTimestamp") or provider_id(nodeclaim)
    return not (is_ours or launched or is_karpenters(nodeclaim))


def provider_id(nodeclaim: Manifest) -> str:
    """Return the provider id in a NodeClaim's status, empty if it has none."""
    return str(_mapping(nodeclaim.get("status")).get("providerID") or "")


def _nodeclass_ref(manifest: Manifest) -> Manifest:
    spec = _mapping(manifest.get("spec"))
    template = _mapping(_mapping(spec.get("template")).get("spec"))
    return _mapping(spec.get("nodeClassRef") or template.get("nodeClassRef"))


def _mapping(value: object) -> Mapping[str, Any]:
    # The first check is much faster than that of an abstract class, and thousands of objects are nearly all dicts.
    return value if isinstance(value, (dict, Mapping)) else {}


# Most keys are Karpenter's, so that its IAM conditions and cost reports keep working. nodesmith adds a key of its
# own because Karpenter's tags name the cluster but not the software: garbage collection must never mistake what
# Karpenter created for something that nodesmith left behind.
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
    keeps_volumes = any(ebs is not None and ebs.delete_on_termination is False for ebs in mappings)
    keep = {KEEP_VOLUMES_TAG: "true"} if keeps_volumes else {}
    return {NAME_TAG: claim.name, **shared_tags(claim, nodeclass, cluster), NODECLAIM_TAG: claim.name, **keep}


def claim_tags(claim: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the claim's tags that no other claim shares."""
    return {key: tags[key] for key in (NAME_TAG, NODECLAIM_TAG) if tags.get(key) == claim}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write tags in the format of EC2's API, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
