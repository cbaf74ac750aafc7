"""NodeClaim as an API object with Karpenter's conditions: written for nodesmith's claims, read for those of users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import MAXYEAR, datetime
from typing import Any, NamedTuple

from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import AWAITING, Parsed, shortened
from nodesmith.model.apimachinery.quantities import format_resources, parse_resources
from nodesmith.model.apimachinery.requirements import (
    Requirement,
    Requirements,
    read_requirements,
    write_requirements,
)
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.ec2.capacity import without_attachable
from nodesmith.model.hashes import NODECLASS_HASH, NODEPOOL_HASH, marked_content_hash, stated_hash
from nodesmith.model.karpenter.nodeclaims import (
    DEADLINE_PASSED,
    NOT_REGISTERED,
    REACHED_AT,
    TAGS_DUE,
    NodeClaim,
    NodeClassRef,
    Phase,
    read_taints,
    write_taints,
)
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.reading import read_manifest
from nodesmith.model.schema.statuses import PROVISIONER

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
    marks = {labels.NODEPOOL: claim.nodepool, claim.nodeclass.label: claim.nodeclass.name}
    return {key: value for key, value in marks.items() if value}


def labels_of(claim: NodeClaim) -> dict[str, str]:
    """Return the labels of the NodeClaim object, which its Node gets as well.

    They are the template's labels, those for which the requirements leave one value, and those of the instance.
    """
    settled = claim.requirements.settled.items()
    single = {key: value for key, value in settled if labels.restriction(key) is None}
    instance_labels = {
        labels.INSTANCE_TYPE: claim.instance_type,
        labels.ZONE: claim.zone,
        labels.CAPACITY_TYPE: claim.capacity_type,
    }
    present = {key: value for key, value in instance_labels.items() if value}
    return {**single, **claim.labels, **marks_of(claim), **present}


def annotations_of(claim: NodeClaim) -> dict[str, str]:
    """Return the annotations of the NodeClaim object: the template's, the hashes for drift, and its origin."""
    own_annotations = {DECISION: claim.decision, ORIGIN: claim.origin}
    if claim.nodepool_hash:
        own_annotations |= stated_hash(NODEPOOL_HASH, claim.nodepool_hash, claim.nodepool_hash_version)
    if claim.nodeclass_hash:
        own_annotations |= stated_hash(NODECLASS_HASH, claim.nodeclass_hash, claim.nodeclass_hash_version)
    if claim.registered_at is not None and TAGS_DUE not in claim.launch:
        own_annotations |= {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
    if claim.is_ending and claim.deadline is not None:
        own_annotations[labels.TERMINATION_TIMESTAMP] = format_time(claim.deadline)
    return {**claim.annotations, **{key: value for key, value in own_annotations.items() if value}}


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
        {
            key: _listed(requirement)
            for key, requirement in requirements.items()
            if key != labels.PROVISIONER_NAME
        }
    )


def _listed(requirement: Requirement) -> Requirement:
    most = None if requirement.complement else len(requirement.values)
    if requirement.min_values is None or most is None or requirement.min_values <= most:
        return requirement
    return replace(requirement, min_values=most or None)


def _status(claim: NodeClaim) -> dict[str, Any]:
    status: dict[str, Any] = {
        "nodeName": claim.node_name,
        "providerID": claim.provider_id,
        "imageID": claim.image_id,
        "capacity": format_resources(without_attachable(claim.capacity)),
        "allocatable": format_resources(without_attachable(claim.allocatable)),
        "conditions": [condition_item(condition) for condition in conditions_of(claim)],
    }
    return {field: value for field, value in status.items() if value}


def shown_pod_event(manifest: Mapping[str, Any]) -> datetime | None:
    """Return the NodeClaim's `lastPodEventTime`, None if it is absent or cannot be read.

    Durations are added to it, so the last year of the calendar cannot be read.
    """
    text = (manifest.get("status") or {}).get("lastPodEventTime")
    try:
        moment = parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.year == MAXYEAR else moment


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


DELETED = "Deleted"
"""The cause of an end that a user requested by deleting the Node, its NodeClaim or its NodePool."""
DRAINING = "Draining"
"""The reason of an end that needs no intervention: pods are leaving, each within its grace period."""
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
"""Conditions of the object in order, on the way to a Node (LIFE) and on the way out (END) → the phase of each."""
CONSISTENT = "ConsistentStateFound"
DISRUPTION_REASON = "DisruptionReason"
"""The condition whose reason is the reason of the NodeClaim's disruption.

It is set when a move takes the NodeClaim or when its end begins. An end that a user requested is no disruption.
"""
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
LAUNCHED = "Launched"
"""The condition that stays True once it is True. From then on, an earlier refusal is out of date."""
SHOWN_WHILE_TRUE = frozenset({CONSOLIDATABLE, DISRUPTION_REASON, DRIFTED})
"""Conditions that are removed from a NodeClaim when they no longer hold, as Karpenter does."""
_REFUTING = frozenset({"MultipleNodesFound"})
"""Reasons for status False. All other reasons mean Unknown."""


