"""Effects: the calls that carry out commands.

The order of calls makes them safe to interrupt and repeat. `launcheffects` has the effects of launches; all other
effects are here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from nodesmith.decisions.lifecycle import initialization_patch, preparing_patch, registration_patch
from nodesmith.decisions.reporting.events import (
    of_deadline,
    of_deletions,
    of_interruption,
    of_waiting,
)
from nodesmith.decisions.termination.steps import closing_patch
from nodesmith.decisions.termination.waiting import awaiting_node
from nodesmith.errors import Transient
from nodesmith.model.commands import (
    Advance,
    ClearNominations,
    Close,
    Command,
    Correct,
    DeletePods,
    Dismiss,
    End,
    EndClaim,
    Evict,
    Forget,
    Garbage,
    GiveUp,
    Initialize,
    Lift,
    Nominate,
    Open,
    Prepare,
    Register,
    Release,
    ReleaseNode,
    Remove,
    Shelve,
    Show,
    SingleEnding,
    Stop,
    TakeBack,
    Terminate,
    TerminateInstances,
    Wait,
    WarmCommand,
)
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import Eviction
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cloud, Cluster, Store


def carry_out(  # noqa: C901 - one case for each command
    command: Command, snapshot: Snapshot, store: Store, cloud: Cloud, cluster: Cluster
) -> None:
    """Carry out one lifecycle command. The cluster is updated last, from the new state of the ledger.

    Raises Transient, and Conflict if the claim has changed.
    """
    match command:
        case Prepare() | Stop() | Shelve():
            _keep_warm(command, store, cloud, cluster)
        case Nominate() | ClearNominations():
            write = cluster.nominate if isinstance(command, Nominate) else cluster.clear_nominations
            write(command.node, command.pods)
        case Open():
            patch = registration_patch(command.claim, snapshot.node_of(command.claim))
            if not cluster.register_node(command.node, patch):
                raise Transient(f"Node {command.node} went away while it registered")
        case Initialize():
            if not cluster.register_node(command.claim.node_name, initialization_patch(command.claim)):
                raise Transient(f"Node {command.claim.node_name} went away while it was initialized")
            _save_and_show(command.claim, store, cluster)
        case Register() | Wait() | GiveUp() | End():
            _save_and_show(command.claim, store, cluster)
        case Dismiss():
            _terminate_and_delete(command.claim, cloud, cluster)
        case Forget():
            _terminate_and_delete(command.claim, cloud, cluster)
            store.forget(command.claim)
        case Show():
            show(command.claim, cluster)
        case _:
            assert_never(command)


def _keep_warm(command: WarmCommand, store: Store, cloud: Cloud, cluster: Cluster) -> None:
    """Carry out one step of a claim on its way to a stopped instance. Raises Transient, and Conflict."""
    claim = command.claim
    match command:
        case Prepare():
            if not cluster.register_node(command.node, preparing_patch(claim)):
                raise Transient(f"Node {command.node} went away while it was prepared")
            _save_and_show(claim, store, cluster)
        case Stop():
            if command.is_new:
                _save_and_show(claim, store, cluster)
            cloud.stop(claim.instance_id)
        case Shelve():
            held_by = cluster.release_node(command.node, claim.provider_id) if command.node else ()
            if held_by:
                raise Transient(f"finalizers hold Node {command.node}: {', '.join(held_by)}")
            _save_and_show(claim, store, cluster)
        case _:
            assert_never(command)


def show(claim: NodeClaim, cluster: Cluster) -> None:
    """Write a claim's state to its NodeClaim object.

    If the claim's instance has been terminated, a missing object was removed by another run and is not created again.
    """
    cluster.apply_nodeclaim(manifest(claim), create=not claim.is_instance_terminating)


def begin_end(command: End, store: Store, cluster: Cluster) -> NodeClaim:
    """Record that a claim's end has begun, and return the claim as saved. Raises Conflict, Transient."""
    saved = store.save(command.claim)
    show(saved, cluster)
    return saved


def carry_out_end(command: SingleEnding, store: Store, cluster: Cluster) -> None:
    """Carry out one command of a claim's end. Raises Transient, and Conflict if the claim has changed."""
    claim = command.claim
    match command:
        case Close():
            if command.node:
                cluster.register_node(command.node, closing_patch(claim))
                cluster.request_deletion("Node", command.node, claim.provider_id)
            cluster.request_deletion("NodeClaim", claim.name)
            if new_events := [*of_interruption(claim, command.node), *of_deadline(claim, command.node)]:
                cluster.publish(new_events)
        case Wait() | Advance():
            _save_and_show(claim, store, cluster)
            if new_events := of_waiting(claim):
                cluster.publish(new_events)
        case TerminateInstances():  # `terminate` has already called EC2
            _save_and_show(claim, store, cluster)
        case _:
            assert_never(command)


def release(command: Release, store: Store, cluster: Cluster) -> bool:
    """Remove a claim's Node, then its object and ledger entry; return False while finalizers hold the Node.

    Raises Transient, and Conflict if the claim has changed.
    """
    claim = command.claim
    held_by = cluster.release_node(command.node, claim.provider_id) if command.node else ()
    if not held_by:
        cluster.delete_nodeclaim(claim.name)
        store.forget(claim)
        return True
    waiting = awaiting_node(claim, command.node, held_by)
    waiting_claim = claim.waiting(waiting.reason, waiting.message)
    if waiting_claim is not claim:
        _save_and_show(waiting_claim, store, cluster)
        cluster.publish(of_waiting(waiting_claim))
    return False


def evict(commands: Sequence[Evict], cluster: Cluster) -> Mapping[str, Eviction]:
    """Evict the pods of all these claims concurrently, and return the results by pod.

    Raises Transient after all have been tried.
    """
    return cluster.evict([pod for command in commands for pod in command.pods])


def delete_pods(commands: Sequence[DeletePods], cluster: Cluster) -> None:
    """Delete the pods of all these claims concurrently, and publish Events. Raises Transient after trying all."""
    answers = cluster.delete_pods([pod for command in commands for pod in command.pods])
    cluster.publish([event for c in commands for event in of_deletions(c.claim, c.pods, answers)])


def terminate(commands: Sequence[TerminateInstances], cloud: Cloud) -> None:
    """Terminate the instances of all these claims in one call. Raises Transient if EC2 refuses to terminate any."""
    cloud.terminate(sorted({instance for command in commands for instance in command.instances}))


def collect(item: Garbage, store: Store, cloud: Cloud, cluster: Cluster) -> None:
    """Carry out one idempotent garbage collection command. Raises Transient, and Conflict if a claim has changed."""
    match item:
        case Terminate():
            cloud.terminate(item.instances)
        case TakeBack():
            store.commit(item.version, item.claims, "garbagecollection")
        case EndClaim():
            _save_and_show(item.claim, store, cluster)
        case Correct():
            store.save(item.claim)
        case ReleaseNode():
            cluster.release_node(item.node, item.provider_id)
        case Lift():
            cluster.delete_nodeclaim(item.nodeclaim)
        case Remove():
            cloud.remove(item.owned)
        case _:
            assert_never(item)


def _terminate_and_delete(claim: NodeClaim, cloud: Cloud, cluster: Cluster) -> None:
    if claim.instance_id:
        cloud.terminate([claim.instance_id])
    cluster.delete_nodeclaim(claim.name)


def _save_and_show(claim: NodeClaim, store: Store, cluster: Cluster) -> None:
    show(store.save(claim), cluster)
