"""The two stages of a claim whose instance runs: its Node joins, and becomes ready for pods.

The rules are those of Karpenter's lifecycle controller: a node registers when it appears with the claim's provider id,
and is initialized when it is Ready, has no startup or ephemeral taints left, and shows every requested resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.lifecycle.consistency import capacity_of, checked
from nodesmith.model.apimachinery.taints import is_ephemeral
from nodesmith.model.commands import Command, End, GiveUp, Initialize, Register, Wait
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaims import NOT_REGISTERED, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import Options
from nodesmith.model.kubernetes.nodes import Node

MISNAMED = "NodeNameMismatch"
"""The reason why a claim waits although a Node has its provider id."""
_MOST_NAMED = 5
_FROM_OUTSIDE = ("Client.UserInitiatedShutdown", "Server.")
"""Prefixes of EC2's state reasons for instances that were terminated from outside and did not fail by themselves."""


def register(
    claim: NodeClaim, nodes: Sequence[Node], impostors: Sequence[Node], options: Options, now: datetime
) -> Command | None:
    """Return the next step of a launched claim: register it if its Node exists, give it up after the time-out, or wait.

    `impostors` are Nodes with its provider id that its instance cannot have created.
    """
    timeout = options.registration_timeout
    if len(nodes) > 1:
        return wait(claim, *_multiple(claim, nodes))
    if nodes:
        node = nodes[0]
        held_until = now + options.daemonset_hold if options.daemonset_hold else None
        registered = replace(
            claim.advanced(Phase.REGISTERED, now), node_name=node.name, held_until=held_until
        )
        return Register(registered.waiting(*obstacle_of(claim, node) or ("", "")))
    if now - claim.created_at >= timeout:
        why = f"no Node has registered within {timeout.total_seconds() / 60:g} minutes"
        return GiveUp(claim.given_up("RegistrationTimeout", why, now))
    return wait(claim, *(_misnamed(claim, impostors) if impostors else NOT_REGISTERED))


def initialize(
    claim: NodeClaim, nodes: Sequence[Node], daemonsets: Sequence[str], now: datetime
) -> Command | None:
    """Return the next step of a registered claim: initialize it if its Node is ready for pods, or record why it waits.

    `daemonsets` are those whose pods must be bound first.
    """
    if not nodes:
        return wait(claim, "NodeNotFound", f"Node {claim.node_name} is gone from the cluster")
    if len(nodes) > 1:
        return wait(claim, *_multiple(claim, nodes))
    node = nodes[0]  # its name may differ from the one that it registered with
    obstacle = obstacle_of(claim, node) or _missing(daemonsets)
    if obstacle is not None:
        return wait(claim, *obstacle)
    initialized = claim.advanced(Phase.INITIALIZED, now)
    capacity, consistent = capacity_of(claim, node), checked(initialized, node)
    return Initialize(
        replace(consistent, node_name=node.name, capacity=capacity, allocatable=node.allocatable)
    )


def end(claim: NodeClaim, instances: Iterable[Instance], now: datetime) -> Command:
    """Return the end of a claim whose instance is gone. `instances` are those that EC2 still describes.

    A claim that never became a Node is given up. For others, termination releases the Node and the object.
    """
    told = next((i.state_reason for i in instances if i.id == claim.instance_id and i.state_reason), "")
    reason = "InstanceInterrupted" if told.startswith(_FROM_OUTSIDE) else "InstanceTerminated"
    why = f"instance {claim.instance_id} is gone" + (f": {told}" if told else "")
    if claim.phase is Phase.LAUNCHED:
        return GiveUp(claim.given_up(reason, why, now))
    return End(claim.terminating(reason, why, now))


def _misnamed(claim: NodeClaim, impostors: Iterable[Node]) -> tuple[str, str]:
    names = ", ".join(sorted(node.name for node in impostors))
    named = f"EC2 has named the instance {claim.private_dns_name}"
    return MISNAMED, f"Node {names} has the providerID {claim.provider_id}, but {named}: it is not registered"


def _multiple(claim: NodeClaim, nodes: Iterable[Node]) -> tuple[str, str]:
    names = ", ".join(sorted(node.name for node in nodes))
    return "MultipleNodesFound", f"Nodes {names} have the providerID {claim.provider_id}"


def obstacle_of(claim: NodeClaim, node: Node) -> tuple[str, str] | None:
    """Return the reason and message why a Node accepts no pods yet, None if it does."""
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


def _missing(daemonsets: Sequence[str]) -> tuple[str, str] | None:
    if not daemonsets:
        return None
    more = f" and {len(daemonsets) - _MOST_NAMED} more" if len(daemonsets) > _MOST_NAMED else ""
    names = ", ".join(daemonsets[:_MOST_NAMED])
    return "DaemonSetPodsPending", f"the Node is held for the pods of the DaemonSets {names}{more}"


def wait(claim: NodeClaim, reason: str, message: str) -> Wait | None:
    """Return a command that records why the claim waits, None if that is recorded already."""
    waiting = claim.waiting(reason, message)
    return None if waiting is claim else Wait(waiting)