class ObjectCondition(NamedTuple):
    """A condition of a NodeClaim object. `status` is True, False or Unknown. `since` is None for a change just now."""

    type: str
    status: str
    since: datetime | None
    reason: str
    message: str

    @property
    def is_over(self) -> bool:
        """Whether the condition must be removed from the object."""
        return self.type in SHOWN_WHILE_TRUE and self.status == "False"


def conditions_of(claim: NodeClaim) -> Iterator[ObjectCondition]:
    """Yield the conditions of a claim. The first stage that it has not reached carries the claim's reason.

    The reason of an ending claim is that of its end, so the stages that it has not reached stay as its object shows
    them.
    """
    stages = list(_stages(claim))
    pending = [condition for condition in stages if condition.status != "True"]
    yield from (condition for condition in stages if not (claim.is_ending and condition in pending))
    if not (claim.is_ending and pending):
        yield _ready(claim, pending)
    if claim.initialized_at is not None:
        yield _consistent(claim, claim.initialized_at)
    if claim.drifted_at is not None:  # False once drift has ended: see SHOWN_WHILE_TRUE
        has_drifted, detail = str(bool(claim.drift)), shortened(claim.drift_detail)
        yield ObjectCondition(DRIFTED, has_drifted, claim.drifted_at, claim.drift, detail)
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
            outcome = (claim.reason, claim.message) if claim.reason else AWAITING
            yield ObjectCondition(stage, "Unknown", claim.created_at, *(outcome if is_next else later))
        is_next = is_next and at is not None


def _ready(claim: NodeClaim, pending: Sequence[ObjectCondition]) -> ObjectCondition:
    """Summarize the stages in Karpenter's words."""
    if not pending:
        return ObjectCondition("Ready", "True", claim.initialized_at or claim.phase_since, "Ready", "")
    message = ", ".join(f"{condition.type}={condition.status}" for condition in pending)
    if any(condition.status == "False" for condition in pending):
        return ObjectCondition("Ready", "False", _refuted_at(claim), "UnhealthyDependents", message)
    return ObjectCondition("Ready", "Unknown", claim.created_at, "ReconcilingDependents", message)


def _refuted_at(claim: NodeClaim) -> datetime | None:
    return claim.phase_since if claim.phase is Phase.GIVEN_UP else None


def _consistent(claim: NodeClaim, since: datetime) -> ObjectCondition:
    if claim.inconsistency:
        return ObjectCondition(CONSISTENT, "False", None, "ConsistencyCheckFailed", claim.inconsistency)
    return ObjectCondition(CONSISTENT, "True", since, CONSISTENT, "")


def _end(claim: NodeClaim, since: datetime) -> Iterator[ObjectCondition]:
    """Yield the conditions of a claim's end. The step in progress carries the claim's reason."""
    if claim.cause not in {"", DELETED}:
        yield ObjectCondition(DISRUPTION_REASON, "True", since, claim.cause, "")
    at_work = True
    for step, phase in END.items():
        reached = getattr(claim, REACHED_AT[phase])
        if reached is not None:
            outcome, _, detail = claim.cause_of(phase).partition(": ")
            is_done = outcome != DEADLINE_PASSED
            if phase is Phase.TERMINATED and claim.instance_gone_at is not None:
                detail = claim.message  # names what still holds its Node
            yield ObjectCondition(step, str(is_done), reached, step if is_done else outcome, detail)
        else:
            reason, message = (claim.reason, claim.message) if at_work and claim.reason else AWAITING
            reason = DRAINING if reason == claim.cause else reason  # the end has only just begun
            yield ObjectCondition(step, "Unknown", since, reason, message)
            at_work = False


def condition_item(condition: ObjectCondition) -> dict[str, Any]:
    """Write a condition as it appears in a NodeClaim's status."""
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
    """Return the status of an object's condition of type `kind`, empty if it has none. Never raises."""
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    for condition in conditions or ():
        if isinstance(condition, Mapping) and condition.get("type") == kind:
            return str(condition.get("status"))
    return ""
