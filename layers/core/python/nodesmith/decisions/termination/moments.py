"""When time alone lets the end of a node go on, so that somebody looks then and not at the next tick."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nodesmith.decisions.termination.draining import must_go
from nodesmith.decisions.termination.protection import protected_until
from nodesmith.decisions.termination.replacing import patient_until
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.snapshot import Snapshot


def next_change(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return the first such moment after `now`; None where only events can change anything.

    Such moments are the end of a wait for a replacement, and of a pod's `karpenter.sh/do-not-disrupt` duration.
    """
    draining = [claim for claim in claims if claim.phase is Phase.TERMINATING]
    nodes = {node.name for claim in draining if (node := snapshot.node_of(claim)) is not None}
    held = (p for p in snapshot.pods if p.node in nodes and not p.deleting and must_go(p.shape))
    ends = (end for pod in held if (end := protected_until(pod)) is not None)
    waits = (moment for claim in draining for moment in patient_until(claim))
    return min((moment for moment in (*waits, *ends) if moment > now), default=None)
