"""Readiness: which NodePools and EC2NodeClasses can be used, said on the objects themselves.

Condition types and reasons are Karpenter's: a NodePool is Ready when its own content is valid and its NodeClass is
ready, an EC2NodeClass when everything it selects has been found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from nodesmith.decisions.readiness.poolusage import usage
from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.apimachinery.problems import Parsed, Problem
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.karpenter.nodespec import write_requirements
from nodesmith.model.kubernetes.messages import AWAITING, shortened
from nodesmith.model.ledger.pauses import PAUSED, Pause
from nodesmith.model.ledger.registrationhealth import RegistrationHealth
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import CapacityReservation, NodeClassStatus, StatusCondition
from nodesmith.model.snapshot import Snapshot

_REGISTRATION_FAILURES = {
    "RegistrationTimeout": "RegistrationFailed",
    "InstanceTerminated": "RegistrationFailed",
    "LaunchTimeout": "LaunchFailed",
}
"""Karpenter's words for what ended a claim; a launch that was refused keeps its own."""


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status to write on an object, because it shows another one."""

    kind: str
    name: str
    status: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    """problems to tell as Events, each a sentence"""


def nodeclass_update(
    manifest: Mapping[str, Any], parsed: Parsed[EC2NodeClass], status: NodeClassStatus | None, now: datetime
) -> StatusUpdate | None:
    """Return the status an EC2NodeClass should show, None where it shows it already.

    A Ready that somebody else has denied stays so until one of the conditions changes that it rests on, as with
    Karpenter, or the EC2NodeClass does.
    """
    name, generation = _name(manifest), _generation(manifest)
    if parsed.value is None:
        conditions = [_invalid("ValidationSucceeded", "NodeClassValidationFailed", parsed.problems)]
        wanted: dict[str, Any] = {}
    elif status is None:
        conditions, wanted = [StatusCondition("ValidationSucceeded", "Unknown", *AWAITING)], {}
    else:
        conditions, wanted = list(status.conditions), _resolved(status)
    if not _is_denied(manifest, [_shown(c, generation, now) for c in conditions]):
        conditions.append(_root(conditions))
    wanted["conditions"] = [_shown(c, generation, now) for c in conditions]
    return _update("EC2NodeClass", name, manifest, wanted, parsed.problems)


def nodepool_update(
    manifest: Mapping[str, Any],
    parsed: Parsed[NodePool],
    nodeclass_states: Mapping[str, StatusCondition],
    health: RegistrationHealth | None,
    snapshot: Snapshot,
    now: datetime,
    paused: Pause | None = None,
    claims: Sequence[NodeClaim] = (),
) -> StatusUpdate | None:
    """Return the status a NodePool should show, None where it shows it already.

    `nodeclass_states` are the Ready conditions of all EC2NodeClasses by name, `health` is what is known of whether its
    nodes join, as it is now, `claims` are the ledger's. What is wrong with it and harms it little is the message of its
    validation.
    """
    name, generation = _name(manifest), _generation(manifest)
    pool = parsed.value
    if pool is None:
        conditions = [_invalid("ValidationSucceeded", "NodePoolValidationFailed", parsed.problems)]
    else:
        warnings = shortened("; ".join(map(str, parsed.problems)))
        conditions = [
            StatusCondition("ValidationSucceeded", "True", "ValidationSucceeded", warnings),
            _nodeclass_ready(pool, nodeclass_states),
        ]
    conditions += [_root(conditions), registration_condition(health), *_paused(paused, manifest)]
    wanted = {
        **usage(name, claims, snapshot),
        **_observed(pool, snapshot),
        "conditions": [_shown(c, generation, now) for c in conditions],
    }
    return _update("NodePool", name, manifest, wanted, parsed.problems)


def of_provisioner(update: StatusUpdate, manifest: Mapping[str, Any], now: datetime) -> StatusUpdate:
    """Return the status of a NodePool as its Provisioner shows it: with when its number of nodes last changed."""
    shown = manifest.get("status") or {}
    has_scaled = update.status["nodes"] != (shown.get("nodes") or 0)
    scaled = {"lastScaleTime": format_time(now)} if has_scaled else {}
    return replace(update, kind="Provisioner", status={**update.status, **scaled})


def ready_condition(update: StatusUpdate | None, manifest: Mapping[str, Any]) -> StatusCondition:
    """Return the Ready condition that an object shows once `update` is written."""
    statuses = (update.status if update else {}, manifest.get("status") or {})
    conditions: Iterable[Mapping[str, Any]] = chain(*(each.get("conditions") or () for each in statuses))
    found: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Ready"), {})
    return StatusCondition(
        "Ready",
        str(found.get("status", "Unknown")),
        str(found.get("reason", "")),
        str(found.get("message", "")),
    )


def _observed(pool: NodePool | None, snapshot: Snapshot) -> dict[str, int]:
    """Return which generation of its EC2NodeClass a NodePool was looked at with; nothing where there is none."""
    of = pool.nodeclass.name if pool and pool.nodeclass.label == NODECLASS else ""
    found = next((_generation(each) for each in snapshot.nodeclasses if _name(each) == of), 0)
    return {"nodeClassObservedGeneration": found} if found else {}


def _nodeclass_ready(pool: NodePool, states: Mapping[str, StatusCondition]) -> StatusCondition:
    ref = pool.nodeclass
    if ref.label != NODECLASS:
        message = f"the NodeClass is a {ref.kind}.{ref.group}, which is not known: write kind: EC2NodeClass"
        return StatusCondition("NodeClassReady", "False", "NodeClassNotFound", message)
    state = states.get(ref.name)
    if state is None:
        known = ", ".join(sorted(states)) or "none exists"
        message = f"EC2NodeClass {pool.nodeclass.name!r} is not found (there is: {known})"
        return StatusCondition("NodeClassReady", "False", "NodeClassNotFound", message)
    if state.status == "True":
        return StatusCondition("NodeClassReady", "True", "NodeClassReady")
    reason = state.reason if state.status == "False" else "NodeClassReadinessUnknown"
    return StatusCondition("NodeClassReady", state.status, reason, state.message)


def registration_condition(health: RegistrationHealth | None) -> StatusCondition:
    """Whether nodes join says nothing of Ready: pods may go on to other NodePools, and it goes on being tried."""
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
    """Whether disruption is paused says nothing of Ready; where it never was nobody need read of it."""
    if paused is not None:
        return [StatusCondition(PAUSED, "True", "Paused", str(paused), paused.since)]
    shown = (manifest.get("status") or {}).get("conditions") or ()
    return (
        [StatusCondition(PAUSED, "False", "Resumed")] if any(c.get("type") == PAUSED for c in shown) else []
    )


def _invalid(type_: str, reason: str, problems: Sequence[Problem]) -> StatusCondition:
    message = "; ".join(str(p) for p in problems if p.fatal)
    return StatusCondition(type_, "False", reason, shortened(message))


def _root(conditions: Sequence[StatusCondition]) -> StatusCondition:
    """Ready is the conjunction of all others; the first that fails gives its reason."""
    failing = next((c for c in conditions if c.status == "False"), None) or next(
        (c for c in conditions if c.status != "True"), None
    )
    if failing is None:
        return StatusCondition("Ready", "True", "Ready")
    message = f"{failing.type}={failing.status}: {failing.message or failing.reason}"
    reason = "UnhealthyDependents" if failing.status == "False" else "ReconcilingDependents"
    return StatusCondition("Ready", failing.status, reason, shortened(message))


def _is_denied(manifest: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an object shows all these conditions, each True, and still a Ready that is not."""
    shown, rests_on = _conditions(manifest.get("status") or {}), _conditions({"conditions": wanted})
    says_no = shown.get("Ready", ("True",))[0] != "True"
    return says_no and all(c[0] == "True" and shown.get(type_) == c for type_, c in rests_on.items())


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
        "capacityReservations": [_reservation(each) for each in status.capacity_reservations],
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


def _shown(condition: StatusCondition, generation: int, now: datetime) -> dict[str, Any]:
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
    wanted: dict[str, Any],
    problems: Sequence[Problem],
) -> StatusUpdate | None:
    shown = manifest.get("status") or {}
    says, fields = _conditions(shown), wanted.keys() - {"conditions"}
    # What else is in the status, other writers' conditions for instance, stays there and is no difference.
    conditions_hold = all(says.get(type_) == c for type_, c in _conditions(wanted).items())
    if conditions_hold and all((wanted[f] or None) == (shown.get(f) or None) for f in fields):
        return None
    return StatusUpdate(kind, name, wanted, tuple(str(p) for p in problems))


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


def _name(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("name"))


def _generation(manifest: Mapping[str, Any]) -> int:
    return int((manifest.get("metadata") or {}).get("generation") or 0)
