"""Users' NodeClaims that are not launched yet, and which of them are to be deleted, as in Karpenter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaimobjects import parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef
from nodesmith.model.karpenter.nodepools import DEFAULTS
from nodesmith.model.karpenter.ownership import is_unclaimed
from nodesmith.model.nodeclasses.nodeclasses import shown_ready
from nodesmith.model.snapshot import Snapshot


def unclaimed(snapshot: Snapshot, known: Sequence[NodeClaim]) -> list[Mapping[str, Any]]:
    """Return the NodeClaim objects that are not in the ledger, by name."""
    names = {claim.name for claim in known}
    found = [m for m in snapshot.nodeclaims if is_unclaimed(m) and m["metadata"]["name"] not in names]
    return sorted(found, key=lambda m: str(m["metadata"]["name"]))


def unlaunchable(
    asked: Iterable[Mapping[str, Any]], nodeclasses: Iterable[Mapping[str, Any]], now: datetime
) -> dict[str, tuple[str, str]]:
    """Return the users' NodeClaims to delete, as Karpenter does: name → reason and message of the Event.

    Their EC2NodeClass is missing, being deleted, or not Ready by its status. An EC2NodeClass without a Ready condition
    may still become Ready, so its NodeClaims wait.
    """
    shown = {str(manifest["metadata"]["name"]): manifest for manifest in nodeclasses}
    claims = (parse_nodeclaim(manifest, now).value for manifest in asked)
    found = ((claim, _nodeclass_trouble(claim.nodeclass, shown)) for claim in claims if claim is not None)
    return {claim.name: trouble for claim, trouble in found if trouble is not None}


def overdue(asked: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, tuple[str, str]]:
    """Return the users' NodeClaims that have waited too long since they first reported why they are not launched.

    The value is the reason and message of the Event.
    """
    found: dict[str, tuple[str, str]] = {}
    for manifest in asked:
        claim = parse_nodeclaim(manifest, now).value
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        launched = next((c for c in conditions if c.get("type") == "Launched"), None)
        if claim is None or claim.nodeclass.label != NODECLASS or launched is None:
            continue
        if launched.get("status") == "Unknown" and now - _since(launched, now) >= DEFAULTS.launch_timeout:
            minutes = DEFAULTS.launch_timeout.total_seconds() / 60
            found[claim.name] = (
                "LaunchTimeout",
                f"no instance within {minutes:g} minutes: {launched.get('message')}",
            )
    return found


def _since(condition: Mapping[str, Any], now: datetime) -> datetime:
    return parse_time(str(condition["lastTransitionTime"])) if condition.get("lastTransitionTime") else now


def _nodeclass_trouble(ref: NodeClassRef, shown: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    if ref.label != NODECLASS:
        return None
    manifest = shown.get(ref.name)
    if manifest is None or manifest["metadata"].get("deletionTimestamp"):
        state = "does not exist" if manifest is None else "is being deleted"
        return "InsufficientCapacityError", f"EC2NodeClass {ref.name!r} {state}"
    ready = shown_ready(manifest)
    if ready is None or ready.get("status") != "False":
        return None
    why = ready.get("message") or ready.get("reason") or "Ready is False"
    return "NodeClassNotReady", f"EC2NodeClass {ref.name!r} is not Ready: {why}"
