"""Lifecycle: launched, registered, initialized, or given up. What to do next for each claim, and why it waits.

Rules and time-outs are Karpenter's (its lifecycle controller): a node registers when it appears with the claim's
provider id, within 15 minutes; it is initialized when it is Ready, sheds its startup and ephemeral taints, and shows
every resource that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.nomination import to_nominate
from nodesmith.model import labels
from nodesmith.model.commands import (
    Command,
    End,
    Forget,
    GiveUp,
    Initialize,
    Nominate,
    Open,
    Register,
    Show,
    Wait,
)
from nodesmith.model.launches import Instance
from nodesmith.model.nodeclaimobjects import annotations_of, labels_of, manifest
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodes import Node, NodePatch
from nodesmith.model.snapshot import Snapshot
from nodesmith.model.taints import UNREGISTERED, is_ephemeral

REGISTRATION_TIMEOUT = timedelta(minutes=15)
INSTANCE_CHECK_AFTER = timedelta(minutes=1)
"""Age from which a claim without a Node has its instance looked at."""


def to_check(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> list[str]:
    """Name the claims whose Node should be there by now, or was: their instances are worth a call."""
    joined = {node.provider_id for node in snapshot.nodes}
    return sorted(
        claim.name
        for claim in claims
        if claim.phase in {Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED}
        and claim.provider_id not in joined
        and now - claim.phase_since >= INSTANCE_CHECK_AFTER
    )


def next_steps(
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    instances: Mapping[str, tuple[Instance, ...]],
    checked: Iterable[str],
    now: datetime,
) -> list[Command]:
    """Give what is to be done, in order; claims that are as they should be need nothing.

    First pods are nominated for their Nodes, of all claims, then Nodes are opened to all pods: kube-scheduler would
    put them onto whichever it sees first. After that comes the next step of each claim that has one, by claim name.
    `instances` are those found for the claims in `checked`.
    """
    by_provider: dict[str, list[Node]] = {}
    for node in snapshot.nodes:
        by_provider.setdefault(node.provider_id, []).append(node)
    shown = {str((m.get("metadata") or {}).get("name")): m for m in snapshot.nodeclaims}
    looked_at = frozenset(checked)
    owners = {str((m.get("metadata") or {}).get("uid")) for m in snapshot.nodepools}
    unaware = to_nominate(claims, snapshot.pods, now)
    nominations: list[Command] = []
    openings: list[Command] = []
    commands: list[Command] = []
    for claim in (_owned(c, owners) for c in sorted(claims, key=lambda c: c.name)):
        nodes = by_provider.get(claim.provider_id, []) if claim.provider_id else []
        dead = claim.name in looked_at and not any(i.is_alive for i in instances.get(claim.name, ()))
        if len(nodes) == 1 and claim.node_name in {"", nodes[0].name} and claim.name in unaware:
            nominations.append(Nominate(claim, nodes[0].name, unaware[claim.name]))
        command = _next_step(claim, nodes, dead, now)
        if isinstance(command, Register):
            openings.append(Open(claim, nodes[0].name))
        if command is None and _is_stale(claim, shown.get(claim.name)) and not _is_last(claim, shown):
            command = Show(claim)
        if command is not None:
            commands.append(command)
    return nominations + openings + commands


def _owned(claim: NodeClaim, owners: set[str]) -> NodeClaim:
    """Let go of a NodePool that is gone: an object with such an owner would be collected as garbage at once."""
    return claim if claim.nodepool_uid in owners else replace(claim, nodepool_uid="")


def _next_step(claim: NodeClaim, nodes: Sequence[Node], dead: bool, now: datetime) -> Command | None:
    match claim.phase:
        case Phase.LAUNCHED:
            return _register(claim, nodes, dead, now)
        case Phase.REGISTERED | Phase.INITIALIZED if dead:
            gone = f"instance {claim.instance_id} has gone"
            return End(claim.terminating("InstanceTerminated", gone, now))
        case Phase.REGISTERED:
            return _initialize(claim, nodes, now)
        case Phase.GIVEN_UP:
            return Forget(claim)
        case Phase.PENDING | Phase.INITIALIZED:
            return None
        case Phase.TERMINATING | Phase.DRAINED | Phase.DETACHED | Phase.TERMINATED:
            return None  # termination's


def _register(claim: NodeClaim, nodes: Sequence[Node], dead: bool, now: datetime) -> Command | None:
    if len(nodes) > 1:
        return _wait(claim, *_multiple(claim, nodes))
    if nodes:
        registered = claim.advanced(Phase.REGISTERED, now)
        return Register(replace(registered, node_name=nodes[0].name))
    if dead:
        return _give_up(claim, "InstanceTerminated", f"instance {claim.instance_id} has gone", now)
    if now - claim.created_at >= REGISTRATION_TIMEOUT:
        why = f"no Node has registered within {REGISTRATION_TIMEOUT.seconds // 60} minutes"
        return _give_up(claim, "RegistrationTimeout", why, now)
    return _wait(claim, "NodeNotFound", "Node not registered with cluster")


def _initialize(claim: NodeClaim, nodes: Sequence[Node], now: datetime) -> Command | None:
    node = next((node for node in nodes if node.name == claim.node_name), None)
    if node is None:
        return _wait(claim, "NodeNotFound", f"Node {claim.node_name} is gone from the cluster")
    if len(nodes) > 1:
        return _wait(claim, *_multiple(claim, nodes))
    obstacle = _initialization_obstacle(claim, node)
    if obstacle is not None:
        return _wait(claim, *obstacle)
    initialized = claim.advanced(Phase.INITIALIZED, now)
    return Initialize(replace(initialized, capacity=node.capacity, allocatable=node.allocatable))


def _multiple(claim: NodeClaim, nodes: Iterable[Node]) -> tuple[str, str]:
    names = ", ".join(sorted(node.name for node in nodes))
    return "MultipleNodesFound", f"Nodes {names} have the providerID {claim.provider_id}"


def _initialization_obstacle(claim: NodeClaim, node: Node) -> tuple[str, str] | None:
    if not node.is_ready:
        return "NodeNotReady", f"Node {node.name} is not Ready"
    identities = {t.identity for t in node.taints}
    startup = next((t for t in claim.startup_taints if t.identity in identities), None)
    if startup is not None:
        return "StartupTaintsExist", f"startup taint {startup} is still on the Node"
    ephemeral = next((t for t in node.taints if is_ephemeral(t)), None)
    if ephemeral is not None:
        return "KnownEphemeralTaintsExist", f"taint {ephemeral} is still on the Node"
    missing = next(
        (n for n in sorted(claim.requests) if claim.requests[n] and not node.allocatable.of(n)), None
    )
    if missing is not None:
        return "ResourceNotRegistered", f"the Node does not show the resource {missing} yet"
    return None


def _give_up(claim: NodeClaim, reason: str, message: str, now: datetime) -> GiveUp:
    return GiveUp(claim.given_up(reason, message, now))


def _wait(claim: NodeClaim, reason: str, message: str) -> Wait | None:
    """Note why the claim waits, once."""
    if (claim.reason, claim.message) == (reason, message):
        return None
    return Wait(replace(claim, reason=reason, message=message))


def _is_last(claim: NodeClaim, shown: Mapping[str, object]) -> bool:
    """Tell whether a claim ends and its object is gone: nobody needs to see it again."""
    return claim.is_ending and claim.name not in shown


def _is_stale(claim: NodeClaim, shown: Mapping[str, object] | None) -> bool:
    """Tell whether the NodeClaim object does not say what the ledger says."""
    return shown is None or _conditions(shown) != _conditions(manifest(claim))


def _conditions(obj: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return {
        str(c.get("type")): (str(c.get("status")), str(c.get("reason")))
        for c in conditions or ()
        if isinstance(c, Mapping)
    }


def registration_patch(claim: NodeClaim, node: Node | None) -> NodePatch:
    """Give what registering puts on the Node: the claim's labels, annotations and taints; `unregistered` goes.

    A Node labelled `karpenter.sh/do-not-sync-taints=true` has its taints from the kubelet already.
    """
    synced = node is not None and node.labels.get(labels.DO_NOT_SYNC_TAINTS) == "true"
    return NodePatch(
        labels={**labels_of(claim), labels.REGISTERED: "true"},
        annotations=annotations_of(claim),
        add_taints=() if synced else (*claim.taints, *claim.startup_taints),
        remove_taints=(UNREGISTERED,),
        provider_id=claim.provider_id,
        add_finalizers=(labels.TERMINATION_FINALIZER,),
    )


def initialization_patch(claim: NodeClaim) -> NodePatch:
    """Give what marks the Node as ready for pods."""
    return NodePatch(labels={labels.INITIALIZED: "true"}, provider_id=claim.provider_id)
