"""Effects of launches: the calls that buy nodes, in an order that survives a crash between any two of them.

First the intent is committed (`Store.commit`). Then EC2 is called with a client token derived from the claim's name
(`launch`), what the response reveals about capacity is saved, and last the claim advances. A crash between any two of
these leaves a pending claim, and repeating the call returns the same instance. Stopped instances are started in the
same order; EC2 leaves an instance that runs as it is.

A run may make a few CreateFleet calls at any time, and many only while it holds the cluster's lock (`Allowance`). A
cluster that needs more than a few calls makes at most `MANY_CALLS` within `LOCKED_FOR`, however many of its runs need
them at the same time. All such clusters of the region share one budget (`nodesmith.model.ledger.region.CallBudget`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.launch import shared
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning import PlannedNode
from nodesmith.errors import Conflict, Transient
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
    StartRefusal,
    TemplateMissing,
    Unfulfilled,
)
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import TEMPORARILY_UNAVAILABLE, NodeClaim
from nodesmith.model.ledger.learned import Backoff, next_backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.region import NO_SPENDING, Scarcity, Spending
from nodesmith.model.ledger.shortages import (
    backoffs,
    lost_zones,
    nodepool_backoff,
    refused_offerings,
    served,
    shortage,
    subnet_backoffs,
)
from nodesmith.model.policies import NodeSettings
from nodesmith.ports import Cloud, Store

INTERRUPTIONS = frozenset(InterruptionCause)
"""Reasons of back-offs that only the passage of time ends."""
TypeLookup = Callable[[NodeClaim, str], InstanceType | None]


@dataclass(slots=True)
class Settled:
    """The outcomes of launches, by claim name. `deferred` launches must be repeated.

    `postponed` has a sentence for each claim that was given up for a reason after which EC2 should not be called again
    immediately.
    """

    launched: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    deferred: list[Deferred] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    refused: set[tuple[str, OfferingKey, str]] = field(default_factory=set)
    """(call, offering, code) for each offering that EC2 did not launch: `LaunchRequest.call` and EC2's error code"""
    is_cut: bool = False
    """True if claims or nodes are left for another run because they exceed what one run may request"""

    @property
    def is_throttled(self) -> bool:
        """True if EC2 refused or dropped calls, so that further calls would fail as well for now."""
        return bool(self.postponed) or any(deferred.nothing_begun for deferred in self.deferred)


def intents(nodes: Sequence[PlannedNode], now: datetime) -> list[NodeClaim]:
    """Return the claims to commit, with the exact requests that EC2 will get."""
    requests = shared([node.request for node in nodes])
    return [
        replace(node.claim, launch=request.to_item()).leased(now)
        for node, request in zip(nodes, requests, strict=True)
    ]


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
    """Request the instances of committed claims from EC2, and settle the claims by the outcomes.

    `types` looks up an instance type, as a claim buys it, by claim and name. `repeated` is True if EC2 may have been
    called before.
    """
    settled = Settled()
    if not claims:
        return settled
    requests = [LaunchRequest.from_item(claim.name, claim.launch) for claim in claims]
    try:
        cloud.ensure_templates(templates)
    except Transient:
        for claim in claims:
            with suppress(Conflict):
                store.save(claim.freed(nothing_begun=False))
        raise
    answers = cloud.launch(requests, repeated=repeated)
    outcomes = dict(zip((c.name for c in claims), answers, strict=True))
    settled.refused = {
        (request.call, short.offering, short.code)
        for request, answer in zip(requests, answers, strict=True)
        for short in refused_offerings(answer)
    }
    _learn(outcomes.values(), ledger, store, clock())
    for claim in claims:
        _settle(claim, outcomes[claim.name], types, ledger, store, clock(), settled)
    return settled


def start(
    claims: Sequence[NodeClaim],
    ledger: Ledger,
    store: Store,
    cloud: Cloud,
    clock: Callable[[], datetime],
) -> Settled:
    """Start the instances of committed claims that are STARTING. An instance that already runs is left as it is.

    A claim whose instance EC2 refuses to start is given up, and the next decision covers its pods. Raises Transient.
    """
    settled = Settled()
    if not claims:
        return settled
    refused, now = cloud.start([claim.instance_id for claim in claims]), clock()
    _note_short(claims, refused, ledger, store, now)
    for claim in claims:
        refusal = refused.get(claim.instance_id)
        if refusal is None:
            settled.launched.append(claim.name)
            continue
        if refusal.passes:
            settled.deferred.append(Deferred(claim.name, refusal.code, refusal.message))
            with suppress(Conflict):  # a start may be repeated
                store.save(claim.freed(nothing_begun=True))
            continue
        reason = "InsufficientCapacity" if refusal.is_short else "StartRefused"
        message = f"EC2 refuses to start instance {claim.instance_id}: {refusal.code}: {refusal.message}"
        with suppress(Conflict):
            store.save(claim.given_up(reason, message, now))
        settled.given_up.append(claim.name)
    return settled


