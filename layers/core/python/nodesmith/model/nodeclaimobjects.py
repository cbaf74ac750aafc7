"""NodeClaim as an object of the API server, karpenter.sh/v1: written for ours, read for those that users make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from nodesmith.model import labels
from nodesmith.model.attachments import of_a_node
from nodesmith.model.contents import marked_content_hash
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.manifests import read_manifest
from nodesmith.model.messages import AWAITING
from nodesmith.model.nodeclaims import (
    DEADLINE_PASSED,
    DELETED,
    DRAINING,
    NOT_REGISTERED,
    REACHED_AT,
    TAGS_DUE,
    NodeClaim,
    Phase,
)
from nodesmith.model.nodespec import (
    NodeClassRef,
    read_requirements,
    read_taints,
    write_requirements,
    write_taints,
)
from nodesmith.model.problems import Parsed
from nodesmith.model.requirements import Requirement, Requirements
from nodesmith.model.resources import format_resources, parse_resources
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.oldkinds import PROVISIONER
from nodesmith.model.times import format_time, parse_time

NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODECLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
DECISION = "nodesmith.dev/decision"
"""On every NodeClaim that we have made, and on no user's: the id of the decision that asked for it."""
LIFE: Mapping[str, Phase] = {
    "Launched": Phase.LAUNCHED,
    "Registered": Phase.REGISTERED,
    "Initialized": Phase.INITIALIZED,
}
END: Mapping[str, Phase] = {
    "Drained": Phase.DRAINED,
    "VolumesDetached": Phase.DETACHED,
    "InstanceTerminating": Phase.TERMINATED,
}
"""Conditions of the object on the way to a Node, and on the way out: in order, the phase that is reached with each."""
CREATED_FOR = "nodesmith.dev/created-for"
"""On NodeClaims that replace others: the reason of the disruption, as Karpenter's metrics write it."""
PROVISIONED = "provisioned"
"""What NodeClaims without it were made for."""
CONSISTENT = "ConsistentStateFound"
DISRUPTION_REASON = "DisruptionReason"
"""The condition whose reason is what a NodeClaim is disrupted for, from when a move takes it or its end begins.

An end that somebody has asked for is no disruption.
"""
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
SHOWN_WHILE_TRUE = frozenset({CONSOLIDATABLE, DISRUPTION_REASON, DRIFTED})
"""Conditions of NodeClaims that are taken off when they hold no longer, as Karpenter's are."""
_REFUTING = frozenset({"MultipleNodesFound"})
"""Reasons that say no; all others say not yet."""


class ObjectCondition(NamedTuple):
    """A condition of the NodeClaim object: `status` is True, False or Unknown; `since` is None for from now on."""

    type: str
    status: str
    since: datetime | None
    reason: str
    message: str

    @property
    def is_over(self) -> bool:
        """Whether the object is to show no such condition any more."""
        return self.type in SHOWN_WHILE_TRUE and self.status == "False"


def marks_of(claim: NodeClaim) -> dict[str, str]:
    """Give the labels by which the objects of a claim are found; they are put back where somebody has removed them."""
    named = {labels.NODEPOOL: claim.nodepool, claim.nodeclass.label: claim.nodeclass.name}
    return {key: value for key, value in named.items() if value}


