"""Why an ending node is not gone yet: the one thing it waits for, with the message that Events and the CLI share.

One such thing is its replacement. Provisioning buys for the pods of a node as soon as its termination begins. If
nodesmith chose to terminate it and it is still Ready, the pods are evicted only when the nodes bought for them are
ready, or if none were bought. `obstacles` foresees, before a termination begins, what it would wait for until a user
intervenes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.termination.evictions import (
    Allowances,
    attached,
    is_stuck,
    is_successor,
    must_go,
    refuses_disruption,
    tier,
)
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT, TERMINATION_FINALIZER
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaimobjects import DRAINING
from nodesmith.model.karpenter.nodeclaims import COMING, NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.snapshot import Snapshot

VOLUMES = "AwaitingVolumeDetachment"
AWAITING_REPLACEMENT = "AwaitingReplacement"
AWAITING_NODE = "AwaitingNodeDeletion"
"""The reason if the instance is gone, but finalizers of other controllers hold the Node."""
DELETION_DELAYED = "DeletionDelayed"
"""The reason if the node is drained, but annotations of other controllers delay its end."""
DELETION_DELAYED_AT_MOST = timedelta(minutes=2)
"""How long annotations delay the end of a drained node: Cluster Autoscaler's default."""
_TEMPORARY = frozenset({DRAINING, AWAITING_REPLACEMENT})


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a claim's termination waits for. `on` is the object as `Kind/name`; `fix` is a remedy, empty for none."""

    reason: str
    message: str
    on: str
    since: datetime
    fix: str = ""


def is_named(waiting: Waiting, message: str) -> bool:
    """Return whether a message already names what is waited for, so that a change of its figures is not worth a write.

    The pods that are leaving differ with every look.
    """
    if waiting.reason == AWAITING_NODE:
        return waiting.message == message
    name = waiting.on.partition("/")[2]
    return waiting.reason in _TEMPORARY or re.search(f" {re.escape(name)}[ :]", message) is not None


def why_not_gone(
    claim: NodeClaim,
    snapshot: Snapshot,
    now: datetime,
    allowances: Allowances | None = None,
    pods: Sequence[Pod] | None = None,
) -> Waiting | None:
    """Return what an ending claim waits for, None if it is not ending or goes on at the next look.

    `allowances` are what nodes ahead of it have left of the snapshot's budgets; without them, everything counts. `pods`
    are the pods that must still go, if that is known already.
    """
    node = snapshot.node_of(claim)
    if node is not None and claim.is_instance_terminating and is_held_by_others(node):
        return awaiting_node(claim, node.name, node.finalizers)
    match claim.phase:
        case Phase.TERMINATING:
            pods = _remaining_pods(claim, snapshot, now) if pods is None else pods
            return _drain(claim, pods, now, allowances or Allowances(snapshot.budgets))
        case Phase.DRAINED:
            return _volumes(claim, snapshot)
        case Phase.DETACHED:
            return _delayed(claim, node, now)
        case Phase.TERMINATED:
            message = f"EC2 is shutting down instance {claim.instance_id}"
            return Waiting("InstanceTerminating", message, f"Instance/{claim.instance_id}", claim.phase_since)
        case _:
            return None


def delayed_until(claim: NodeClaim, node: Node | None, now: datetime) -> datetime | None:
    """Return until when annotations of other controllers delay the end of a drained node; None if they do not."""
    if node is None or not node.deletion_delays:
        return None
    until = claim.phase_since + DELETION_DELAYED_AT_MOST
    return until if now < until else None


def _delayed(claim: NodeClaim, node: Node | None, now: datetime) -> Waiting | None:
    until = delayed_until(claim, node, now)
    if node is None or until is None:
        return None
    keys = node.deletion_delays
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    message = f"Node {node.name} is annotated {keys[0]}{more}: its instance ends by {until:%H:%M:%S} UTC at the latest"
    fix = "the controller that set the annotation removes it when it has finished"
    return Waiting(DELETION_DELAYED, message, f"Node/{node.name}", claim.phase_since, fix)


def is_held_by_others(node: Node) -> bool:
    """Return whether a Node is being deleted and held only by finalizers of other controllers."""
    return node.deleting and bool(node.finalizers) and TERMINATION_FINALIZER not in node.finalizers


def awaiting_node(claim: NodeClaim, node: str, finalizers: Sequence[str]) -> Waiting:
    """Return which finalizers of other controllers hold the Node of a claim whose instance is gone."""
    since = claim.instance_gone_at or claim.phase_since
    several, names = len(finalizers) > 1, " and ".join(finalizers)
    held_by = (
        f"finalizers {names} of other controllers" if several else f"finalizer {names} of another controller"
    )
    fix = "the controller removes it when it has finished; if the controller is gone, remove it by hand"
    return Waiting(AWAITING_NODE, f"Node {node} is held by {held_by}", f"Node/{node}", since, fix)


