"""Readiness: which NodePools, EC2NodeClasses and NodeOverlays can be used, shown in the objects' statuses.

Condition types and reasons are Karpenter's: a NodePool is Ready if its own content is valid and its NodeClass is Ready,
an EC2NodeClass if everything that it selects was found. That is looked up in AWS again after a while, or when the
EC2NodeClass has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from nodesmith.decisions.scheduling.offerings.options import Usage
from nodesmith.decisions.takeover import STANDBY
from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.apimachinery.problems import AWAITING, ObjectEvent, Parsed, Problem, shortened
from nodesmith.model.apimachinery.quantities import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Resources,
    format_resources,
    total,
)
from nodesmith.model.apimachinery.requirements import write_requirements
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.capacity import without_attachable
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim
from nodesmith.model.karpenter.nodeoverlays import NodeOverlay
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.learned import RegistrationHealth
from nodesmith.model.ledger.ledger import PAUSED, Pause
from nodesmith.model.limits.quotas import CAPACITY_QUOTA, Quota, format_limits
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import CapacityReservation, NodeClassStatus, StatusCondition
from nodesmith.model.snapshot import Snapshot

_REGISTRATION_FAILURES = {
    "RegistrationTimeout": "RegistrationFailed",
    "InstanceTerminated": "RegistrationFailed",
    "LaunchTimeout": "LaunchFailed",
}
"""Karpenter's reasons by the reason for which a claim ended; a refused launch keeps its own reason."""


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status to write on an object that shows a different one."""

    kind: str
    name: str
    status: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    """problems to publish as Events, each a sentence"""

    @property
    def events(self) -> list[ObjectEvent]:
        """The warnings as Events."""
        return [
            ObjectEvent(self.kind, self.name, "ValidationFailed", warning, warning=True)
            for warning in self.warnings
        ]


def nodeclass_update(
    manifest: Mapping[str, Any],
    parsed: Parsed[EC2NodeClass],
    status: NodeClassStatus | None,
    now: datetime,
    launches: Sequence[StatusCondition] = (),
) -> StatusUpdate | None:
    """Return the status that an EC2NodeClass should show, None if it shows it already.

    `launches` say whether launches from it fail; they do not affect Ready. If another controller has set Ready to
    False, it stays so until one of the conditions that it depends on changes, as in Karpenter, or the EC2NodeClass
    does.
    """
    name, generation = name_of(manifest), _generation(manifest)
    if parsed.value is None:
        conditions = [_invalid("NodeClassValidationFailed", parsed.problems)]
        new_status: dict[str, Any] = {}
    elif status is None:
        conditions, new_status = [StatusCondition("ValidationSucceeded", "Unknown", *AWAITING)], {}
    else:
        conditions, new_status = list(status.conditions), _resolved(status)
    if not _is_denied(manifest, [_condition_item(c, generation, now) for c in conditions]):
        conditions.append(_root(conditions))
    new_status["conditions"] = [_condition_item(c, generation, now) for c in (*conditions, *launches)]
    return _update("EC2NodeClass", name, manifest, new_status, parsed.problems)


def nodepool_update(
    manifest: Mapping[str, Any],
    parsed: Parsed[NodePool],
    nodeclass_states: Mapping[str, StatusCondition],
    health: RegistrationHealth | None,
    snapshot: Snapshot,
    now: datetime,
    paused: Pause | None = None,
    claims: Sequence[NodeClaim] = (),
    shifted: Sequence[StatusCondition] = (),
) -> StatusUpdate | None:
    """Return the status that a NodePool should show, None if it shows it already.

    `nodeclass_states` are the Ready conditions of all EC2NodeClasses by name, `health` is its current registration
    health, `claims` are the ledger's, and `shifted` is what `shift_condition` returned. Problems that do not make it
    invalid appear in the message of `ValidationSucceeded`.
    """
    name, generation = name_of(manifest), _generation(manifest)
    pool = parsed.value
    if pool is None:
        conditions = [_invalid("NodePoolValidationFailed", parsed.problems)]
    else:
        warnings = shortened("; ".join(map(str, parsed.problems)))
        conditions = [
            StatusCondition("ValidationSucceeded", "True", "ValidationSucceeded", warnings),
            _nodeclass_ready(pool, nodeclass_states),
        ]
    conditions += [_root(conditions), registration_condition(health), *_paused(paused, manifest), *shifted]
    if any(c.get("type") == STANDBY for c in (manifest.get("status") or {}).get("conditions") or ()):
        conditions.append(StatusCondition(STANDBY, "False", "Serving"))
    new_status = {
        **usage(name, claims, snapshot),
        **_observed(pool, snapshot),
        "conditions": [_condition_item(c, generation, now) for c in conditions],
    }
    return _update("NodePool", name, manifest, new_status, parsed.problems)


def nodeoverlay_update(
    manifest: Mapping[str, Any], parsed: Parsed[NodeOverlay], contradiction: str, now: datetime
) -> StatusUpdate | None:
    """Return the status that a NodeOverlay should show, None if it shows it already.

    `contradiction` says which other one it contradicts, so that it is left out; empty if it applies.
    """
    if parsed.value is None:
        conditions = [_invalid("RuntimeValidation", parsed.problems)]
    elif contradiction:
        conditions = [StatusCondition("ValidationSucceeded", "False", "Conflict", shortened(contradiction))]
    else:
        warnings = shortened("; ".join(map(str, parsed.problems)))
        conditions = [StatusCondition("ValidationSucceeded", "True", "ValidationSucceeded", warnings)]
    conditions.append(_root(conditions))
    items = [_condition_item(c, _generation(manifest), now) for c in conditions]
    update = _update("NodeOverlay", name_of(manifest), manifest, {"conditions": items}, parsed.problems)
    return replace(update, warnings=(*update.warnings, contradiction)) if update and contradiction else update


ENFORCED, QUOTA_NEAR_LIMIT = "nodesmith.dev/Enforced", "nodesmith.dev/NearLimit"
"""Conditions of CapacityQuotas. Other controllers may show their own."""
_ELSEWHERE = "another controller writes status.used"


def quota_update(
    manifest: Mapping[str, Any],
    parsed: Parsed[Quota],
    usage: Usage | None,
    near: Sequence[StatusCondition],
    now: datetime,
) -> StatusUpdate | None:
    """Return the status that a CapacityQuota should show, None if it shows it already.

    `near` says whether its limits are nearly used. The message of the condition Enforced repeats `status.used`: if the
    two differ, another controller writes `status.used`, and it is left to that controller.
    """
    used = {} if usage is None or usage.quota.fault else format_limits(usage.used)
    current = manifest.get("status") or {}
    enforced_condition: Mapping[str, Any] = next(
        (c for c in current.get("conditions") or () if c.get("type") == ENFORCED), {}
    )
    reported = (current.get("used") or {}).get("resources") or {}
    is_elsewhere = bool(reported) and str(enforced_condition.get("message") or "") != _used_in_words(reported)
    if parsed.fatal:
        faults = "; ".join(map(str, parsed.fatal))
        enforced = StatusCondition(
            ENFORCED, "False", "Invalid", shortened(f"no node is bought that it may select: {faults}")
        )
    else:
        message = _ELSEWHERE if is_elsewhere else _used_in_words(used)
        enforced = StatusCondition(ENFORCED, "True", "Enforced", message)
    new_status: dict[str, Any] = {
        "conditions": [_condition_item(c, _generation(manifest), now) for c in (enforced, *near)]
    }
    if used and not is_elsewhere:
        new_status["used"] = {"resources": used}
    return _update(CAPACITY_QUOTA.name, name_of(manifest), manifest, new_status, parsed.problems)


def _used_in_words(used: Mapping[str, Any]) -> str:
    return shortened("used: " + ", ".join(f"{used[name]} {name}" for name in sorted(used)))


def of_provisioner(update: StatusUpdate, manifest: Mapping[str, Any], now: datetime) -> StatusUpdate:
    """Return a NodePool's status as its Provisioner shows it: with the time when its number of nodes last changed."""
    current = manifest.get("status") or {}
    has_scaled = update.status["nodes"] != (current.get("nodes") or 0)
    scaled = {"lastScaleTime": format_time(now)} if has_scaled else {}
    return replace(update, kind="Provisioner", status={**update.status, **scaled})


