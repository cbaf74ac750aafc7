"""The steps of a claim for warm capacity: its Node joins once, prepares, is stopped, and waits to be started.

    Launched → Warming → Stopping → Stopped → Starting → Registered, as any other claim

The Node of a stopped instance is deleted: it would be NotReady for days, set off alerts, keep its DaemonSets' pods in
the cluster and so stall their rollouts. The kubelet creates it again when the instance boots. Lifecycle gives up claims
that are not needed or must be replaced; starting is up to provisioning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.launch.userdata.starting import PULLING_POD
from nodesmith.decisions.lifecycle.stages import capacity_of, wait
from nodesmith.decisions.provisioning.buffers.warmcapacity import warm_capacity
from nodesmith.decisions.scheduling.existing import awaited_daemons
from nodesmith.model.apimachinery.labels import PREPARING, REGISTERED, UNREGISTERED, is_ephemeral
from nodesmith.model.commands import Command, GiveUp, Prepare, Shelve, Stop
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaimobjects import annotations_of, labels_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import Options
from nodesmith.model.kubernetes.nodes import Node, NodePatch
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

CHECKED = frozenset({Phase.STOPPING, Phase.STOPPED})
"""Phases in which the state of the instance in EC2 says what comes next."""
LEAST_WARM_UP = timedelta(seconds=60)
"""How long a Node prepares at least: DaemonSets' pods and a pod that pulls images take some seconds to appear."""
LONGEST_WARM_UP = timedelta(minutes=15)
"""After which time a Node is stopped although pods or images are still missing."""
LONGEST_STOP = timedelta(minutes=30)
"""After which time an instance that does not stop is terminated."""
_RUNNING = frozenset({"pending", "running"})


def prepare(claim: NodeClaim, nodes: Sequence[Node], now: datetime) -> Command | None:
    """Return the step of a launched claim whose Node has joined for the first time."""
    if len(nodes) > 1:
        return wait(claim, "MultipleNodesFound", "several Nodes have its providerID")
    message = f"Node {nodes[0].name} prepares: it pulls images, and DaemonSets' pods start"
    warming = claim.advanced(Phase.WARMING, now, "Warming", message)
    return Prepare(replace(warming, node_name=nodes[0].name), nodes[0].name)


def preparing_patch(claim: NodeClaim) -> NodePatch:
    """Return the patch that cordons a Node, so that only DaemonSets' pods come, and marks it as the claim's.

    It gets no finalizer and no registered label: nothing but its kubelet needs it, and nothing waits for its end.
    """
    return NodePatch(
        labels={**labels_of(claim), PREPARING: "true"},
        annotations=annotations_of(claim),
        add_taints=claim.taints,
        remove_taints=(UNREGISTERED,),
        provider_id=claim.provider_id,
        owner=claim.name,
        remove_labels=(REGISTERED,),
        unschedulable=True,
    )


def warm_step(
    claim: NodeClaim,
    nodes: Sequence[Node],
    instances: Sequence[Instance],
    snapshot: Snapshot,
    options: Options,
    now: datetime,
) -> Command | None:
    """Return the next step of a claim that prepares, stops or is stopped. `instances` are its instances in EC2."""
    state = next((instance.state for instance in instances if instance.id == claim.instance_id), "")
    match claim.phase:
        case Phase.WARMING:
            return _warming(claim, nodes, snapshot, options, now)
        case Phase.STOPPING:
            return _stopping(claim, state, now)
        case Phase.STOPPED if state in _RUNNING:  # somebody else has started it
            return Stop(claim, is_new=False)
        case Phase.STOPPED if nodes and state == "stopped":  # that one has joined before it was stopped again
            return Shelve(claim, nodes[0].name)
        case _:
            return None


def _warming(
    claim: NodeClaim, nodes: Sequence[Node], snapshot: Snapshot, options: Options, now: datetime
) -> Command | None:
    since = now - claim.phase_since
    node = nodes[0] if len(nodes) == 1 else None
    missing = _missing(claim, node, snapshot)
    if missing and (node is None or not node.is_ready) and since >= options.registration_timeout:
        return GiveUp(claim.given_up("WarmUpTimeout", f"its Node did not become ready: {missing}", now))
    if since < LEAST_WARM_UP or (missing and (since < LONGEST_WARM_UP or node is None or not node.is_ready)):
        return wait(claim, "Warming", missing) if missing else None
    assert node is not None  # noqa: S101
    stopping = claim.advanced(
        Phase.STOPPING, now, "Stopping", f"instance {claim.instance_id} is being stopped"
    )
    capacity = capacity_of(claim, node)
    return Stop(replace(stopping, capacity=capacity, allocatable=node.allocatable), is_new=True)


def _missing(claim: NodeClaim, node: Node | None, snapshot: Snapshot) -> str:
    """Return what a Node still waits for before it can be stopped, empty for nothing."""
    if node is None or not node.is_ready:
        return f"Node {claim.node_name} is not Ready"
    ephemeral = next((taint for taint in node.taints if is_ephemeral(taint)), None)
    if ephemeral is not None:
        return f"taint {ephemeral} is still on Node {node.name}"
    pods = snapshot.pods_on(node.name)
    daemons = awaited_daemons(replace_held(node), claim, pods, snapshot.daemonsets)
    if daemons:
        return f"Node {node.name} waits for pods of {', '.join(sorted(daemonset.owner for daemonset in daemons)[:5])}"
    pulling = next((pod for pod in pods if _pulls(pod)), None)
    if pulling is not None:
        return f"pod {pulling.key} pulls images"
    starting = sorted(pod.key for pod in pods if pod.shape.is_daemon and not pod.ready and not pod.deleting)
    return f"pods are starting: {', '.join(starting[:5])}" if starting else ""


def replace_held(node: Node) -> Node:
    """Return a Node without its cordon, which DaemonSets' pods tolerate."""
    return replace(node, taints=tuple(t for t in node.taints if t.key != "node.kubernetes.io/unschedulable"))


def _pulls(pod: Pod) -> bool:
    return pod.shape.is_static and pod.key.partition("/")[2].startswith(PULLING_POD)


def _stopping(claim: NodeClaim, state: str, now: datetime) -> Command | None:
    if state == "stopped":
        message = f"instance {claim.instance_id} is stopped, for CapacityBuffer {claim.buffer}"
        return Shelve(claim.advanced(Phase.STOPPED, now, "Stopped", message), claim.node_name)
    if now - claim.phase_since >= LONGEST_STOP:
        return GiveUp(claim.given_up("StopTimeout", f"instance {claim.instance_id} does not stop", now))
    return Stop(claim, is_new=False) if state in _RUNNING else None


def not_needed(
    ledger: Ledger, snapshot: Snapshot, now: datetime, others: Iterable[Command] = ()
) -> list[Command]:
    """Return the ends of claims that keep warm capacity which nobody asks for, or which is replaced.

    A claim that is newer than the snapshot was bought for what a later one shows.
    """
    if not any(claim.is_warm for claim in ledger.claims):
        return []
    handled = {command.claim.name for command in others}
    ends: list[Command] = []
    for warm in warm_capacity(snapshot, ledger.claims, now, ledger.shifted(now)):
        for claim, reason in warm.surplus():
            if claim.name not in handled and claim.created_at <= snapshot.taken_at:
                message = f"CapacityBuffer {claim.buffer} no longer needs it"
                ends.append(GiveUp(claim.given_up(reason, message, now)))
    return ends
