"""The next commands for each ending claim, one step at a time, and when time alone lets it go on.

Each step can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.evictions import (
    Allowances,
    Drain,
    attached,
    drain,
    is_successor,
    last_moment,
    must_go,
    pressing_from,
    protected_until,
)
from nodesmith.decisions.termination.waiting import (
    DELETION_DELAYED_AT_MOST,
    Waiting,
    awaiting_node,
    awaits_replacement,
    delayed_until,
    head_start,
    is_held_by_others,
    is_named,
    patient_until,
    replacement,
    why_not_gone,
)
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, EXCLUDE_FROM_LOAD_BALANCERS, TERMINATION_FINALIZER
from nodesmith.model.commands import (
    Advance,
    Close,
    DeletePods,
    Evict,
    Release,
    TerminateInstances,
    TerminationCommand,
    Wait,
)
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import DEADLINE_PASSED, NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.kubernetes.nodes import Node, NodePatch
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.learned import DrainTime
from nodesmith.model.snapshot import Snapshot

SHORTEST_DRAIN = timedelta(seconds=5)
"""The time for load balancers and kube-scheduler to notice the taint (Karpenter's MinDrainTime)."""
LAUNCH_MAY_STILL_COME = timedelta(seconds=75)
"""How long a function may still be launching a claim: its lease."""
SHOWN_AFTER = timedelta(minutes=1)
"""The age from which EC2 describes every instance: its API is eventually consistent."""
_OVER = frozenset(cause for cause in InterruptionCause if cause.is_over)
_FAR = datetime.max.replace(tzinfo=UTC)


def to_check(claims: Iterable[NodeClaim], snapshot: Snapshot) -> list[str]:
    """Return the names of the ending claims whose instance may have stopped, so that EC2 must be asked.

    An instance that is known to be gone is not checked again.
    """
    running = {node.provider_id for node in snapshot.nodes if node.is_ready}
    return sorted(
        claim.name
        for claim in claims
        if claim.is_ending
        and claim.instance_gone_at is None
        and (claim.phase is Phase.TERMINATED or claim.cause in _OVER or claim.provider_id not in running)
    )


def next_steps(
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    instances: Mapping[str, tuple[Instance, ...]],
    checked: Iterable[str],
    now: datetime,
    denied: Collection[str] = (),
    drain_times: Mapping[str, DrainTime] = FrozenMap(),
) -> list[TerminationCommand]:
    """Return the commands to carry out, in order: all commands of one claim before those of the next claim.

    PodDisruptionBudgets are used first for the node with the earliest deadline, then for the one that began to end
    first, so that nodes become empty one after the other. `instances` are those found for the claims in `checked`,
    `denied` are pods whose eviction a webhook has denied lately, and `drain_times` are known by NodePool.
    """
    allowances, looked_at = Allowances(snapshot.budgets), frozenset(checked)
    views = _views(claims, snapshot)
    ending = sorted(
        (claim for claim in claims if claim.is_ending),
        key=lambda c: (c.deadline or _FAR, c.terminating_at or c.phase_since, c.name),
    )
    commands: list[TerminationCommand] = []
    for claim in ending:
        own_instances = instances.get(claim.name, ()) if claim.name in looked_at else None
        view = views[claim.name]
        patient = awaits_replacement(claim, view.node, view.pods, claims, now)
        drain_time = drain_times.get(claim.nodepool)
        usual = drain_time.left(now) if drain_time else timedelta(0)
        commands += _steps(view, own_instances, snapshot, allowances, now, denied, usual, patient=patient)
    return commands


@dataclass(frozen=True, slots=True)
class _View:
    """One claim and what the cluster shows of it."""

    claim: NodeClaim
    node: Node | None
    shown: Mapping[str, Any] | None
    pods: tuple[Pod, ...]


def _views(claims: Iterable[NodeClaim], snapshot: Snapshot) -> dict[str, _View]:
    objects = snapshot.shown_nodeclaims()
    ending = [(claim, snapshot.node_of(claim)) for claim in claims if claim.is_ending]
    views = {}
    for claim, node in ending:
        begun = claim.terminating_at or claim.phase_since
        on_node = snapshot.pods_on(node.name) if node else ()
        pods = tuple(pod for pod in on_node if not is_successor(pod, begun))
        views[claim.name] = _View(claim, node, objects.get(claim.name), pods)
    return views


def _steps(
    view: _View,
    instances: tuple[Instance, ...] | None,
    snapshot: Snapshot,
    allowances: Allowances,
    now: datetime,
    denied: Collection[str],
    usual: timedelta,
    *,
    patient: bool,
) -> list[TerminationCommand]:
    claim, node = view.claim, view.node
    if claim.instance_gone_at is None and instances is not None and _is_gone(claim, instances, now):
        claim = _with_end_time(replace(claim, instance_gone_at=now), instances, now)
    if claim.instance_gone_at is not None:
        return [*_deletion_of_dead_pods(view), *_release_steps(claim, node)]
    if claim.phase is Phase.TERMINATED:
        # EC2 did not know the instance yet when its termination was requested.
        running = tuple(sorted(i.id for i in instances or () if i.is_alive))
        return [TerminateInstances(claim, running)] if running else []
    deadline = deadline_of(claim, view.shown, now)
    commands: list[TerminationCommand] = [] if _is_closed(view) else [Close(claim, node.name if node else "")]
    draining = Drain()
    if claim.phase is Phase.TERMINATING:
        draining = drain(
            view.pods,
            allowances,
            deadline,
            now,
            patient=patient,
            denied=denied,
            usual=usual,
            head_start=head_start(claim),
        )
    if node and draining.evict:
        evicted = (PodOnNode(p.key, node.name, budget=allowances.budget(p)) for p in draining.evict)
        commands.append(Evict(claim, tuple(evicted)))
    if node and draining.delete:
        commands.append(DeletePods(claim, tuple(PodOnNode(p.key, node.name, s) for p, s in draining.delete)))
    onward = _advanced(replace(claim, deadline=deadline), view, draining, snapshot, now)
    if onward.phase is Phase.TERMINATED:
        alive = tuple(sorted({claim.instance_id, *(i.id for i in instances or () if i.is_alive)} - {""}))
        return [*commands, TerminateInstances(_with_end_time(onward, instances or (), now), alive)]
    if onward.phase is not claim.phase:
        commands.append(Advance(onward))
    elif not (draining.evict or draining.delete):
        # While pods go, the reason for waiting need not be recorded.
        waiting = (
            replacement(onward) if patient else why_not_gone(onward, snapshot, now, allowances, draining.left)
        )
        commands += _wait(waiting, onward)
    return commands


def _release_steps(claim: NodeClaim, node: Node | None) -> Sequence[Release | Wait]:
    """Return the command that releases a claim without an instance, or one that records what holds its Node.

    If the snapshot no longer shows the Node, the claim's node name is used: the claim is released after its Node.
    """
    if node is not None and is_held_by_others(node):
        return _wait(awaiting_node(claim, node.name, node.finalizers), claim)
    return [Release(claim, node.name if node is not None else claim.node_name)]


def _deletion_of_dead_pods(view: _View) -> list[DeletePods]:
    """Return the deletion of pods that died with their instance, so that their replacements start early."""
    dead = [pod for pod in view.pods if must_go(pod.shape) and not pod.deleting]
    if view.node is None or not dead:
        return []
    return [DeletePods(view.claim, tuple(PodOnNode(pod.key, view.node.name, 0) for pod in dead))]


def _wait(waiting: Waiting | None, claim: NodeClaim) -> list[Wait]:
    if waiting is None or (waiting.reason == claim.reason and is_named(waiting, claim.message)):
        return []
    return [Wait(replace(claim, reason=waiting.reason, message=waiting.message))]


def _is_gone(claim: NodeClaim, instances: Sequence[Instance], now: datetime) -> bool:
    """Return whether a claim has no instance any more. EC2 does not describe an instance right after its launch."""
    if not instances and claim.instance_id and now - (claim.launched_at or claim.created_at) < SHOWN_AFTER:
        return False
    return all(i.state == "terminated" for i in instances) and _is_settled(claim, now)


def _with_end_time(claim: NodeClaim, instances: Iterable[Instance], now: datetime) -> NodeClaim:
    """Return the claim with EC2's time of its instance's end, if that is before the time that the claim has.

    It is if EC2 took the instance, or if a function died between its call to EC2 and the record.
    """
    is_stopped = (
        claim.cause == InterruptionCause.STOPPED
    )  # otherwise a stopped instance is warm capacity and costs on
    ended = (i for i in instances if i.id == claim.instance_id and (is_stopped or not i.is_alive))
    since = next((i.state_since for i in ended if i.state_since is not None), None)
    if since is None:
        return claim
    return replace(
        claim, terminated_at=max(claim.launched_at or since, min(since, claim.terminated_at or now))
    )


def _is_settled(claim: NodeClaim, now: datetime) -> bool:
    """Return whether no pending launch can still create an instance for the claim."""
    return bool(claim.instance_id) or now - (claim.terminating_at or now) >= LAUNCH_MAY_STILL_COME


def _is_closed(view: _View) -> bool:
    marked = view.shown is None or bool(view.shown["metadata"].get("deletionTimestamp"))
    node = view.node
    return marked and (
        node is None
        or (node.deleting and DISRUPTED in node.taints and EXCLUDE_FROM_LOAD_BALANCERS in node.labels)
    )


def _advanced(claim: NodeClaim, view: _View, draining: Drain, snapshot: Snapshot, now: datetime) -> NodeClaim:
    """Return the claim advanced as many phases as possible."""
    is_late = claim.deadline is not None and now >= claim.deadline
    begun = claim.terminating_at or claim.phase_since
    if claim.phase is Phase.TERMINATING:
        is_draining = draining.left or now - begun < SHORTEST_DRAIN or not _is_seen_tainted(view.node)
        if view.node is not None and is_draining and not is_late:
            return claim
        claim = claim.advanced(Phase.DRAINED, now, *_cut_short(len(draining.left), "pods"))
    if claim.phase is Phase.DRAINED:
        volumes = attached(view.node.name, snapshot) if view.node is not None else []
        if volumes and not is_late:
            return claim
        claim = claim.advanced(Phase.DETACHED, now, *_cut_short(len(volumes), "volumes"))
    if not claim.instance_id and not _is_settled(claim, now):
        return claim
    if not is_late and delayed_until(claim, view.node, now) is not None:
        return claim
    return claim.advanced(Phase.TERMINATED, now)


def _cut_short(left: int, subject: str) -> tuple[str, ...]:
    """Return the reason and message for what a phase left undone at the deadline, empty if everything is done."""
    return (DEADLINE_PASSED, f"{subject} left at the deadline: {left}") if left else ()


def _is_seen_tainted(node: Node | None) -> bool:
    """Return whether the snapshot is newer than the taint.

    Only then does it contain the node's last pods and volumes.
    """
    return node is not None and any(taint.identity == DISRUPTED.identity for taint in node.taints)


def closing_patch(claim: NodeClaim) -> NodePatch:
    """Return the patch that keeps new pods and load balancers off a Node, and keeps its object until its release."""
    return NodePatch(
        labels={EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"},
        add_taints=(DISRUPTED,),
        add_finalizers=(TERMINATION_FINALIZER,),
        provider_id=claim.provider_id,
    )


def next_change(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    now: datetime,
    drain_times: Mapping[str, DrainTime] = FrozenMap(),
) -> datetime | None:
    """Return when time alone first lets a termination go on after `now`; None if only events can change anything.

    Such moments are the end of a wait for a replacement or for other controllers, the end of a pod's
    `karpenter.sh/do-not-disrupt` duration, a deadline, and the last moments before it that leave pods their grace.
    """
    manifests = snapshot.shown_nodeclaims()
    ending = [
        replace(claim, deadline=deadline_of(claim, manifests.get(claim.name), now))
        for claim in claims
        if claim.is_ending
    ]
    draining = {
        node.name: claim
        for claim in ending
        if claim.phase is Phase.TERMINATING and (node := snapshot.node_of(claim)) is not None
    }
    moments = [moment for claim in ending for moment in _of_claim(claim)]
    for name, claim in draining.items():
        drain_time = drain_times.get(claim.nodepool)
        usual = drain_time.left(now) if drain_time else timedelta(0)
        for pod in snapshot.pods_on(name):
            if not pod.deleting and must_go(pod.shape):
                moments += _of_pod(pod, claim, usual)
    return min((moment for moment in moments if moment > now), default=None)


def _of_claim(claim: NodeClaim) -> Iterator[datetime]:
    if claim.phase is Phase.TERMINATING:
        yield from patient_until(claim)
    if claim.phase is Phase.DETACHED:
        yield claim.phase_since + DELETION_DELAYED_AT_MOST
    if claim.phase is not Phase.TERMINATED and claim.deadline is not None:
        yield claim.deadline


def _of_pod(pod: Pod, claim: NodeClaim, usual: timedelta) -> Iterator[datetime]:
    protected = protected_until(pod)
    if protected is not None:
        yield protected
    if claim.deadline is not None:
        yield pressing_from(pod, claim.deadline, usual, head_start(claim))
        yield last_moment(pod, claim.deadline, head_start(claim))
