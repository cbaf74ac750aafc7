"""The only place where commands become calls.

Order is what keeps the promises. A node is bought in four steps: the intent is committed (`commit`), EC2 is asked under
a token made from the claim's name (`launch`), what EC2 taught about capacity is kept, and last the claim moves on. A
crash between any two leaves a pending claim, and asking again gives the same instance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.lifecycle import initialization_patch, registration_patch
from nodesmith.decisions.provisioning import PlannedNode
from nodesmith.decisions.provisioning.outcomes import backoffs, launched_claim, served, shortage
from nodesmith.decisions.termination.steps import closing_patch
from nodesmith.decisions.termination.telling import of_deadline, of_deletions, of_waiting
from nodesmith.errors import Conflict, Transient
from nodesmith.model import garbage
from nodesmith.model.backoffs import FIRST_BACKOFF, next_backoff
from nodesmith.model.commands import (
    Advance,
    ClearNominations,
    Close,
    Command,
    DeletePods,
    Dismiss,
    End,
    Evict,
    Forget,
    GiveUp,
    Initialize,
    Nominate,
    Open,
    Register,
    Release,
    Show,
    SingleEnding,
    TerminateInstances,
    Wait,
)
from nodesmith.model.evictions import Eviction
from nodesmith.model.instancetypes import InstanceType
from nodesmith.model.launches import (
    Deferred,
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    Refused,
    TemplateMissing,
)
from nodesmith.model.ledger import Ledger
from nodesmith.model.nodeclaimobjects import manifest
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.notices import Fate
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cloud, Cluster, Store

_FIRST_BACKOFFS = {"InstanceProfileNameInvalid": timedelta(seconds=15)}
"""A profile that has just been made is unknown to EC2 for some seconds."""

INTERRUPTIONS = frozenset(Fate)
"""Reasons of back-offs that only time mends."""
TypeLookup = Callable[[str, str], InstanceType | None]

ATTEMPTED_AT = "attemptedAt"
"""In a claim's launch data: when EC2 was last about to be asked. Nobody else touches the claim for a while."""


@dataclass(slots=True)
class Settled:
    """What became of launches, by claim name; `deferred` ones are to be repeated."""

    launched: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    deferred: list[Deferred] = field(default_factory=list)


def intent(node: PlannedNode, now: datetime) -> NodeClaim:
    """Give the claim as it is committed: with the very request that EC2 will be asked."""
    return replace(node.claim, launch={**node.request.to_item(), ATTEMPTED_AT: now.isoformat()})


def launch(
    claims: Sequence[NodeClaim],
    templates: Sequence[LaunchTemplate],
    ledger: Ledger,
    types: TypeLookup,
    store: Store,
    cloud: Cloud,
    clock: Callable[[], datetime],
) -> Settled:
    """Ask EC2 for the instances of committed claims and settle what it answers.

    `types` gives an instance type by EC2NodeClass and name.
    """
    settled = Settled()
    if not claims:
        return settled
    requests = [LaunchRequest.from_item(claim.name, claim.launch) for claim in claims]
    cloud.ensure_templates(templates)
    outcomes = dict(zip((c.name for c in claims), cloud.launch(requests), strict=True))
    _learn(outcomes.values(), ledger, store, clock())
    for claim in claims:
        _settle(claim, outcomes[claim.name], types, ledger, store, clock(), settled)
    return settled


def adopt(claim: NodeClaim, instance: Instance, types: TypeLookup, store: Store, now: datetime) -> None:
    """Give a pending claim the instance that is found to carry its name."""
    store.save(launched_claim(claim, instance, types(claim.nodeclass.name, instance.instance_type), now))


def _learn(outcomes: Collection[LaunchOutcome], ledger: Ledger, store: Store, now: datetime) -> None:
    """Keep what the answers say of capacity, before any claim moves on."""
    short = backoffs(outcomes, ledger, now)
    if short:
        store.save_unavailable(short)
    known = served(outcomes) & set(ledger.unavailable)
    # That a pool has capacity again says nothing of how long it leaves us an instance.
    recovered = sorted(key for key in known if ledger.unavailable[key].reason not in INTERRUPTIONS)
    if recovered:
        store.clear_unavailable(recovered)


