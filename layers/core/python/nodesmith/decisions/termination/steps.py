"""What is to be done about each claim that ends, a step at a time; each step can be repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.draining import Drain, attached, drain, must_go
from nodesmith.decisions.termination.protection import Allowances
from nodesmith.decisions.termination.replacing import awaits_replacement, head_start, replacement
from nodesmith.decisions.termination.waiting import Waiting, awaiting_node, is_let_go, is_told, why_not_gone
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import EXCLUDE_FROM_LOAD_BALANCERS, TERMINATION_FINALIZER
from nodesmith.model.apimachinery.taints import DISRUPTED
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
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaims import DEADLINE_PASSED, NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.kubernetes.nodes import Node, NodePatch
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.draintimes import DrainTime
from nodesmith.model.snapshot import Snapshot

SHORTEST_DRAIN = timedelta(seconds=5)
"""Time for load balancers and kube-scheduler to hear of it (Karpenter's MinDrainTime)."""
LAUNCH_MAY_STILL_COME = timedelta(seconds=75)
"""As long as a function may still be at work on a claim that it is launching: its lease."""
SHOWN_AFTER = timedelta(minutes=1)
"""Age from which EC2 describes every instance: its API is eventually consistent."""
_OVER = frozenset(fate for fate in Fate if fate.is_over)
_FAR = datetime.max.replace(tzinfo=UTC)


def to_check(claims: Iterable[NodeClaim], snapshot: Snapshot) -> list[str]:
    """Name the ending claims whose instance is worth a call: EC2, or its Node, does not say that it runs.

    Of one that is gone nothing more is to be asked.
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
    """Return what is to be done, in order: all of one claim's commands before the next claim's.

    Budgets are spent on the node whose deadline, then whose end came first, so that nodes empty one after the other.
    `instances` are those found for the claims in `checked`, `denied` pods whose eviction a webhook has denied of late,
    `drain_times` what is known of NodePools' drains.
    """
    allowances, looked_at = Allowances(snapshot.budgets), frozenset(checked)
    views = _views(claims, snapshot)
    ending = sorted(
        (claim for claim in claims if claim.is_ending),
        key=lambda c: (c.deadline or _FAR, c.terminating_at or c.phase_since, c.name),
    )
    commands: list[TerminationCommand] = []
    for claim in ending:
        known = instances.get(claim.name, ()) if claim.name in looked_at else None
        view = views[claim.name]
        patient = awaits_replacement(claim, view.node, view.pods, claims, now)
        drain_time = drain_times.get(claim.nodepool)
        usual = drain_time.left(now) if drain_time else timedelta(0)
        commands += _steps(view, known, snapshot, allowances, now, denied, usual, patient=patient)
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
    pods: dict[str, list[Pod]] = {node.name: [] for _, node in ending if node}
    for pod in snapshot.pods:
        if pod.node in pods:
            pods[pod.node].append(pod)
    found = {}
    for claim, node in ending:
        found[claim.name] = _View(
            claim, node, objects.get(claim.name), tuple(pods.get(node.name, ()) if node else ())
        )
    return found


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
        claim = replace(claim, instance_gone_at=now)
    if claim.instance_gone_at is not None:
        return [*_last_words(view), *_letting_go(claim, node)]
    if claim.phase is Phase.TERMINATED:
        # EC2 did not know the instance yet when it was asked to terminate it.
        running = tuple(sorted(i.id for i in instances or () if i.is_alive))
        return [TerminateInstances(claim, running)] if running else []
    deadline = deadline_of(claim, view.shown, now)
    commands: list[TerminationCommand] = [] if _is_closed(view) else [Close(claim, node.name if node else "")]
    found = Drain()
    if claim.phase is Phase.TERMINATING:
        found = drain(
            view.pods,
            allowances,
            deadline,
            now,
            patient=patient,
            denied=denied,
            usual=usual,
            head_start=head_start(claim),
        )
    if node and found.evict:
        going = (PodOnNode(p.key, node.name, budget=allowances.budget(p)) for p in found.evict)
        commands.append(Evict(claim, tuple(going)))
    if node and found.delete:
        commands.append(DeletePods(claim, tuple(PodOnNode(p.key, node.name, s) for p, s in found.delete)))
    onward = _onward(replace(claim, deadline=deadline), view, found, snapshot, now)
    if onward.phase is Phase.TERMINATED:
        alive = tuple(sorted({claim.instance_id, *(i.id for i in instances or () if i.is_alive)} - {""}))
        return [*commands, TerminateInstances(onward, alive)]
    if onward.phase is not claim.phase:
        commands.append(Advance(onward))
    elif not (found.evict or found.delete):  # while pods go, there is no need to say why it waits
        waiting = (
            replacement(onward) if patient else why_not_gone(onward, snapshot, now, allowances, found.left)
        )
        commands += _wait(waiting, onward)
    return commands


def _letting_go(claim: NodeClaim, node: Node | None) -> Sequence[Release | Wait]:
    """Let go of what is left of a claim without an instance, or say what holds its Node.

    A Node that the snapshot does not show any more is looked for by its name: the claim outlives it.
    """
    if node is not None and is_let_go(node):
        return _wait(awaiting_node(claim, node.name, node.finalizers), claim)
    return [Release(claim, node.name if node is not None else claim.node_name)]


def _last_words(view: _View) -> list[DeletePods]:
    """Delete pods that died with their instance, so that others take their place before anybody misses them."""
    dead = [pod for pod in view.pods if must_go(pod.shape) and not pod.deleting]
    if view.node is None or not dead:
        return []
    return [DeletePods(view.claim, tuple(PodOnNode(pod.key, view.node.name, 0) for pod in dead))]


def _wait(waiting: Waiting | None, claim: NodeClaim) -> list[Wait]:
    if waiting is None or (waiting.reason == claim.reason and is_told(waiting, claim.message)):
        return []
    return [Wait(replace(claim, reason=waiting.reason, message=waiting.message))]


def _is_gone(claim: NodeClaim, instances: Sequence[Instance], now: datetime) -> bool:
    """Whether a claim has no instance any more. EC2 does not describe an instance at once after its launch."""
    if not instances and claim.instance_id and now - (claim.launched_at or claim.created_at) < SHOWN_AFTER:
        return False
    return all(i.state == "terminated" for i in instances) and _is_settled(claim, now)


def _is_settled(claim: NodeClaim, now: datetime) -> bool:
    """Return whether no launch can still bring an instance about that nobody has seen yet."""
    return bool(claim.instance_id) or now - (claim.terminating_at or now) >= LAUNCH_MAY_STILL_COME


def _is_closed(view: _View) -> bool:
    marked = view.shown is None or bool(view.shown["metadata"].get("deletionTimestamp"))
    node = view.node
    return marked and (
        node is None
        or (node.deleting and DISRUPTED in node.taints and EXCLUDE_FROM_LOAD_BALANCERS in node.labels)
    )


def _onward(claim: NodeClaim, view: _View, found: Drain, snapshot: Snapshot, now: datetime) -> NodeClaim:
    """Take the claim as far as nothing is in its way."""
    is_late = claim.deadline is not None and now >= claim.deadline
    begun = claim.terminating_at or claim.phase_since
    if claim.phase is Phase.TERMINATING:
        is_draining = found.left or now - begun < SHORTEST_DRAIN or not _is_seen_tainted(view.node)
        if view.node is not None and is_draining and not is_late:
            return claim
        claim = claim.advanced(Phase.DRAINED, now, *_cut_short(len(found.left), "pods"))
    if claim.phase is Phase.DRAINED:
        volumes = attached(view.node.name, snapshot) if view.node is not None else []
        if volumes and not is_late:
            return claim
        claim = claim.advanced(Phase.DETACHED, now, *_cut_short(len(volumes), "volumes"))
    if not claim.instance_id and not _is_settled(claim, now):
        return claim
    return claim.advanced(Phase.TERMINATED, now)


def _cut_short(left: int, what: str) -> tuple[str, ...]:
    """Return what a step has left undone because the deadline has come; nothing where all is done."""
    return (DEADLINE_PASSED, f"{what} left at the deadline: {left}") if left else ()


def _is_seen_tainted(node: Node | None) -> bool:
    """Return whether the snapshot is of later than the taint.

    Only then does it hold the node's last pods and volumes.
    """
    return node is not None and any(taint.identity == DISRUPTED.identity for taint in node.taints)


def closing_patch(claim: NodeClaim) -> NodePatch:
    """Return what keeps new pods and load balancers off a Node, and its object until we let go of it."""
    return NodePatch(
        labels={EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"},
        add_taints=(DISRUPTED,),
        add_finalizers=(TERMINATION_FINALIZER,),
        provider_id=claim.provider_id,
    )
