"""The two stages of a claim whose instance runs: its Node joins, and becomes ready for pods.

The rules are those of Karpenter's lifecycle controller: a node registers when it appears with the claim's provider id,
and is initialized when it is Ready, has no startup or ephemeral taints left, and shows every requested resource.

A Node may also come back. If a user removes its finalizer by hand, the object disappears while its kubelet runs, and
the kubelet creates a new one: without nodesmith's labels, and with the taint that every new Node has. It is opened and
initialized again, and its claim stays as it is. A Node that was restored from a backup has the labels, but maybe no
provider id, which a kubelet does not set a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.labels import (
    INITIALIZED,
    REGISTERED,
    TERMINATION_FINALIZER,
    UNREGISTERED,
    is_ephemeral,
    is_startup,
    is_status,
)
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, Resources, format_amount
from nodesmith.model.commands import Command, End, Forget, GiveUp, Initialize, Register, Wait
from nodesmith.model.ec2.capacity import ATTACHABLE
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaimobjects import annotations_of, labels_of, marks_of
from nodesmith.model.karpenter.nodeclaims import NODE_NOT_READY, NOT_REGISTERED, WARM, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import Options
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Node, NodePatch
from nodesmith.model.kubernetes.pods import Manifest

MISNAMED = "NodeNameMismatch"
"""The reason why a claim waits although a Node has its provider id."""
_MOST_NAMED = 5
_FROM_OUTSIDE = ("Client.UserInitiatedShutdown", "Server.")
"""Prefixes of EC2's state reasons for instances that were terminated from outside and did not fail by themselves."""
_LEAST_SHARE = 0.9
"""Karpenter's threshold: a node with less than this share of an expected resource is inconsistent."""
_WITHOUT_PODS = frozenset({Phase.LAUNCHED, *WARM, Phase.STARTING})
_JOINED = frozenset({Phase.REGISTERED, Phase.INITIALIZED})
_KARPENTERS = {"InsufficientCapacity": "InsufficientCapacityError"}
REGISTRATION_TIMEOUT = "RegistrationTimeout"
_WARNED_OF = frozenset({"MultipleNodesFound", MISNAMED})
"""Reasons for waiting that are not part of a normal start."""


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
    if now - claim.bought_at >= timeout:
        message = f"no Node has registered within {timeout.total_seconds() / 60:g} minutes"
        return GiveUp(claim.given_up(REGISTRATION_TIMEOUT, message, now))
    still = (claim.reason, claim.message) if claim.phase is Phase.STARTING else NOT_REGISTERED
    return wait(claim, *(_misnamed(claim, impostors) if impostors else still))


def initialize(
    claim: NodeClaim,
    nodes: Sequence[Node],
    daemonsets: Sequence[str],
    now: datetime,
    drivers: Sequence[str] = (),
) -> Command | None:
    """Return the next step of a registered claim: initialize it if its Node is ready for pods, or record why it waits.

    `daemonsets` are those whose pods must be bound first, `drivers` those that must publish their devices first.
    """
    if not nodes:
        return wait(claim, "NodeNotFound", f"Node {claim.node_name} is gone from the cluster")
    if len(nodes) > 1:
        return wait(claim, *_multiple(claim, nodes))
    node = nodes[0]  # its name may differ from the one that it registered with
    obstacle = obstacle_of(claim, node) or _unpublished(drivers) or _missing(daemonsets)
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
    stated = next((i.state_reason for i in instances if i.id == claim.instance_id and i.state_reason), "")
    reason = "InstanceInterrupted" if stated.startswith(_FROM_OUTSIDE) else "InstanceTerminated"
    message = f"instance {claim.instance_id} is gone" + (f": {stated}" if stated else "")
    if claim.phase in _WITHOUT_PODS:
        return GiveUp(claim.given_up(reason, message, now))
    return End(claim.terminating(reason, message, now))


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
        return NODE_NOT_READY, f"Node {node.name} is not Ready"
    identities = {t.identity for t in node.taints}
    named = [t for t in claim.startup_taints if t.identity in identities and not is_status(t)]
    startup = next(iter([*named, *filter(is_startup, node.taints)]), None)
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


def _unpublished(drivers: Sequence[str]) -> tuple[str, str] | None:
    if not drivers:
        return None
    return (
        "DRADriverPoolsNotPublished",
        f"the ResourceSlices of {', '.join(drivers)} for the Node are not complete yet",
    )


def _missing(daemonsets: Sequence[str]) -> tuple[str, str] | None:
    if not daemonsets:
        return None
    suffix = f" and {len(daemonsets) - _MOST_NAMED} more" if len(daemonsets) > _MOST_NAMED else ""
    names = ", ".join(daemonsets[:_MOST_NAMED])
    return "DaemonSetPodsPending", f"the Node is held for the pods of the DaemonSets {names}{suffix}"


def wait(claim: NodeClaim, reason: str, message: str) -> Wait | None:
    """Return a command that records why the claim waits, None if that is recorded already."""
    waiting = claim.waiting(reason, message)
    return None if waiting is claim else Wait(waiting)


def shortfalls(claim: NodeClaim, node: Node) -> dict[str, str]:
    """Return the requested resources of which a Node shows less than 90 % of what its claim expects, with messages."""
    messages: dict[str, str] = {}
    for name, requested in claim.requests.items():
        expected, actual = claim.capacity.of(name), node.capacity.of(name)
        if requested and not name.startswith(ATTACHABLE) and actual < _LEAST_SHARE * expected:
            amounts = f"{format_amount(name, actual)} {name} of {format_amount(name, expected)}"
            messages[name] = f"the Node shows {amounts} that were expected"
    return messages