def _settle(
    claim: NodeClaim,
    outcome: LaunchOutcome,
    types: TypeLookup,
    ledger: Ledger,
    store: Store,
    now: datetime,
    settled: Settled,
) -> None:
    try:
        match outcome:
            case Launched():
                adopt(claim, outcome.instance, types, store, now)
                if claim.nodepool in ledger.nodepool_backoffs:
                    store.save_nodepool_backoff(claim.nodepool, None)
                settled.launched.append(claim.name)
            case NoCapacity():
                store.save(claim.given_up("InsufficientCapacity", shortage(outcome), now))
                settled.given_up.append(claim.name)
            case Refused():
                before = ledger.nodepool_backoffs.get(claim.nodepool)
                why = f"{outcome.reason}: {outcome.message}"
                refused = next_backoff(before, why, now, _FIRST_BACKOFFS.get(outcome.reason, FIRST_BACKOFF))
                store.save_nodepool_backoff(claim.nodepool, refused)
                store.save(claim.given_up(outcome.reason, outcome.message, now))
                settled.given_up.append(claim.name)
            case TemplateMissing():
                why = "a launch template is missing and is made anew"
                settled.deferred.append(Deferred(claim.name, "LaunchTemplateNotFound", why))
            case Deferred():
                settled.deferred.append(outcome)
                if outcome.nothing_begun:
                    store.save(replace(claim, launch={**claim.launch, ATTEMPTED_AT: ""}))
            case _:
                assert_never(outcome)
    except Conflict:
        # Another run settled the same claim with the same answer: EC2 knows one instance for its token.
        settled.launched.append(claim.name)


def carry_out(command: Command, snapshot: Snapshot, store: Store, cloud: Cloud, cluster: Cluster) -> None:
    """Carry out one lifecycle command. The cluster is told last, from what the ledger then holds.

    Raises Transient, and Conflict when the claim has moved on.
    """
    match command:
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
            _clear_away(command.claim, cloud, cluster)
        case Forget():
            _clear_away(command.claim, cloud, cluster)
            store.forget(command.claim)
        case Show():
            cluster.apply_nodeclaim(manifest(command.claim))
        case _:
            assert_never(command)


def begin_end(command: End, store: Store, cluster: Cluster) -> NodeClaim:
    """Note that a claim's end has begun; give it as the ledger then holds it. Raises Conflict, Transient."""
    saved = store.save(command.claim)
    cluster.apply_nodeclaim(manifest(saved))
    return saved


def carry_out_end(command: SingleEnding, store: Store, cluster: Cluster) -> None:
    """Carry out one command of a claim's end. Raises Transient, and Conflict when the claim has moved on."""
    claim = command.claim
    match command:
        case Close():
            if command.node:
                cluster.register_node(command.node, closing_patch(claim))
                cluster.request_deletion("Node", command.node, claim.provider_id)
            cluster.request_deletion("NodeClaim", claim.name)
            if told := of_deadline(claim, command.node):
                cluster.publish(told)
        case Wait() | Advance():
            _save_and_show(claim, store, cluster)
            if told := of_waiting(claim):
                cluster.publish(told)
        case TerminateInstances():  # EC2 has been asked: `terminate`
            _save_and_show(claim, store, cluster)
        case Release():
            if command.node:
                cluster.release_node(command.node, claim.provider_id)
            cluster.delete_nodeclaim(claim.name)
            store.forget(claim)
        case _:
            assert_never(command)


def evict(commands: Sequence[Evict], cluster: Cluster) -> Mapping[str, Eviction]:
    """Evict the pods of all these claims, side by side; give what was answered, by pod.

    Raises Transient once all have been tried.
    """
    return cluster.evict([pod for command in commands for pod in command.pods])


def delete_pods(commands: Sequence[DeletePods], cluster: Cluster) -> None:
    """Delete the pods of all these claims, side by side, and say so. Raises Transient once all have been tried."""
    answers = cluster.delete_pods([pod for command in commands for pod in command.pods])
    cluster.publish([told for c in commands for told in of_deletions(c.claim, c.pods, answers)])


def terminate(commands: Sequence[TerminateInstances], cloud: Cloud) -> None:
    """Terminate the instances of all these claims in one call. Raises Transient for those that EC2 will not end."""
    cloud.terminate(sorted({instance for command in commands for instance in command.instances}))


def collect(item: garbage.Garbage, store: Store, cloud: Cloud, cluster: Cluster) -> None:
    """Carry out one deletion, each of which may be repeated. Raises Transient, and Conflict when a claim moved on."""
    match item:
        case garbage.Terminate():
            cloud.terminate(item.instances)
        case garbage.TakeBack():
            store.commit(item.version, item.claims, "garbagecollection")
        case garbage.End():
            _save_and_show(item.claim, store, cluster)
        case garbage.Release():
            cluster.release_node(item.node, item.provider_id)
        case garbage.Lift():
            cluster.delete_nodeclaim(item.nodeclaim)
        case garbage.Remove():
            cloud.remove(item.owned)
        case _:
            assert_never(item)


def _clear_away(claim: NodeClaim, cloud: Cloud, cluster: Cluster) -> None:
    if claim.instance_id:
        cloud.terminate([claim.instance_id])
    cluster.delete_nodeclaim(claim.name)


def _save_and_show(claim: NodeClaim, store: Store, cluster: Cluster) -> None:
    cluster.apply_nodeclaim(manifest(store.save(claim)))