def _note_short(
    claims: Sequence[NodeClaim],
    refused: Mapping[str, StartRefusal],
    ledger: Ledger,
    store: Store,
    now: datetime,
) -> None:
    """Back off from the capacity pools that have no instance left, before any claim changes."""
    short: dict[OfferingKey, Backoff] = {}
    for claim in claims:
        refusal = refused.get(claim.instance_id)
        if refusal is not None and refusal.is_short:
            pool = OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)
            short[pool] = next_backoff(ledger.unavailable.get(pool), refusal.code, now)
    if short:
        store.save_unavailable(short)


def adopt(
    claim: NodeClaim, instance: Instance, types: TypeLookup, ledger: Ledger, store: Store, now: datetime
) -> bool:
    """Record a pending claim's instance. Return False if another claim has it and this one is given up.

    Claims of a fleet get their instances by one rule, so this cannot happen while EC2 remembers its client tokens. If
    it happens anyway, garbage collection handles an instance that is left without a claim. Raises Conflict.
    """
    if any(other.instance_id == instance.id and other.name != claim.name for other in ledger.claims):
        store.save(claim.given_up("InstanceTaken", f"another NodeClaim has instance {instance.id}", now))
        return False
    store.save(launched_claim(claim, instance, types(claim, instance.instance_type), now))
    return True


def _learn(outcomes: Collection[LaunchOutcome], ledger: Ledger, store: Store, now: datetime) -> None:
    """Save what the outcomes reveal about capacity, before any claim advances."""
    short = backoffs(outcomes, ledger.unavailable, now)
    if short:
        store.save_unavailable(short)
    lost = lost_zones(short, now)
    throttled = any(isinstance(outcome, Deferred) and outcome.nothing_begun for outcome in outcomes)
    if lost or throttled:
        until = max((backoff.until for backoff in short.values()), default=now)
        store.record_scarcity(Scarcity(throttled, dict.fromkeys(sorted(lost), until)), now)
    full = subnet_backoffs(outcomes, now)
    if full:
        store.save_subnet_backoffs(full)
    available = served(outcomes) & set(ledger.unavailable)
    # That a pool has capacity again does not show that its instances last longer.
    recovered = sorted(key for key in available if ledger.unavailable[key].reason not in INTERRUPTIONS)
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
                store.save(claim.freed(nothing_begun=outcome.nothing_begun))
            case _:
                assert_never(outcome)
    except Conflict:
        # Another run settled the claim with the same outcome, since EC2 returns one instance for a client token.
        settled.launched.append(claim.name)


def _give_up(
    claim: NodeClaim,
    outcome: NoCapacity | Refused | Unfulfilled,
    ledger: Ledger,
    store: Store,
    now: datetime,
    settled: Settled,
) -> None:
    """Give up a claim whose call returned no instance. A new decision follows for its pods. Raises Conflict."""
    match outcome:
        case NoCapacity():
            ended = claim.given_up("InsufficientCapacity", shortage(outcome), now)
        case Refused():
            before = ledger.nodepool_backoffs.get(claim.nodepool)
            refused = nodepool_backoff(outcome, before, ledger.unavailable, now)
            if refused is not None:
                store.save_nodepool_backoff(claim.nodepool, refused)
            ended = claim.given_up(outcome.reason, outcome.message, now)
        case Unfulfilled():
            message = f"{outcome.reason}: {outcome.message}"
            ended = claim.given_up(TEMPORARILY_UNAVAILABLE, message, now)
            settled.postponed.append(f"NodeClaim {claim.name}: {message}")
        case _:
            assert_never(outcome)
    store.save(ended)
    settled.given_up.append(claim.name)


def _make_anew(
    claim: NodeClaim, outcome: TemplateMissing, store: Store, now: datetime, settled: Settled
) -> None:
    """Have a missing launch template created again. If the claim's client token is used up, give the claim up.

    Raises Conflict.
    """
    if outcome.is_answered:
        message = "a launch template of the request did not exist in EC2"
        store.save(claim.given_up("LaunchTemplateNotFound", message, now))
        settled.given_up.append(claim.name)
    else:
        message = "a launch template is missing and will be created again"
        settled.deferred.append(Deferred(claim.name, "LaunchTemplateNotFound", message))
        store.save(claim.freed(nothing_begun=False))


