"""Read a claim from its NodeClaim object alone, for readers without the ledger."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import AWAITING, Parsed
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.hashes import NODECLASS_HASH, NODEPOOL_HASH
from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY
from nodesmith.model.karpenter.nodeclaimobjects import DELETED, DISRUPTION_REASON, END, LIFE, parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import (
    DEADLINE_PASSED,
    REACHED_AT,
    STOPPED_PRICE,
    WARM,
    NodeClaim,
    Phase,
)

_PRICE = re.compile(r"[0-9]{1,6}\.[0-9]{1,6}", re.ASCII)
_Conditions: TypeAlias = Mapping[str, Mapping[str, Any]]


def shown_claim(manifest: Mapping[str, Any], now: datetime) -> Parsed[NodeClaim]:
    """Read a NodeClaim object with its status, whichever software maintains it. Never raises.

    The object does not contain the price and the launch data. Times are whole seconds.
    """
    parsed = parse_nodeclaim(manifest, now)
    if parsed.value is None:
        return parsed
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = {str(condition.get("type")): condition for condition in status.get("conditions") or ()}
    claim = _with_phase(parsed.value, conditions, metadata.get("deletionTimestamp"))
    own_labels, provider_id = metadata.get("labels") or {}, str(status.get("providerID") or "")
    shown = replace(
        claim,
        provider_id=provider_id,
        instance_id=provider_id.rpartition("/")[2],
        node_name=str(status.get("nodeName") or ""),
        image_id=str(status.get("imageID") or ""),
        instance_type=own_labels.get(labels.INSTANCE_TYPE, ""),
        zone=own_labels.get(labels.ZONE, ""),
        capacity_type=own_labels.get(labels.CAPACITY_TYPE, ""),
        annotations=FrozenMap(metadata.get("annotations")),
        **_drift(metadata.get("annotations") or {}, conditions.get("Drifted", {})),
        capacity=parse_resources(status.get("capacity")),
        allocatable=parse_resources(status.get("allocatable")),
    )
    return Parsed(with_warm_state(shown), parsed.problems)


_WARM = {str(phase): phase for phase in (*WARM, Phase.STARTING)}


def with_warm_state(claim: NodeClaim) -> NodeClaim:
    """Return a claim with its state of warm capacity, which follows from its annotations, phase and reason."""
    buffer, price = claim.annotations.get(WARM_CAPACITY, ""), claim.annotations.get(STOPPED_PRICE, "")
    if not buffer:
        return claim
    phase = _WARM.get(claim.reason, claim.phase) if claim.phase is Phase.LAUNCHED else claim.phase
    usd = float(price) if _PRICE.fullmatch(price) else 0.0
    return replace(claim, buffer=buffer, stopped_price_hourly_usd=usd, phase=phase)


def _with_phase(claim: NodeClaim, conditions: _Conditions, deleted: str | None) -> NodeClaim:
    alive = _advanced(LIFE, claim, conditions)
    drained = conditions.get("Drained", {})
    # Until the drain is over, its transition time is when termination began; afterwards it is when the last pod left.
    dates = [drained.get("lastTransitionTime"), deleted]
    started_at = next(filter(None, reversed(dates) if _is_over(drained) else dates), None)
    if not started_at:
        return alive
    since = parse_time(started_at)
    cause = str(conditions.get(DISRUPTION_REASON, {}).get("reason") or DELETED)
    ending = replace(alive, phase=Phase.TERMINATING, phase_since=since, terminating_at=since, cause=cause)
    return _advanced(END, ending, conditions)


def _drift(annotations: Mapping[str, str], condition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claim's fields about drift: the hashes at the time of the purchase, and whether it has drifted."""
    has_drifted = condition.get("status") == "True"
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    return {
        "nodepool_hash": annotations.get(NODEPOOL_HASH, ""),
        "nodeclass_hash": annotations.get(NODECLASS_HASH, ""),
        "nodepool_hash_version": annotations.get(f"{NODEPOOL_HASH}-version", ""),
        "nodeclass_hash_version": annotations.get(f"{NODECLASS_HASH}-version", ""),
        "drift": reason if has_drifted else "",
        "drift_detail": message if has_drifted and message != reason else "",
        "drifted_at": parse_time(str(condition["lastTransitionTime"])) if has_drifted else None,
    }


def _is_over(condition: Mapping[str, Any]) -> bool:
    """Return whether a step is over: done, or cut short by the claim's deadline."""
    return condition.get("status") == "True" or condition.get("reason") == DEADLINE_PASSED


def _advanced(phases: Mapping[str, Phase], claim: NodeClaim, conditions: _Conditions) -> NodeClaim:
    """Advance the claim as far as its conditions hold. The first one that does not hold provides reason and message."""
    for kind, phase in phases.items():
        condition = conditions.get(kind, {})
        if not _is_over(condition):
            reason = str(condition.get("reason") or "")
            message = str(condition.get("message") or "")
            return replace(claim, reason=reason, message=message) if reason != AWAITING[0] else claim
        reached_at = parse_time(str(condition["lastTransitionTime"]))
        reached: dict[str, Any] = {REACHED_AT[phase]: reached_at}
        claim = replace(claim, phase=phase, phase_since=reached_at, reason="", message="", **reached)
    return claim
