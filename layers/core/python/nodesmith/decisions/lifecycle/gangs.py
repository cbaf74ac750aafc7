"""Gangs after the decision: their ends, and the conditions that ProvisioningRequests show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodesmith.decisions.provisioning.gangs import (
    NO_PODS,
    TEMPLATE_WITHIN,
    is_ours,
    obstacle,
    without_room,
)
from nodesmith.model.apimachinery.times import first
from nodesmith.model.commands import Command, End, GiveUp
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.provisioningrequests import (
    ACCEPTED,
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    KIND,
    PROVISIONED,
    ROLLED_BACK,
    Gang,
    GangStage,
    ProvisioningRequest,
    title,
)
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

BOOKING_OVER = "CapacityReservationTimeExpired"
_STARTED = frozenset({Phase.REGISTERED, Phase.INITIALIZED})
_ENDED = frozenset({Phase.GIVEN_UP, Phase.TERMINATED})
_TRUE = {
    GangStage.PROVISIONED: PROVISIONED,
    GangStage.FAILED: FAILED,
    GangStage.EXPIRED: BOOKING_EXPIRED,
    GangStage.REVOKED: CAPACITY_REVOKED,
}
"""Stage → the condition that becomes true with it."""


def endings(ledger: Ledger, snapshot: Snapshot, now: datetime) -> list[Command]:
    """Return the ends of the NodeClaims that were bought for gangs which are rolled back.

    A NodeClaim without an instance is given up by the run of provisioning that would launch it. One that runs other
    pods by now is left to them.
    """
    claims = {claim.name: claim for claim in ledger.claims}
    commands: list[Command] = []
    for gang in ledger.gangs:
        if gang.stage is not GangStage.ROLLING_BACK:
            continue
        message = f"{title(gang.request)} is rolled back: {gang.message}"
        for name in gang.claims:
            claim = claims.get(name)
            if claim is None or _is_in_use(claim, snapshot):
                continue
            if claim.phase is Phase.LAUNCHED:
                commands.append(GiveUp(claim.given_up(ROLLED_BACK, message, now)))
            elif claim.phase in _STARTED:
                commands.append(End(claim.terminating(ROLLED_BACK, message, now)))
    return commands


def _is_in_use(claim: NodeClaim, snapshot: Snapshot) -> bool:
    node = snapshot.node_of(claim) if claim.phase in _STARTED else None
    if node is None:
        return False
    return any(pod.shape.moves and not pod.deleting for pod in snapshot.pods_on(node.name))


def advanced(ledger: Ledger, snapshot: Snapshot, now: datetime) -> list[Gang]:
    """Return the gangs that reach their next stage by time alone, because all of it has ended, or by deletion."""
    requests = {request.uid: request for request in snapshot.requests if not request.is_deleted}
    claims = {claim.name: claim for claim in ledger.claims}
    changed: list[Gang] = []
    for gang in ledger.gangs:
        request = requests.get(gang.id)
        if gang.stage is GangStage.ROLLING_BACK:
            living = (claims[name] for name in gang.claims if name in claims)
            if all(claim.phase in _ENDED or _is_in_use(claim, snapshot) for claim in living):
                changed.append(without_room(request, gang, gang.message, now))
        elif gang.stage is GangStage.LAUNCHING and request is None and not _is_newer(gang, snapshot):
            changed.append(gang.at(GangStage.ROLLING_BACK, now, message="the request was deleted"))
        elif gang.stage is GangStage.PROVISIONED and not gang.keeps_room(now):
            message = "the room was kept for its pods for 10 minutes"
            outcome = {"reason": BOOKING_OVER, "message": message, "places": {}, "claims": ()}
            changed.append(gang.at(GangStage.EXPIRED, now, **outcome))
    return changed


def _is_newer(gang: Gang, snapshot: Snapshot) -> bool:
    """Return whether a gang was begun after the snapshot, which then need not show its request yet.

    Lifecycle reads the snapshot before the ledger, and meanwhile provisioning may begin a gang.
    """
    return snapshot.taken_at < gang.created_at


def is_done(gang: Gang, snapshot: Snapshot) -> bool:
    """Return whether a gang can be forgotten: its request is gone, or shows how it ended."""
    request = next((candidate for candidate in snapshot.requests if candidate.uid == gang.id), None)
    if request is None and _is_newer(gang, snapshot):
        return False
    if request is not None and request.is_pod_group:  # which begins anew if its pods lack nodes again
        return gang.is_over or (gang.stage is GangStage.WAITING and not request.lacking)
    if request is not None and not request.is_deleted:
        return gang.is_over and _TRUE[gang.stage] in request.conditions
    return gang.stage not in {GangStage.LAUNCHING, GangStage.ROLLING_BACK}


def status_updates(
    ledger: Ledger, snapshot: Snapshot, now: datetime, *, shared: bool
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield kind, namespace/name and status of each ProvisioningRequest that does not show its state yet."""
    gangs = {gang.id: gang for gang in ledger.gangs}
    for request in snapshot.requests:
        if request.is_pod_group or not is_ours(request, ledger, shared=shared):
            continue
        conditions = [*_conditions(request, gangs.get(request.uid), snapshot, now)]
        if conditions and not _shows(request, conditions):
            yield KIND, request.key, {"conditions": conditions}


def _conditions(
    request: ProvisioningRequest, gang: Gang | None, snapshot: Snapshot, now: datetime
) -> Iterator[dict[str, Any]]:
    if gang is None:
        message = obstacle(request, snapshot)
        if message and (request.faults or now - request.created_at >= TEMPLATE_WITHIN):
            yield _condition(request, FAILED, "True", NO_PODS, message)
        return
    yield _condition(request, ACCEPTED, "True", "Accepted", "nodesmith serves the request")
    if gang.stage in _TRUE:
        yield _condition(request, _TRUE[gang.stage], "True", gang.reason, gang.message)
    else:
        yield _condition(request, PROVISIONED, "False", gang.reason, gang.message)


def _condition(
    request: ProvisioningRequest, type_: str, status: str, reason: str, message: str
) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": request.generation,
    }


def _shows(request: ProvisioningRequest, conditions: list[dict[str, Any]]) -> bool:
    rows = {(c["type"], c["status"], c["reason"], c["message"]) for c in conditions}
    return rows <= set(request.shown)


def next_change(ledger: Ledger, snapshot: Snapshot, now: datetime, *, shared: bool) -> datetime | None:
    """Return when lifecycle must look at requests again even if nothing changes; None for never."""
    moments: list[datetime | None] = [
        gang.booked_until for gang in ledger.gangs if gang.stage is GangStage.PROVISIONED
    ]
    moments += [now for gang in ledger.gangs if gang.stage in {GangStage.LAUNCHING, GangStage.ROLLING_BACK}]
    moments += [now for gang in ledger.gangs if gang.is_over]
    gang_ids = {gang.id for gang in ledger.gangs}
    new = [
        request for request in snapshot.requests if request.uid not in gang_ids and not request.is_pod_group
    ]
    moments += [
        request.created_at + TEMPLATE_WITHIN
        for request in new
        if is_ours(request, ledger, shared=shared) and obstacle(request, snapshot)
    ]
    return first(moments)


def is_awaited(claim: NodeClaim, ledger: Ledger) -> bool:
    """Return whether a gang waits for a NodeClaim to become ready."""
    return any(gang.stage is GangStage.LAUNCHING and claim.name in gang.places for gang in ledger.gangs)