FEW_CALLS = 16
"""Calls that a run may make without the lock, so that a few pods do not wait for a write to the ledger."""
MANY_CALLS = 32
"""The most calls that a run may make while it holds the lock."""
LOCKED_FOR = timedelta(seconds=12)
"""How long the lock lasts. No run releases it earlier: it spreads calls over time, and need not keep runs apart."""
FEW_NODES_TOLERANCE = 0.25
"""How much more a plan may cost because it has fewer nodes, while calls are short, as a fraction."""
LOCKED_WHILE_SHORT = timedelta(seconds=5)
"""How long it lasts while calls are short: then all calls come from the budget, which spreads them."""


@dataclass(slots=True)
class Allowance:
    """The calls that one run may still make. It takes the lock when it first needs more than a few.

    While EC2 throttles calls of the region (`is_short`), it takes the lock for any call, and all calls from the budget.
    Runs that the lock keeps from buying leave their pods to the next run that has it, which buys for all together.
    """

    store: Store
    clock: Callable[[], datetime]
    left: int = FEW_CALLS
    until: datetime | None = None
    """until when the run holds the lock and has asked for calls, else None"""
    is_short: bool = False
    _spending: Spending = NO_SPENDING
    _has_asked: bool = False
    _locked_until: datetime | None = None

    def has_turn(self, spending: Spending) -> bool:
        """Return whether the run may decide: not while calls are short and another run holds the lock."""
        self._spending, self.is_short = spending, spending.is_short_of_calls(self.clock())
        if self.is_short and not self._has_asked:
            self._take_lock(self.clock())
        return not self.is_short or self._locked_until is not None

    def end_turn(self) -> bool:
        """Release a lock under which no call was asked for. Return whether another run waits for its turn."""
        if self._locked_until is None or self.until is not None:
            return False
        return self.store.release_lock(Concern.PROVISIONING, self._locked_until)

    def with_fewer_nodes(self, settings: NodeSettings) -> NodeSettings:
        """Return settings for the decision. EC2 counts instances, too: while it throttles, nodes are few and large."""
        if not self.is_short:
            return settings
        return replace(settings, fragility_tolerance=0.0, few_nodes_tolerance=FEW_NODES_TOLERANCE)

    def in_order(self, nodes: Sequence[PlannedNode]) -> Sequence[PlannedNode]:
        """Return nodes in the order of their purchase: while calls are short, first what serves most pods.

        Nodes that one zone alone may provide come last.
        """
        if not self.is_short:
            return nodes
        by_pods = sorted(nodes, key=lambda node: -len(node.claim.nominated))
        return sorted(by_pods, key=lambda node: len({row.zone for row in node.request.overrides}) == 1)

    def end_round(self, calls: int) -> None:
        """While calls are short, keep the lock until the cluster's part of the rate allows so many `calls` again."""
        if self.is_short and self.until is not None:
            self._prolong(self._spending.calls.next_round(calls, self.clock()))

    def of(self, calls: int) -> int:
        """Return how many of `calls` may be made now, and count them as made. Raises Transient."""
        if calls > self.left or (calls and self.is_short and not self._has_asked):
            self._ask(calls)
        granted = min(calls, self.left)
        self.left -= granted
        return granted

    def _ask(self, calls: int) -> None:
        """Take calls from the budget: as many as a run may make, or while they are short no more than `calls`."""
        now, made = self.clock(), FEW_CALLS - self.left
        is_first = self.until is None
        if not self._has_asked:
            self._take_lock(now)
        self.until = self._locked_until
        if self.until is None:
            self.left = 0
        elif self.is_short:
            missing = calls - self.left
            self.left += self.store.take_calls(missing, now)
            if self.left < calls:
                self._prolong(self._spending.turn(missing, now))
        elif is_first:
            self.left = self.store.take_calls(MANY_CALLS - made, now)

    def _prolong(self, until: datetime) -> None:
        """Keep the lock until the cluster's turn in line: decisions before that achieve nothing."""
        if self._locked_until is not None and until > self._locked_until:
            self.store.release_lock(Concern.PROVISIONING, self._locked_until)
            self.store.take_lock(Concern.PROVISIONING, self.clock(), until)
            self.until = self._locked_until = until

    def _take_lock(self, now: datetime) -> None:
        self._has_asked = True
        until = now + (LOCKED_WHILE_SHORT if self.is_short else LOCKED_FOR)
        if self.store.take_lock(Concern.PROVISIONING, now, until):
            self._locked_until = until
        if self.is_short:
            self.left = 0
