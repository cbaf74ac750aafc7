"""When time alone lets the termination of a node go on, so that a run looks at that moment instead of the next tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.draining import last_moment, must_go, pressing_from
from nodesmith.decisions.termination.protection import protected_until
from nodesmith.decisions.termination.replacing import head_start, patient_until
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.interruptions import DrainTime
from nodesmith.model.snapshot import Snapshot


def next_change(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    now: datetime,
    drain_times: Mapping[str, DrainTime] = FrozenMap(),
) -> datetime | None:
    """Return the first such moment after `now`, None if only events can change anything.

    Such moments are the end of a wait for a replacement, the end of a pod's `karpenter.sh/do-not-disrupt` duration, a
    deadline, and the last moments before it that leave pods their grace.
    """
    shown = snapshot.shown_nodeclaims()
    ending = [
        replace(claim, deadline=deadline_of(claim, shown.get(claim.name), now))
        for claim in claims
        if claim.is_ending
    ]
    draining = {
        node.name: claim
        for claim in ending
        if claim.phase is Phase.TERMINATING and (node := snapshot.node_of(claim)) is not None
    }
    moments = [moment for claim in ending for moment in _of_claim(claim)]
    for pod in snapshot.pods:
        claim = draining.get(pod.node)
        if claim is not None and not pod.deleting and must_go(pod.shape):
            drain_time = drain_times.get(claim.nodepool)
            moments += _of_pod(pod, claim, drain_time.left(now) if drain_time else timedelta(0))
    return min((moment for moment in moments if moment > now), default=None)


def _of_claim(claim: NodeClaim) -> Iterator[datetime]:
    if claim.phase is Phase.TERMINATING:
        yield from patient_until(claim)
    if claim.phase is not Phase.TERMINATED and claim.deadline is not None:
        yield claim.deadline


def _of_pod(pod: Pod, claim: NodeClaim, usual: timedelta) -> Iterator[datetime]:
    protected = protected_until(pod)
    if protected is not None:
        yield protected
    if claim.deadline is not None:
        yield pressing_from(pod, claim.deadline, usual, head_start(claim))
        yield last_moment(pod, claim.deadline, head_start(claim))