def _volumes(claim: NodeClaim, snapshot: Snapshot) -> Waiting | None:
    volumes = attached(_node_name(claim, snapshot), snapshot)
    if not volumes:
        return None
    suffix = f" and {len(volumes) - 1} more" if len(volumes) > 1 else ""
    return Waiting(
        VOLUMES,
        f"volume {volumes[0]}{suffix} is still attached",
        f"PersistentVolume/{volumes[0]}",
        claim.phase_since,
        "wait some minutes; then check the CSI driver's controller",
    )


def _remaining_pods(claim: NodeClaim, snapshot: Snapshot, now: datetime) -> list[Pod]:
    name, begun = _node_name(claim, snapshot), claim.terminating_at or claim.phase_since
    on_node = (pod for pod in snapshot.pods_on(name) if not is_successor(pod, begun))
    return [pod for pod in on_node if must_go(pod.shape) and not is_stuck(pod, now)]


def _drain(claim: NodeClaim, pods: Sequence[Pod], now: datetime, allowances: Allowances) -> Waiting | None:
    if not pods:
        return None
    current_tier = min(map(tier, pods))
    current = sorted((pod for pod in pods if tier(pod) == current_tier), key=lambda pod: pod.key)
    since = claim.terminating_at or claim.phase_since
    waiting = guarded(current, allowances, since) if not any(map(allowances.is_evictable, current)) else None
    return protected(current, since, now) or waiting or _ending(current, since)


def protected(pods: Iterable[Pod], since: datetime, now: datetime) -> Waiting | None:
    """Return the wait for the first of these pods that refuses disruption, None if none does."""
    refusing = [pod for pod in pods if not pod.deleting and refuses_disruption(pod, now)]
    if not refusing:
        return None
    value = refusing[0].shape.annotations[DO_NOT_DISRUPT]
    return Waiting(
        "DoNotDisrupt",
        f"pod {refusing[0].key}{_more(refusing)} is annotated {DO_NOT_DISRUPT}={value}",
        f"Pod/{refusing[0].key}",
        since,
        "delete the pod or the annotation, or let the pod finish",
    )


def guarded(pods: Iterable[Pod], allowances: Allowances, since: datetime) -> Waiting | None:
    """Return the wait for the budgets that allow none of these pods to go, None if one of them may go."""
    remaining = [pod for pod in pods if not pod.deleting]
    if not remaining or any(map(allowances.permits, remaining)):
        return None
    guards = allowances.guards(remaining[0].shape)
    pod = f"pod {remaining[0].key}{_more(remaining)}"
    if len(guards) > 1:
        names = " and ".join(budget.key for budget in guards)
        message = f"{pod} is guarded by {len(guards)} budgets, {names}: no eviction is allowed"
        return Waiting(
            "MultiplePodDisruptionBudgets",
            message,
            f"Pod/{remaining[0].key}",
            since,
            "let one PodDisruptionBudget select it",
        )
    budget = guards[0]
    detail = arithmetic(budget) + ("; used by nodes ahead of it" if budget.disruptions_allowed > 0 else "")
    message = f"{pod} is guarded by PodDisruptionBudget {budget.key}: {detail}"
    return Waiting("PodDisruptionBudget", message, f"PodDisruptionBudget/{budget.key}", since, _fix(budget))


def _fix(budget: PodDisruptionBudget) -> str:
    if budget.disruptions_allowed > 0:
        return "nothing: it follows the nodes ahead of it"
    return (
        "raise its maxUnavailable, or lower its minAvailable"
        if budget.never_allows
        else "its pods must become ready"
    )


def arithmetic(budget: PodDisruptionBudget) -> str:
    """Return how many evictions a budget allows, with the figures that explain it."""
    spec = (
        f"maxUnavailable {budget.max_unavailable}"
        if budget.max_unavailable
        else f"minAvailable {budget.min_available}"
    )
    count = (
        f"{budget.current_healthy} of {budget.expected_pods} healthy, {budget.desired_healthy} needed ({spec}), "
        f"{budget.disruptions_allowed} may go"
    )
    return count + ("; it never allows any" if budget.never_allows else "")


def _ending(pods: Iterable[Pod], since: datetime) -> Waiting:
    ending = sorted(
        (pod for pod in pods if pod.deletion_at is not None),
        key=lambda pod: (pod.deletion_at or since, pod.key),
    )
    if not ending:
        pods = sorted(pods, key=lambda pod: pod.key)
        return Waiting(
            DRAINING, f"pod {pods[0].key}{_more(pods)} will be evicted", f"Pod/{pods[0].key}", since
        )
    last = ending[-1]
    grace = last.shape.grace_seconds
    message = f"pod {last.key}{_more(ending)} is terminating, with a grace period of {grace} s"
    return Waiting(DRAINING, message, f"Pod/{last.key}", since)


def _more(pods: list[Pod]) -> str:
    return f" (and {len(pods) - 1} more)" if len(pods) > 1 else ""