def ready_condition(update: StatusUpdate | None, manifest: Mapping[str, Any]) -> StatusCondition:
    """Return the Ready condition of an EC2NodeClass once `update` is written; one being deleted is not ready."""
    if (manifest.get("metadata") or {}).get("deletionTimestamp"):
        message = f"EC2NodeClass {name_of(manifest)!r} is being deleted"
        return StatusCondition("Ready", "False", "NodeClassTerminating", message)
    statuses = (update.status if update else {}, manifest.get("status") or {})
    conditions: Iterable[Mapping[str, Any]] = chain(*(status.get("conditions") or () for status in statuses))
    ready: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Ready"), {})
    return StatusCondition(
        "Ready",
        str(ready.get("status", "Unknown")),
        str(ready.get("reason", "")),
        str(ready.get("message", "")),
    )


def _observed(pool: NodePool | None, snapshot: Snapshot) -> dict[str, int]:
    """Return the observed generation of a NodePool's EC2NodeClass as a status field, empty if there is none."""
    of = pool.nodeclass.name if pool and pool.nodeclass.label == NODECLASS else ""
    generation = next((_generation(m) for m in snapshot.nodeclasses if name_of(m) == of), 0)
    return {"nodeClassObservedGeneration": generation} if generation else {}


def _nodeclass_ready(pool: NodePool, states: Mapping[str, StatusCondition]) -> StatusCondition:
    ref = pool.nodeclass
    if ref.label != NODECLASS:
        message = (
            f"the NodeClass is a {ref.kind}.{ref.group}, which is not supported: write kind: EC2NodeClass"
        )
        return StatusCondition("NodeClassReady", "False", "NodeClassNotFound", message)
    state = states.get(ref.name)
    if state is None:
        existing = ", ".join(sorted(states)) or "none"
        message = f"EC2NodeClass {pool.nodeclass.name!r} is not found (existing: {existing})"
        return StatusCondition("NodeClassReady", "False", "NodeClassNotFound", message)
    if state.status == "True":
        return StatusCondition("NodeClassReady", "True", "NodeClassReady")
    reason = state.reason if state.status == "False" else "NodeClassReadinessUnknown"
    return StatusCondition("NodeClassReady", "False", reason, state.message)


