"""How a node is bought: the calls of a launch, in the order that survives a crash between any two of them.

The intent is committed (`Store.commit`), EC2 is asked under a token made from the claim's name (`launch`), what EC2
taught about capacity is kept, and last the claim moves on. A crash between any two leaves a pending claim, and asking
again gives the same instance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.launch import shared
from nodesmith.decisions.provisioning import PlannedNode
from nodesmith.decisions.provisioning.outcomes import (
    backoffs,
    launched_claim,
    served,
    shortage,
    subnet_backoffs,
)
from nodesmith.errors import Conflict
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import (
    Deferred,
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    OfferingKey,
    Refused,
    TemplateMissing,
    Unfulfilled,
    fleet_of,
)
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.backoffs import FIRST_BACKOFF, next_backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.ports import Cloud, Store

_FIRST_BACKOFFS = {"InstanceProfileNameInvalid": timedelta(seconds=15)}
"""A profile that has just been made is unknown to EC2 for some seconds."""

INTERRUPTIONS = frozenset(Fate)
"""Reasons of back-offs that only time mends."""
TypeLookup = Callable[[str, str], InstanceType | None]

ATTEMPTED_AT = "attemptedAt"
"""In a claim's launch data: when EC2 was last about to be asked. Nobody else touches the claim for a while."""


@dataclass(slots=True)
class Settled:
    """What became of launches, by claim name; `deferred` ones are to be repeated.

    `postponed` says, a sentence each, for which claims that were given up one had better wait before asking EC2 again.
    """

    launched: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    deferred: list[Deferred] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    refused: set[tuple[str, OfferingKey, str]] = field(default_factory=set)
    """offerings that EC2 would not launch from, each with the call (`LaunchRequest.call`) and EC2's word for it"""
    is_cut: bool = False
    """that claims or nodes are left for another run, as they are more than one may ask EC2 for"""

    @property
    def is_throttled(self) -> bool:
        """Whether EC2 turned calls away, or threw them out inside: more of them would fare the same now."""
        return bool(self.postponed) or any(deferred.nothing_begun for deferred in self.deferred)


def intents(nodes: Sequence[PlannedNode], now: datetime) -> list[NodeClaim]:
    """Return the claims of one commit as they are committed: with the very requests that EC2 will be asked."""
    requests = shared([node.request for node in nodes])
    return [
        replace(node.claim, launch={**request.to_item(), ATTEMPTED_AT: now.isoformat()})
        for node, request in zip(nodes, requests, strict=True)
    ]


def call_of(claim: NodeClaim) -> str:
    """Return the name of the CreateFleet call that serves a pending claim, as `LaunchRequest.call` does."""
    fleet = fleet_of(claim.launch)
    return f"fleet/{fleet}" if fleet else claim.name


def launch(
    claims: Sequence[NodeClaim],
    templates: Sequence[LaunchTemplate],
    ledger: Ledger,
    types: TypeLookup,
    store: Store,
    cloud: Cloud,
    clock: Callable[[], datetime],
    *,
    repeated: bool = False,
) -> Settled:
    """Ask EC2 for the instances of committed claims and settle what it answers.

    `types` gives an instance type by EC2NodeClass and name. `repeated` says that EC2 may have been asked before.
    """
    settled = Settled()
    if not claims:
        return settled
    requests = [LaunchRequest.from_item(claim.name, claim.launch) for claim in claims]
    cloud.ensure_templates(templates)
    answers = cloud.launch(requests, repeated=repeated)
    outcomes = dict(zip((c.name for c in claims), answers, strict=True))
    settled.refused = {
        (request.call, short.offering, short.code)
        for request, answer in zip(requests, answers, strict=True)
        if isinstance(answer, Launched | NoCapacity)
        for short in answer.shortfalls
    }
    _learn(outcomes.values(), ledger, store, clock())
    for claim in claims:
        _settle(claim, outcomes[claim.name], types, ledger, store, clock(), settled)
    return settled


def adopt(
    claim: NodeClaim, instance: Instance, types: TypeLookup, ledger: Ledger, store: Store, now: datetime
) -> bool:
    """Note a pending claim's instance, and return True; False where another claim has it and this one is given up.

    Claims of a fleet get their instances by one rule, so this cannot happen while EC2 keeps its client tokens. If it
    happens all the same, what is left without a claim is garbage collection's. Raises Conflict.
    """
    if any(other.instance_id == instance.id and other.name != claim.name for other in ledger.claims):
        store.save(claim.given_up("InstanceTaken", f"another NodeClaim has instance {instance.id}", now))
        return False
    store.save(launched_claim(claim, instance, types(claim.nodeclass.name, instance.instance_type), now))
    return True


def _learn(outcomes: Collection[LaunchOutcome], ledger: Ledger, store: Store, now: datetime) -> None:
    """Keep what the answers say of capacity, before any claim moves on."""
    short = backoffs(outcomes, ledger, now)
    if short:
        store.save_unavailable(short)
    full = subnet_backoffs(outcomes, now)
    if full:
        store.save_subnet_backoffs(full)
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
                is_adopted = adopt(claim, outcome.instance, types, ledger, store, now)
                if claim.nodepool in ledger.nodepool_backoffs:
                    store.save_nodepool_backoff(claim.nodepool, None)
                (settled.launched if is_adopted else settled.given_up).append(claim.name)
            case NoCapacity() | Refused() | Unfulfilled():
                _give_up(claim, outcome, ledger, store, now, settled)
            case TemplateMissing():
                _make_anew(claim, outcome, store, now, settled)
            case Deferred():
                settled.deferred.append(outcome)
                if outcome.nothing_begun:
                    store.save(replace(claim, launch={**claim.launch, ATTEMPTED_AT: ""}))
            case _:
                assert_never(outcome)
    except Conflict:
        # Another run settled the same claim with the same answer: EC2 knows one instance for its token.
        settled.launched.append(claim.name)


def _give_up(
    claim: NodeClaim,
    outcome: NoCapacity | Refused | Unfulfilled,
    ledger: Ledger,
    store: Store,
    now: datetime,
    settled: Settled,
) -> None:
    """End a claim whose call was answered without an instance. Its pods are decided about anew. Raises Conflict."""
    match outcome:
        case NoCapacity():
            ended = claim.given_up("InsufficientCapacity", shortage(outcome), now)
        case Refused():
            before = ledger.nodepool_backoffs.get(claim.nodepool)
            why = f"{outcome.reason}: {outcome.message}"
            refused = next_backoff(before, why, now, _FIRST_BACKOFFS.get(outcome.reason, FIRST_BACKOFF))
            store.save_nodepool_backoff(claim.nodepool, refused)
            ended = claim.given_up(outcome.reason, outcome.message, now)
        case Unfulfilled():
            why = f"{outcome.reason}: {outcome.message}"
            ended = claim.given_up("TemporarilyUnavailable", why, now)
            settled.postponed.append(f"NodeClaim {claim.name}: {why}")
        case _:
            assert_never(outcome)
    store.save(ended)
    settled.given_up.append(claim.name)


def _make_anew(
    claim: NodeClaim, outcome: TemplateMissing, store: Store, now: datetime, settled: Settled
) -> None:
    """Let a launch template be made anew: for this claim, or for others where its token is spent. Raises Conflict."""
    if outcome.is_answered:
        why = "EC2 did not know a launch template that the request named"
        store.save(claim.given_up("LaunchTemplateNotFound", why, now))
        settled.given_up.append(claim.name)
    else:
        why = "a launch template is missing and is made anew"
        settled.deferred.append(Deferred(claim.name, "LaunchTemplateNotFound", why))
