"""NodeClaim as an API object, karpenter.sh/v1: written for nodesmith's claims, read for those that users create."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import Parsed
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.apimachinery.resources import format_resources, parse_resources
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.ec2.attachablevolumes import of_a_node
from nodesmith.model.hashes import NODECLASS_HASH, NODEPOOL_HASH, marked_content_hash, stated_hash
from nodesmith.model.karpenter.nodeclaimconditions import condition_item, conditions_of
from nodesmith.model.karpenter.nodeclaims import (
    TAGS_DUE,
    NodeClaim,
    NodeClassRef,
    Phase,
    read_requirements,
    read_taints,
    write_requirements,
    write_taints,
)
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.oldkinds import PROVISIONER
from nodesmith.model.schema.reading import read_manifest

DECISION = "nodesmith.dev/decision"
"""On every NodeClaim that nodesmith created, and on no user's: the id of the decision that requested it."""
ORIGIN = "nodesmith.dev/origin"
"""On NodeClaims that users created, once nodesmith has added them to its ledger. The value is `ByHand`."""
CREATED_FOR = "nodesmith.dev/created-for"
"""On NodeClaims that replace others: the reason of the disruption, as in Karpenter's metrics."""
PROVISIONED = "provisioned"
"""The reason that NodeClaims without CREATED_FOR were created for."""


def marks_of(claim: NodeClaim) -> dict[str, str]:
    """Return the labels by which the objects of a claim are found.

    They are restored if they are removed.
    """
    named = {labels.NODEPOOL: claim.nodepool, claim.nodeclass.label: claim.nodeclass.name}
    return {key: value for key, value in named.items() if value}


def labels_of(claim: NodeClaim) -> dict[str, str]:
    """Return the labels of the NodeClaim object, which its Node gets as well.

    They are the template's labels, those for which the requirements leave one value, and those of the instance.
    """
    settled = claim.requirements.settled.items()
    single = {key: value for key, value in settled if labels.restriction(key) is None}
    bought = {
        labels.INSTANCE_TYPE: claim.instance_type,
        labels.ZONE: claim.zone,
        labels.CAPACITY_TYPE: claim.capacity_type,
    }
    known = {key: value for key, value in bought.items() if value}
    return {**single, **claim.labels, **marks_of(claim), **known}


def annotations_of(claim: NodeClaim) -> dict[str, str]:
    """Return the annotations of the NodeClaim object: the template's, the hashes for drift, and its origin."""
    made = {DECISION: claim.decision, ORIGIN: claim.origin}
    if claim.nodepool_hash:
        made |= stated_hash(NODEPOOL_HASH, claim.nodepool_hash, claim.nodepool_hash_version)
    if claim.nodeclass_hash:
        made |= stated_hash(NODECLASS_HASH, claim.nodeclass_hash, claim.nodeclass_hash_version)
    if claim.registered_at is not None and TAGS_DUE not in claim.launch:
        made |= {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
    if claim.is_ending and claim.deadline is not None:
        made[labels.TERMINATION_TIMESTAMP] = format_time(claim.deadline)
    return {**claim.annotations, **{key: value for key, value in made.items() if value}}


def manifest(claim: NodeClaim) -> dict[str, Any]:
    """Write the complete object, status included, as the API server should show it."""
    return {
        "apiVersion": NODE_CLAIM.api_version,
        "kind": NODE_CLAIM.name,
        "metadata": _metadata(claim),
        "spec": _spec(claim),
        "status": _status(claim),
    }


def _metadata(claim: NodeClaim) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": claim.name,
        "labels": dict(sorted(labels_of(claim).items())),
        "annotations": dict(sorted(annotations_of(claim).items())),
        "finalizers": [labels.TERMINATION_FINALIZER],
    }
    if claim.nodepool and not claim.is_by_hand:
        metadata["generateName"] = f"{claim.nodepool}-"
    if claim.nodepool_uid:
        metadata["ownerReferences"] = [
            {
                "apiVersion": PROVISIONER.api_version if claim.provisioner else NODE_CLAIM.api_version,
                "kind": PROVISIONER.name if claim.provisioner else "NodePool",
                "name": claim.provisioner or claim.nodepool,
                "uid": claim.nodepool_uid,
                "blockOwnerDeletion": True,
            }
        ]
    return metadata