def registration_condition(health: RegistrationHealth | None) -> StatusCondition:
    """Return whether nodes join. This does not affect Ready: the NodePool is still tried, and others may serve pods."""
    kind = "NodeRegistrationHealthy"
    if health is None or not (health.is_unhealthy or health.has_registered):
        return StatusCondition(kind, "Unknown", *AWAITING)
    if not health.is_unhealthy:
        return StatusCondition(kind, "True", kind)
    failed = f"{health.failures} of its last {len(health.endings)} nodes did not join the cluster"
    message = f"{failed}; the last: {health.reason}: {health.message}"
    reason = _REGISTRATION_FAILURES.get(health.reason, health.reason)
    return StatusCondition(kind, "False", reason, shortened(message))


def _paused(paused: Pause | None, manifest: Mapping[str, Any]) -> list[StatusCondition]:
    """Return whether disruption is paused; nothing if it never was. This does not affect Ready."""
    if paused is not None:
        return [StatusCondition(PAUSED, "True", "Paused", str(paused), paused.since)]
    current = (manifest.get("status") or {}).get("conditions") or ()
    return (
        [StatusCondition(PAUSED, "False", "Resumed")] if any(c.get("type") == PAUSED for c in current) else []
    )


def _invalid(reason: str, problems: Sequence[Problem]) -> StatusCondition:
    message = "; ".join(str(p) for p in problems if p.fatal)
    return StatusCondition("ValidationSucceeded", "False", reason, shortened(message))


def _root(conditions: Sequence[StatusCondition]) -> StatusCondition:
    """Return Ready, the conjunction of all other conditions. Those that are False, or else unknown, are its reason."""
    false = [c for c in conditions if c.status == "False"]
    failing = false or [c for c in conditions if c.status != "True"]
    if not failing:
        return StatusCondition("Ready", "True", "Ready")
    own = [c for c in failing if not c.is_waiting] or failing
    message = "; ".join(f"{c.type}={c.status}: {c.message or c.reason}" for c in own)
    reason = "UnhealthyDependents" if false else "ReconcilingDependents"
    return StatusCondition("Ready", failing[0].status, reason, shortened(message))