def _node_name(claim: NodeClaim, snapshot: Snapshot) -> str:
    """Return the name of the claim's Node, found by its provider id: another Node may have its old name by now."""
    node = snapshot.node_of(claim)
    return node.name if node else ""


def obstacles(node: str, snapshot: Snapshot, now: datetime) -> list[Waiting]:
    """Return what the node's termination would wait for until a user intervenes, with the messages of that wait.

    Obstacles that may pass with time are left out: a budget that allows nothing now, a protection for some hours.
    """
    allowances = Allowances(snapshot.budgets)
    forever: list[Pod] = []
    by_guards: dict[tuple[str, ...], list[Pod]] = {}
    for pod in sorted(snapshot.pods_on(node), key=lambda pod: pod.key):
        if pod.deleting or not must_go(pod.shape):
            continue
        if pod.shape.annotations.get(DO_NOT_DISRUPT) == "true":
            forever.append(pod)
        guards = allowances.guards(pod.shape)
        if len(guards) > 1 or any(budget.never_allows for budget in guards):
            by_guards.setdefault(tuple(budget.key for budget in guards), []).append(pod)
    candidates = [protected(forever, now, now)]
    candidates += [guarded(by_guards[keys], Allowances(snapshot.budgets), now) for keys in sorted(by_guards)]
    return [waiting for waiting in candidates if waiting is not None]


EXPIRED = "Expired"
UNHEALTHY = "Unhealthy"
CLOSED = "ScheduleClosed"
"""The cause of terminations outside the windows of a NodePool's schedule."""
WARNED = frozenset(cause for cause in InterruptionCause if not cause.is_over)
"""Causes that EC2 announces. The replacement is bought in the run that reads the notice."""
CHOSEN = frozenset({EXPIRED, UNHEALTHY, CLOSED, *Reason}) | WARNED
"""Causes that nodesmith chose and can postpone for a while, or that leave some time."""
FIRST_LOOK = timedelta(seconds=30)
"""The time within which provisioning decides whether the pods need a node."""
FIRST_LOOK_WARNED = timedelta(seconds=10)
LONGEST_WAIT = timedelta(minutes=10)
"""How long pods wait for a replacement: Karpenter's minimum."""
HEAD_START = timedelta(seconds=12)
"""How much sooner than its grace requires a pod is deleted if EC2 takes its instance and budgets have kept the pod: a
look may be delayed by the one before, and EC2 does not wait."""
_COMING = COMING | {Phase.GIVEN_UP}
"""Phases of claims that are not ready yet. For a claim that was given up, another one is bought within moments."""


def replacement(claim: NodeClaim) -> Waiting:
    """Return that an ending node waits for the nodes that were bought for its pods."""
    message = "its pods stay until the nodes bought for them are ready"
    return Waiting(AWAITING_REPLACEMENT, message, f"NodeClaim/{claim.name}", claim.phase_since)


def awaits_replacement(
    claim: NodeClaim, node: Node | None, pods: Iterable[Pod], claims: Collection[NodeClaim], now: datetime
) -> bool:
    """Return whether the pods of an ending node must stay on it for now."""
    if claim.phase is not Phase.TERMINATING or claim.cause not in CHOSEN or now >= _longest(claim):
        return False
    if node is None or not node.is_ready:
        return False
    moving = {pod.key for pod in pods if must_go(pod.shape) and not pod.shape.is_daemon and not pod.deleting}
    if not moving:
        return False
    if any(c.phase in _COMING and not moving.isdisjoint(c.nominated) for c in claims):
        return True
    return now < _first_look(claim) and not _is_replaced(claim, moving, claims)


def patient_until(claim: NodeClaim) -> tuple[datetime, ...]:
    """Return the moments at which the wait of a claim's pods for their replacement may end."""
    return (_first_look(claim), _longest(claim)) if claim.cause in CHOSEN else ()


def head_start(claim: NodeClaim) -> timedelta:
    """Return how much sooner the pods of a node are deleted than their grace until its deadline requires."""
    return HEAD_START if claim.cause in WARNED else timedelta(0)


def _first_look(claim: NodeClaim) -> datetime:
    wait = FIRST_LOOK_WARNED if claim.cause in WARNED else FIRST_LOOK
    return (claim.terminating_at or claim.phase_since) + wait


def _longest(claim: NodeClaim) -> datetime:
    return (claim.terminating_at or claim.phase_since) + LONGEST_WAIT


def _is_replaced(claim: NodeClaim, moving: Collection[str], claims: Iterable[NodeClaim]) -> bool:
    """Return whether the replacements of the node are ready: those of its move, or a node bought or started since it
    began to end.

    Older nodes do not count: a pod may run on a different node than the one that was once bought for it.
    """
    begun = claim.terminating_at or claim.phase_since
    ready = [c for c in claims if c.phase is Phase.INITIALIZED]
    if claim.replaced_by:
        return set(claim.replaced_by) <= {c.name for c in ready}
    return any(c.bought_at >= begun and not set(c.nominated).isdisjoint(moving) for c in ready)
