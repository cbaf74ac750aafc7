"""The costs of interruptions: how long it took until nodes were replaced and empty, and how many pods were killed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodesmith.decisions.termination.evictions import must_go
from nodesmith.decisions.termination.waiting import WARNED
from nodesmith.model.commands import Advance, DeletePods, Release, TerminateInstances, TerminationCommand
from nodesmith.model.ec2.notices import WARNING, Fate
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot

_TWO_MINUTES = frozenset({Fate.SPOT, Fate.RESERVATION})
"""Notices that come two minutes before the deadline. For others, the time at which nodesmith read the notice counts."""


@dataclass(frozen=True, slots=True)
class InterruptionCosts:
    """The costs in one look: seconds since the notice, for each node that has just become empty.

    They are counted until its replacements were `launched` and `ready`, if any were bought, and until it was `drained`.
    `killed` is the number of pods that did not get their full grace period although EC2 had given notice.
    """

    launched: tuple[float, ...] = ()
    ready: tuple[float, ...] = ()
    drained: tuple[float, ...] = ()
    killed: int = 0


def interruption_costs(
    commands: Iterable[TerminationCommand], claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime
) -> InterruptionCosts:
    """Return the costs of interruptions that the commands of one look show."""
    pods = {pod.key: pod for pod in snapshot.pods}
    launched: list[float] = []
    ready: list[float] = []
    drained: list[float] = []
    killed = 0
    for command in commands:
        claim = command.claim
        if claim.cause not in WARNED:
            continue
        match command:
            case DeletePods():
                killed += sum(_is_cut_short(pods.get(each.pod), each.grace_seconds) for each in command.pods)
            case Release() if claim.instance_gone_at == now:
                killed += sum(
                    _dies(pod, now) for pod in snapshot.pods if pod.node and pod.node == command.node
                )
            case Advance() | TerminateInstances() if claim.drained_at == now:
                noticed, plan = noticed_at(claim, now), _bought_for(claim, claims)
                drained.append((now - noticed).total_seconds())
                launched += _last((each.launched_at for each in plan), noticed)
                ready += _last((each.initialized_at for each in plan), noticed)
            case _:
                pass
    return InterruptionCosts(tuple(launched), tuple(ready), tuple(drained), killed)


def noticed_at(claim: NodeClaim, now: datetime) -> datetime:
    """Return when EC2 gave notice of a claim's interruption, as far as is known.

    A past deadline is not used, since it may be the moment at which the instance was gone.
    """
    heard = claim.terminating_at or claim.phase_since
    if claim.cause in _TWO_MINUTES and claim.deadline is not None and claim.deadline > now:
        return min(heard, claim.deadline - WARNING)
    return heard


def displaced(claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return since when pods may be without a node because EC2 takes theirs, None if it takes none."""
    return min((noticed_at(c, now) for c in claims if c.is_ending and c.cause in WARNED), default=None)


def waiting_since(moment: datetime, pods: Iterable[Pod]) -> int:
    """Return the number of pods without a node that were created at or after `moment`."""
    return sum(
        not pod.node and not pod.deleting and not pod.shape.is_daemon and pod.created_at >= moment
        for pod in pods
    )


def _bought_for(claim: NodeClaim, claims: Iterable[NodeClaim]) -> list[NodeClaim]:
    """Return the claims that the first decision after the notice has bought."""
    since = claim.terminating_at or claim.phase_since
    later = sorted((c for c in claims if c.created_at >= since), key=lambda c: (c.created_at, c.name))
    return [c for c in later if c.decision == later[0].decision]


def _last(moments: Iterable[datetime | None], since: datetime) -> list[float]:
    """Return the seconds from `since` to the last of `moments`; empty if one is None, or if there are none."""
    known = list(moments)
    reached = [at for at in known if at is not None]
    return [(max(reached) - since).total_seconds()] if reached and len(reached) == len(known) else []


def _is_cut_short(pod: Pod | None, grace_seconds: int | None) -> bool:
    return pod is not None and grace_seconds is not None and grace_seconds < pod.shape.grace_seconds


def _dies(pod: Pod, now: datetime) -> bool:
    """Return whether a pod's grace period is not over when its instance is gone."""
    return must_go(pod.shape) and pod.deletion_at is not None and pod.deletion_at > now
