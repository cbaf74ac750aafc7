"""The claims that begin to terminate: their NodeClaim or Node was deleted, or their Node is lost.

A Node is lost if it is gone while its instance still runs: the instance serves no pods, but is paid for. A kubelet
creates its Node only when it starts. The Node is missing if somebody removed its finalizers and deleted it, if the
cluster was restored from a backup, or if the cluster was deleted and created again under its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.decisions.budgets import allowed
from nodesmith.model.apimachinery.labels import TERMINATION_TIMESTAMP
from nodesmith.model.apimachinery.times import duration_seconds, parse_time
from nodesmith.model.commands import End, EndClaim
from nodesmith.model.karpenter.nodeclaimobjects import DELETED
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def to_end(claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> list[End]:
    """Return the terminations that begin now, in order of claim name."""
    objects = snapshot.shown_nodeclaims()
    pace = _Pace(claims, snapshot, now)
    ends = []
    for claim in sorted(claims, key=lambda c: c.name):
        if claim.is_ending or claim.phase is Phase.GIVEN_UP:
            continue
        node = snapshot.node_of(claim)
        reason = _deletion_reason(claim, objects.get(claim.name), node)
        if not reason:
            continue
        deadline = deadline_of(claim, objects.get(claim.name), now)
        hurried = (node is not None and node.deleting) or (deadline is not None and deadline <= now)
        if hurried or pace.allows(claim):
            ends.append(End(claim.terminating(DELETED, reason, now, deadline)))
    return ends


def to_end_later(claims: Sequence[NodeClaim], snapshot: Snapshot) -> bool:
    """Return whether budgets still keep a claim from ending after it or its Node was deleted."""
    objects = snapshot.shown_nodeclaims()
    serving = (claim for claim in claims if not claim.is_ending and claim.phase is not Phase.GIVEN_UP)
    return any(_deletion_reason(claim, objects.get(claim.name), snapshot.node_of(claim)) for claim in serving)


class _Pace:
    """Limits how many nodes end at once after their NodePool was deleted, since that deletes all its NodeClaims.

    The NodePool's budgets continue to apply. If they allow none, nodes still end, one at a time.
    """

    def __init__(self, claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> None:
        self._pools = {
            str((m.get("metadata") or {}).get("name")) for m in snapshot.nodepools if not _deleted_at(m)
        }
        self._nodes = Counter(
            c.nodepool for c in claims if c.phase is not Phase.GIVEN_UP and not c.is_instance_terminating
        )
        self._ending = Counter(claim.nodepool for claim in claims if claim.is_ending)
        self._now = now

    def allows(self, claim: NodeClaim) -> bool:
        """Return whether a deleted claim may end now; if so, count it."""
        pool = claim.nodepool
        if pool in self._pools or not claim.instance_id:
            return True
        allowance = allowed(claim.budgets, DELETED, self._nodes[pool], self._ending[pool], self._now)
        if allowance == 0 and self._ending[pool]:
            return False
        self._ending[pool] += 1
        return True


def _deletion_reason(claim: NodeClaim, manifest: Mapping[str, Any] | None, node: Node | None) -> str:
    if manifest is not None and manifest["metadata"].get("deletionTimestamp"):
        return f"NodeClaim {claim.name} was deleted"
    if node is not None and node.deleting:
        return f"Node {node.name} was deleted"
    return ""


_LONG_AGO, _FAR_AHEAD = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Deadlines stay within these times, because grace periods are subtracted from them, and an overshoot is added."""


def deadline_of(claim: NodeClaim, manifest: Mapping[str, Any] | None, now: datetime) -> datetime | None:
    """Return the latest time at which the instance is terminated, or None for no deadline.

    This is the NodePool's terminationGracePeriod after the deletion. The annotation
    `karpenter.sh/nodeclaim-termination-timestamp` on the NodeClaim may set an earlier time.
    """
    grace = duration_seconds(claim.termination_grace_period)
    deleted = _deleted_at(manifest) or claim.terminating_at or now
    candidates = [
        claim.deadline,
        _annotated(manifest),
        deleted + timedelta(seconds=grace) if grace is not None else None,
    ]
    deadline = min((moment for moment in candidates if moment is not None), default=None)
    return None if deadline is None else min(max(deadline, _LONG_AGO), _FAR_AHEAD)


def _deleted_at(manifest: Mapping[str, Any] | None) -> datetime | None:
    return _moment(((manifest or {}).get("metadata") or {}).get("deletionTimestamp"))


def _annotated(manifest: Mapping[str, Any] | None) -> datetime | None:
    return _moment(
        (((manifest or {}).get("metadata") or {}).get("annotations") or {}).get(TERMINATION_TIMESTAMP)
    )


def _moment(text: object) -> datetime | None:
    """Return a time that a user may have written, or None if it is invalid."""
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None


LOST = timedelta(minutes=30)
"""How long a Node must be seen missing. Repair tolerates a silent kubelet for as long."""
_JOINED = frozenset({Phase.REGISTERED, Phase.INITIALIZED})


def without_node(snapshot: Snapshot, ledger: Ledger) -> list[NodeClaim]:
    """Return the claims that have joined but have no Node, in order of name.

    A Node with a name that the instance cannot have also counts, since pods may run there. So does a restored Node,
    which has no provider id.
    """
    names = {node.name for node in snapshot.nodes if not node.provider_id}
    claims = (
        claim
        for claim in ledger.claims
        if claim.phase in _JOINED
        and claim.node_name not in names
        and not snapshot.nodes_of(claim)
        and not snapshot.impostors_of(claim)
    )
    return sorted(claims, key=lambda claim: claim.name)


def still_lost(
    before: Mapping[str, datetime], snapshot: Snapshot, ledger: Ledger, now: datetime
) -> dict[str, datetime]:
    """Return, by key, since when each claim has been seen without a Node. Kubernetes does not record this time."""
    return {_key(claim): before.get(_key(claim), now) for claim in without_node(snapshot, ledger)}


def lost_long(ledger: Ledger, since: Mapping[str, datetime], now: datetime) -> list[NodeClaim]:
    """Return the claims that have had no Node for long enough, in order of name. `since` comes from `still_lost`."""
    claims = (claim for claim in ledger.claims if now - since.get(_key(claim), now) >= LOST)
    return sorted(claims, key=lambda claim: claim.name)


def lost_claims(
    ledger: Ledger, lost: Collection[str], alive: Collection[str], now: datetime
) -> Iterator[EndClaim]:
    """Yield ends for the claims in `lost` with a running instance. Lifecycle ends claims with no instance."""
    for claim in sorted(ledger.claims, key=lambda c: c.name):
        if claim.name in lost and claim.instance_id in alive:
            message = (
                f"Node {claim.node_name} is gone from the cluster, and instance {claim.instance_id} runs"
            )
            yield EndClaim(claim.terminating("NodeNotFound", message, now))


def _key(claim: NodeClaim) -> str:
    return f"NodeClaim/{claim.name}"
