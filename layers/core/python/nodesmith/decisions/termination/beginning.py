"""Whose end has begun: somebody has deleted the NodeClaim or its Node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.commands import End
from nodesmith.model.durations import duration_seconds
from nodesmith.model.labels import TERMINATION_TIMESTAMP
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodes import Node
from nodesmith.model.snapshot import Snapshot
from nodesmith.model.times import parse_time

DELETED = "Deleted"
"""The cause of an end that somebody asked for by hand, or by deleting the NodePool."""


def to_end(claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> list[End]:
    """Give the ends that begin now, by claim name."""
    objects = {str((m.get("metadata") or {}).get("name")): m for m in snapshot.nodeclaims}
    nodes = {node.provider_id: node for node in snapshot.nodes if node.provider_id}
    found = []
    for claim in sorted(claims, key=lambda c: c.name):
        if claim.is_ending or claim.phase is Phase.GIVEN_UP:
            continue
        node = nodes.get(claim.provider_id) if claim.provider_id else None
        why = _why(claim, objects.get(claim.name), node)
        if why:
            deadline = deadline_of(claim, objects.get(claim.name), now)
            found.append(End(claim.terminating(DELETED, why, now, deadline)))
    return found


def _why(claim: NodeClaim, shown: Mapping[str, Any] | None, node: Node | None) -> str:
    if shown is not None and shown["metadata"].get("deletionTimestamp"):
        return f"NodeClaim {claim.name} was deleted"
    if node is not None and node.deleting:
        return f"Node {node.name} was deleted"
    return ""


def deadline_of(claim: NodeClaim, shown: Mapping[str, Any] | None, now: datetime) -> datetime | None:
    """Give when the instance goes at the latest: the NodePool's terminationGracePeriod after the deletion.

    The annotation `karpenter.sh/nodeclaim-termination-timestamp` on the NodeClaim may make it sooner. None is never.
    """
    grace = duration_seconds(claim.termination_grace_period)
    deleted = _deleted_at(shown) or claim.terminating_at or now
    candidates = [
        claim.deadline,
        _annotated(shown),
        deleted + timedelta(seconds=grace) if grace is not None else None,
    ]
    return min((moment for moment in candidates if moment is not None), default=None)


def _deleted_at(shown: Mapping[str, Any] | None) -> datetime | None:
    return _moment(((shown or {}).get("metadata") or {}).get("deletionTimestamp"))


def _annotated(shown: Mapping[str, Any] | None) -> datetime | None:
    return _moment(
        (((shown or {}).get("metadata") or {}).get("annotations") or {}).get(TERMINATION_TIMESTAMP)
    )


def _moment(text: object) -> datetime | None:
    """Read a time that people may have written; nonsense is none."""
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None