def labels_of(claim: NodeClaim) -> dict[str, str]:
    """Give the labels of the NodeClaim object, which its Node gets as well.

    The template's, whatever the requirements leave one value for, and what is known of the instance.
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
    """Give the annotations of the NodeClaim object: the template's, the hashes that drift is told by, its decision."""
    hashes = {NODEPOOL_HASH: claim.nodepool_hash, NODECLASS_HASH: claim.nodeclass_hash}
    known = {key: value for key, value in hashes.items() if value}
    made = {DECISION: claim.decision} if claim.decision else {}
    if claim.registered_at is not None and TAGS_DUE not in claim.launch:
        made |= {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
    if claim.is_ending and claim.deadline is not None:
        made[labels.TERMINATION_TIMESTAMP] = format_time(claim.deadline)
    return {**claim.annotations, **known, **{f"{key}-version": claim.hash_version for key in known}, **made}


def manifest(claim: NodeClaim) -> dict[str, Any]:
    """Write the object, status included, as the API server is to show it."""
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
    """Leave out the old name of the NodePool: a label of the node, and a key that no NodeClaim may state.

    An In has no more minValues than values: the API server demands it.
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


def conditions_of(claim: NodeClaim) -> Iterator[ObjectCondition]:
    """Say of each stage whether it is reached; the first that is not carries the claim's reason."""
    stages = list(_stages(claim))
    yield from stages
    yield _ready(claim, [each for each in stages if each.status != "True"])
    if claim.initialized_at is not None:
        yield _consistent(claim, claim.initialized_at)
    if claim.drifted_at is not None:  # False where it has ended: see SHOWN_WHILE_TRUE
        yield ObjectCondition(DRIFTED, str(bool(claim.drift)), claim.drifted_at, claim.drift, "")
    if claim.terminating_at is not None:
        yield from _end(claim, claim.terminating_at)


def _stages(claim: NodeClaim) -> Iterator[ObjectCondition]:
    is_next, later = True, AWAITING if claim.launched_at is None else NOT_REGISTERED
    for stage, phase in LIFE.items():
        at = getattr(claim, REACHED_AT[phase])
        if at is not None:
            yield ObjectCondition(stage, "True", at, stage, "")
        elif is_next and (claim.phase is Phase.GIVEN_UP or claim.reason in _REFUTING):
            yield ObjectCondition(
                stage, "False", _refuted_at(claim), claim.reason or AWAITING[0], claim.message
            )
        else:
            said = (claim.reason, claim.message) if claim.reason else AWAITING
            yield ObjectCondition(stage, "Unknown", claim.created_at, *(said if is_next else later))
        is_next = is_next and at is not None


def _ready(claim: NodeClaim, pending: Sequence[ObjectCondition]) -> ObjectCondition:
    """Sum the stages up, in Karpenter's words."""
    if not pending:
        return ObjectCondition("Ready", "True", claim.initialized_at or claim.phase_since, "Ready", "")
    message = ", ".join(f"{each.type}={each.status}" for each in pending)
    if any(each.status == "False" for each in pending):
        return ObjectCondition("Ready", "False", _refuted_at(claim), "UnhealthyDependents", message)
    return ObjectCondition("Ready", "Unknown", claim.created_at, "ReconcilingDependents", message)


def _refuted_at(claim: NodeClaim) -> datetime | None:
    return claim.phase_since if claim.phase is Phase.GIVEN_UP else None


def _consistent(claim: NodeClaim, since: datetime) -> ObjectCondition:
    if claim.inconsistency:
        return ObjectCondition(CONSISTENT, "False", None, "ConsistencyCheckFailed", claim.inconsistency)
    return ObjectCondition(CONSISTENT, "True", since, CONSISTENT, "")


def _end(claim: NodeClaim, since: datetime) -> Iterator[ObjectCondition]:
    """Say how far its end has come, and what for; the step that it is at carries the claim's reason."""
    if claim.cause not in {"", DELETED}:
        yield ObjectCondition(DISRUPTION_REASON, "True", since, claim.cause, "")
    at_work = True
    for step, phase in END.items():
        reached = getattr(claim, REACHED_AT[phase])
        if reached is not None:
            why, _, left = claim.cause_of(phase).partition(": ")
            is_done = why != DEADLINE_PASSED
            if phase is Phase.TERMINATED and claim.instance_gone_at is not None:
                left = claim.message  # what holds its Node
            yield ObjectCondition(step, str(is_done), reached, step if is_done else why, left)
        else:
            reason, message = (claim.reason, claim.message) if at_work and claim.reason else AWAITING
            reason = DRAINING if reason == claim.cause else reason  # it has only just begun
            yield ObjectCondition(step, "Unknown", since, reason, message)
            at_work = False


def condition_item(condition: ObjectCondition) -> dict[str, Any]:
    """Write a condition as a NodeClaim shows it."""
    since = {} if condition.since is None else {"lastTransitionTime": format_time(condition.since)}
    return {
        "type": condition.type,
        "status": condition.status,
        **since,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": 1,  # a NodeClaim's spec never changes
    }


def shown_status(manifest: Mapping[str, Any], kind: str) -> str:
    """Read the status of a condition that an object shows; empty where it shows none of that kind. Never raises."""
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    found = (each for each in conditions or () if isinstance(each, Mapping) and each.get("type") == kind)
    return next((str(each.get("status")) for each in found), "")


def shown_pod_event(manifest: Mapping[str, Any]) -> datetime | None:
    """Read when a pod last came to a NodeClaim's node or left it, as the object shows it; nonsense is nothing."""
    text = (manifest.get("status") or {}).get("lastPodEventTime")
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None


def nodeclaim_content(manifest: Mapping[str, object]) -> str:
    """Return the content hash of a NodeClaim that a user has made; empty where it cannot be read."""
    read = read_manifest(NODE_CLAIM, manifest)
    return "" if read.report.fatal else marked_content_hash(read)


def parse_nodeclaim(manifest: Mapping[str, object], now: datetime) -> Parsed[NodeClaim]:
    """Read a NodeClaim that a user has made, as a claim that is still to be launched. Never raises.

    `now` stands in where the API server has not stamped the object yet.
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