def _spec(claim: NodeClaim) -> dict[str, Any]:
    ref = claim.nodeclass
    spec: dict[str, Any] = {
        "requirements": write_requirements(_stated(claim.requirements)),
        "nodeClassRef": {"group": ref.group, "kind": ref.kind, "name": ref.name},
        "taints": write_taints(claim.taints),
        "startupTaints": write_taints(claim.startup_taints),
        "resources": {"requests": format_resources(claim.requests)},
        "expireAfter": claim.expire_after,
        "terminationGracePeriod": claim.termination_grace_period,
    }
    return {field: value for field, value in spec.items() if value or field == "requirements"}


def _stated(requirements: Requirements) -> Requirements:
    """Return the requirements that the object may contain.

    PROVISIONER_NAME is left out: it is a label of the node, but the API server refuses it as a key. `minValues` of an
    `In` is at most the number of its values, as the API server requires.
    """
    return Requirements(
        {key: _listed(one) for key, one in requirements.items() if key != labels.PROVISIONER_NAME}
    )


def _listed(one: Requirement) -> Requirement:
    most = None if one.complement else len(one.values)
    if one.min_values is None or most is None or one.min_values <= most:
        return one
    return replace(one, min_values=most or None)


def _status(claim: NodeClaim) -> dict[str, Any]:
    status: dict[str, Any] = {
        "nodeName": claim.node_name,
        "providerID": claim.provider_id,
        "imageID": claim.image_id,
        "capacity": format_resources(of_a_node(claim.capacity)),
        "allocatable": format_resources(of_a_node(claim.allocatable)),
        "conditions": [condition_item(condition) for condition in conditions_of(claim)],
    }
    return {field: value for field, value in status.items() if value}


def shown_pod_event(manifest: Mapping[str, Any]) -> datetime | None:
    """Return the NodeClaim's `lastPodEventTime`, None if it is absent or cannot be read."""
    text = (manifest.get("status") or {}).get("lastPodEventTime")
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None


def nodeclaim_content(manifest: Mapping[str, object]) -> str:
    """Return the content hash of a NodeClaim that a user created, empty if it cannot be read."""
    read = read_manifest(NODE_CLAIM, manifest)
    return "" if read.report.fatal else marked_content_hash(read)


def parse_nodeclaim(manifest: Mapping[str, object], now: datetime) -> Parsed[NodeClaim]:
    """Read a NodeClaim that a user created, as a claim that is not yet launched. Never raises.

    `now` is the creation time if the object has no creationTimestamp yet.
    """
    read = read_manifest(NODE_CLAIM, manifest)
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    metadata, spec = read.metadata, read.spec
    stamp = metadata.get("creationTimestamp")
    created_at = parse_time(stamp) if stamp else now
    claim = NodeClaim(
        name=metadata["name"],
        nodepool=metadata.get("labels", {}).get(labels.NODEPOOL, ""),
        nodeclass=NodeClassRef(**spec["nodeClassRef"]),
        created_at=created_at,
        phase=Phase.PENDING,
        phase_since=created_at,
        requirements=read_requirements(spec["requirements"]),
        labels=FrozenMap(metadata.get("labels")),
        annotations=FrozenMap(metadata.get("annotations")),
        taints=read_taints(spec.get("taints", ())),
        startup_taints=read_taints(spec.get("startupTaints", ())),
        requests=parse_resources(spec.get("resources", {}).get("requests")),
        expire_after=spec["expireAfter"],
        termination_grace_period=spec.get("terminationGracePeriod"),
    )
    return Parsed(claim, read.report.problems)