def _is_denied(manifest: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an object shows all of `conditions` as True, but Ready as not True."""
    current, rests_on = _conditions(manifest.get("status") or {}), _conditions({"conditions": conditions})
    is_denied = current.get("Ready", ("True",))[0] != "True"
    return is_denied and all(c[0] == "True" and current.get(type_) == c for type_, c in rests_on.items())


def _resolved(status: NodeClassStatus) -> dict[str, Any]:
    return {
        "subnets": [
            {"id": s.id, "zone": s.zone, **({"zoneID": s.zone_id} if s.zone_id else {})}
            for s in status.subnets
        ],
        "securityGroups": [
            {"id": g.id, **({"name": g.name} if g.name else {})} for g in status.security_groups
        ],
        "amis": [
            {
                "id": i.id,
                **({"name": i.name} if i.name else {}),
                **({"deprecated": True} if i.deprecated else {}),
                "requirements": write_requirements(i.requirements),
            }
            for i in status.images
        ],
        **({"instanceProfile": status.instance_profile} if status.instance_profile else {}),
        "capacityReservations": [_reservation(reservation) for reservation in status.capacity_reservations],
    }


def _reservation(reservation: CapacityReservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "availabilityZone": reservation.zone,
        "instanceType": reservation.instance_type,
        "instanceMatchCriteria": reservation.match_criteria,
        "ownerID": reservation.owner_id,
        "reservationType": reservation.kind,
        "interruptible": reservation.interruptible,
        "state": "expiring" if reservation.expiring else "active",
        **({"endTime": format_time(reservation.ends_at)} if reservation.ends_at else {}),
    }


def _condition_item(condition: StatusCondition, generation: int, now: datetime) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or condition.type,
        "message": condition.message,
        "lastTransitionTime": format_time(condition.since or now),
        "observedGeneration": generation,
    }


def _update(
    kind: str,
    name: str,
    manifest: Mapping[str, Any],
    new_status: dict[str, Any],
    problems: Sequence[Problem],
) -> StatusUpdate | None:
    current = manifest.get("status") or {}
    current_conditions, fields = _conditions(current), new_status.keys() - {"conditions"}
    # Other content of the status, such as other controllers' conditions, stays there and counts as no difference.
    conditions_hold = all(current_conditions.get(type_) == c for type_, c in _conditions(new_status).items())
    if conditions_hold and all((new_status[f] or None) == (current.get(f) or None) for f in fields):
        return None
    return StatusUpdate(kind, name, new_status, tuple(str(p) for p in problems))


def _conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        str(c.get("type")): (
            str(c.get("status")),
            str(c.get("reason")),
            str(c.get("message") or ""),
            str(c.get("observedGeneration") or 0),
        )
        for c in status.get("conditions") or ()
    }


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return str((manifest.get("metadata") or {}).get("name"))


def _generation(manifest: Mapping[str, Any]) -> int:
    return int((manifest.get("metadata") or {}).get("generation") or 0)


_ALWAYS_SHOWN = Resources(dict.fromkeys((CPU, EPHEMERAL_STORAGE, MEMORY, PODS), 0))


def usage(nodepool: str, claims: Sequence[NodeClaim], snapshot: Snapshot) -> dict[str, Any]:
    """Return `status.nodes` and `status.resources` of a NodePool.

    Nodes that are terminating do not count, as in Karpenter. A Node without a claim counts with the capacity it shows.
    """
    claimed = {claim.provider_id for claim in claims}
    capacities = [claim.capacity for claim in claims if claim.nodepool == nodepool and claim.phase in HOLDING]
    capacities += [
        node.capacity
        for node in snapshot.nodes_in(nodepool)
        if node.provider_id not in claimed and not node.deleting
    ]
    number = len(capacities)
    resources = total([_ALWAYS_SHOWN, *map(without_attachable, capacities), Resources({"nodes": number})])
    return {"nodes": number, "resources": format_resources(resources)}