def capacity_of(claim: NodeClaim, node: Node) -> Resources:
    """Return the capacity of an initialized claim: what its Node shows, or what was expected if that is too little.

    NodePool limits are compared with it. CPU and memory therefore never count for less than 90 % of what was bought,
    whether they were requested or not: a Node that shows too little does not leave room for more nodes.
    """
    expected = {name: claim.capacity.of(name) for name in (CPU, MEMORY, *shortfalls(claim, node))}
    lacking = {
        name: amount for name, amount in expected.items() if node.capacity.of(name) < _LEAST_SHARE * amount
    }
    return Resources({**node.capacity, **lacking})


def checked(claim: NodeClaim, node: Node) -> NodeClaim:
    """Return the claim with a message on what its Node lacks, or the claim itself if nothing has changed."""
    lacking = "; ".join(message for _, message in sorted(shortfalls(claim, node).items()))
    return claim if lacking == claim.inconsistency else replace(claim, inconsistency=lacking)


def check(claim: NodeClaim, node: Node) -> Wait | None:
    """Return a command that records a change in what the Node lacks, None if nothing has changed."""
    after = checked(claim, node)
    return None if after is claim else Wait(after)


def lacks_registration_label(claim: NodeClaim, nodes: Sequence[Node]) -> bool:
    """Return whether a claim that has joined has a Node without the registration label."""
    return claim.phase in _JOINED and _is_ours_to_open(nodes) and REGISTERED not in nodes[0].labels


def is_unmarked(claim: NodeClaim, nodes: Sequence[Node], manifest: Manifest | None) -> bool:
    """Return whether a Node in service lacks the labels, provider id, finalizer or owner that it should have.

    A user may have removed them. Nodes from older versions lack the label of their NodeClass, or their NodeClaim as
    owner. A NodeClaim that was created again, and is `manifest` with another uid, replaces the old one as owner.
    """
    if claim.phase not in _JOINED or not _is_ours_to_open(nodes):
        return False
    node = nodes[0]
    is_known = bool(node.provider_id) and marks_of(claim).items() <= node.labels.items()
    return not (TERMINATION_FINALIZER in node.finalizers and is_known and _is_owned(claim, node, manifest))


def _is_owned(claim: NodeClaim, node: Node, manifest: Manifest | None) -> bool:
    metadata = (manifest or {}).get("metadata") or {}
    uid = metadata.get("uid")
    return not uid or bool(metadata.get("deletionTimestamp")) or node.owners.get(claim.name) == uid


def initialize_again(claim: NodeClaim, node: Node) -> Command | None:
    """Return the step that marks the Node of an initialized claim as ready for pods again, None if it is marked.

    If the Node is not ready for pods, the step records the reason.
    """
    if INITIALIZED in node.labels or node.deleting:
        return None
    obstacle = obstacle_of(claim, node)
    if obstacle is not None:
        return wait(claim, *obstacle)
    return Initialize(replace(claim, node_name=node.name, reason="", message=""))


def _is_ours_to_open(nodes: Sequence[Node]) -> bool:
    return len(nodes) == 1 and not nodes[0].deleting


def registration_patch(claim: NodeClaim, node: Node | None) -> NodePatch:
    """Return the patch for registration: the claim's labels, annotations and taints, and the claim as owner.

    The taint `unregistered` is removed. A Node that must be held is cordoned. Taints are not added to a Node that is
    labelled `karpenter.sh/do-not-sync-taints=true`, since its kubelet has set them, or to one that has registered
    before: taints that were removed since are not restored.
    """
    node_labels = node.labels if node is not None else {}
    synced = node_labels.get(labels.DO_NOT_SYNC_TAINTS) == "true" or labels.REGISTERED in node_labels
    is_held = claim.held_until is not None and labels.REGISTERED not in node_labels
    return NodePatch(
        labels={**labels_of(claim), labels.REGISTERED: "true"},
        annotations=annotations_of(claim),
        add_taints=() if synced else (*claim.taints, *claim.startup_taints),
        remove_taints=(UNREGISTERED,),
        provider_id=claim.provider_id,
        add_finalizers=(labels.TERMINATION_FINALIZER,),
        owner=claim.name,
        unschedulable=True if is_held else None,
    )


def initialization_patch(claim: NodeClaim) -> NodePatch:
    """Return the patch that marks the Node as ready for pods, and uncordons it if it was held."""
    is_held = claim.held_until is not None
    return NodePatch(
        labels={labels.INITIALIZED: "true"},
        # The node controller would remove the taint as well, but later: pods nominated until then would fail.
        remove_taints=(REGISTERED_UNSCHEDULABLE,) if is_held else (),
        provider_id=claim.provider_id,
        unschedulable=False if is_held else None,
    )


def event_of(before: NodeClaim, command: Command, node: Node | None) -> tuple[str, str] | None:
    """Return the reason and message of the Event for a command, None if nothing is wrong.

    `before` is the claim in the ledger: a repeated command causes no Event.
    """
    claim = command.claim
    match command:
        case Register() if node is not None and _came_open(node):
            return "UnregisteredTaintMissing", f"Node {node.name} joined without the taint {UNREGISTERED}"
        case Wait() if claim.inconsistency not in {"", before.inconsistency}:
            return "FailedConsistencyCheck", claim.inconsistency
        case Wait() if claim.reason in _WARNED_OF and claim.reason != before.reason:
            return claim.reason, claim.message
        case GiveUp() if not claim.was_not_needed:
            return claim.reason, claim.message
        case Forget() if claim.launched_at is None:  # the launch failed
            return _KARPENTERS.get(claim.reason, claim.reason), claim.message
        case _:
            return None


def _came_open(node: Node) -> bool:
    """Return whether pods may have been bound before the Node had its claim's taints."""
    return REGISTERED not in node.labels and all(t.identity != UNREGISTERED.identity for t in node.taints)
