"""Buying nodes: commit the intents, call EC2 and settle its answers, for provisioning and disruption alike.

Nodes for users' NodeClaims and static NodePools are bought although no pod waits for them. For these, a snapshot may be
old only because nothing has changed since, which the forwarder's heartbeat confirms.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from nodesmith.controllers.launching.pendingclaims import call_of, first_calls
from nodesmith.controllers.launching.unschedulable import Refused
from nodesmith.decisions.launch.templates import tenancy
from nodesmith.decisions.provisioning import (
    Inputs,
    Plan,
    PlannedNode,
    as_pool,
    by_hand,
    is_old,
    record,
    replicas,
)
from nodesmith.decisions.provisioning.attempts import removed_soon
from nodesmith.decisions.provisioning.nodepools.static import left_of
from nodesmith.decisions.provisioning.nodepools.tiers import parsed_nodeclasses
from nodesmith.decisions.provisioning.plan import MANY_CLAIMS
from nodesmith.decisions.scheduling.compatibility import type_set
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.errors import Conflict, Transient
from nodesmith.keys import decision_key, decision_snapshot_key
from nodesmith.launcheffects import (
    Allowance,
    Settled,
    TypeLookup,
    intents,
    launch,
    start,
)
from nodesmith.model.apimachinery.frozen import canonical
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.functions import Heartbeat
from nodesmith.model.karpenter.nodeclaimobjects import CREATED_FOR
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.learned import known_types
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cloud, Store

COMMIT_NODES = 90
"""The most nodes in one commit: a DynamoDB transaction holds 100 items."""
COMMIT_NAMES_LENGTH = 2_000_000
"""The most characters of pod names and annotations in a commit.

A transaction holds 4 MB, and the rest of 90 claims takes up to 1.5.
"""
_ATTEMPT_LENGTH = 20
"""The characters that each workload adds to a claim."""


class Buyer(Protocol):
    """A run that buys."""

    @property
    def store(self) -> Store:
        """The ledger."""

    @property
    def cloud(self) -> Cloud:
        """EC2."""

    @property
    def clock(self) -> Callable[[], datetime]:
        """The time."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of the run."""


def buy(
    run: Buyer,
    nodes: Sequence[PlannedNode],
    ledger: Ledger,
    types: TypeLookup,
    decision: str,
    move: Move | None = None,
) -> Settled:
    """Commit the intents, together with the stage of their `move` if any, and launch. Raises Conflict, Transient."""
    claims = intents(nodes, run.clock())
    if move is not None:
        claims = [_created_for(claim, move, ledger, run.clock()) for claim in claims]
    run.store.commit(ledger.version, claims, decision, move)
    return _launched(run, nodes, claims, ledger, types)


def buy_many(
    run: Buyer,
    nodes: Sequence[PlannedNode],
    ledger: Ledger,
    types: TypeLookup,
    decision: str,
    allowance: Allowance,
) -> tuple[Settled, int]:
    """Buy as many of the first nodes as `allowance` and the launches that are left this hour permit.

    Return what became of them, and how many were committed.

    Each commit takes as many nodes as one transaction holds. Raises Transient, and Conflict if the first commit fails.
    """
    claims: list[NodeClaim] = []
    is_cut = False
    nodes = allowance.in_order(nodes)[: ledger.spending.launches_left(run.clock())]
    while len(claims) < len(nodes) and not is_cut:
        requested = intents(committable(nodes[len(claims) :]), run.clock())
        affordable = first_calls(requested, allowance.of(len(set(map(call_of, requested)))))
        is_cut = len(affordable) < len(requested)
        if not affordable:
            break
        try:
            run.store.commit(ledger.version, affordable, decision)
        except Conflict:
            if not claims:
                raise
            break  # another run has bought nodes, so the rest needs a new decision
        ledger = replace(ledger, version=ledger.version + 1)
        claims += affordable
    settled = _launched(run, nodes, claims, ledger, types)
    settled.is_cut = is_cut
    if claims and not (is_cut or settled.is_throttled or settled.given_up):
        allowance.end_round(len(set(map(call_of, claims))))
    return settled, len(claims)


def start_many(
    run: Buyer, claims: Sequence[NodeClaim], ledger: Ledger, decision: str, allowance: Allowance
) -> tuple[Settled, int]:
    """Commit that claims start, as many as `allowance` permits, and start their instances; return how many.

    Raises Transient, and Conflict if another run has committed since `ledger` was read or has changed a claim.
    """
    now = run.clock()
    leased = [
        claim.leased(now)
        for claim in claims[: min(COMMIT_NODES, allowance.of(min(COMMIT_NODES, len(claims))))]
    ]
    if not leased:
        return Settled(is_cut=bool(claims)), 0
    run.store.commit(ledger.version, [], decision, changed=leased)
    saved = [replace(claim, revision=claim.revision + 1) for claim in leased]
    settled = start(saved, ledger, run.store, run.cloud, run.clock)
    settled.is_cut = len(leased) < len(claims)
    return settled, len(leased)


def _launched(
    run: Buyer,
    nodes: Sequence[PlannedNode],
    claims: Sequence[NodeClaim],
    ledger: Ledger,
    types: TypeLookup,
) -> Settled:
    names = {claim.name for claim in claims}
    templates = {t.name: t for node in nodes if node.claim.name in names for t in node.templates}
    committed = [replace(claim, revision=1) for claim in claims]
    needed = [templates[name] for name in sorted(templates)]
    settled = launch(committed, needed, ledger, types, run.store, run.cloud, run.clock)
    note_refused(run.metrics, settled, ledger)
    return settled


def note_refused(metrics: Metrics, settled: Settled, ledger: Ledger) -> None:
    """Count each offering that EC2 refused to a call, even if another offering served the call."""
    statuses = ledger.nodeclasses.values()
    zone_ids = {subnet.zone: subnet.zone_id for status in statuses for subnet in status.subnets}
    for _, offering, code in sorted(settled.refused):
        metrics.count(
            "cloudprovider_instance_launch_failures_total",
            zone=offering.zone,
            zone_id=zone_ids.get(offering.zone, ""),
            capacity_type=offering.capacity_type,
            reason=code,
        )


def _created_for(claim: NodeClaim, move: Move, ledger: Ledger, now: datetime) -> NodeClaim:
    """Return a replacement with what it is for, and how many nodes in a row were replaced soon before it."""
    sources = [c for c in ledger.claims if c.name in move.sources]
    rows = (
        s.removals_before + 1
        for s in sources
        if removed_soon(s.bought_at, now, move.reason, s.removals_before)
    )
    annotations = {**claim.annotations, CREATED_FOR: move.reason.lower()}
    return replace(claim, annotations=annotations, removals_before=max(rows, default=0))


def committable(nodes: Sequence[PlannedNode]) -> Sequence[PlannedNode]:
    """Return as many of the first nodes as one transaction holds, at least one.

    Pod names may be long, and so may the annotations of a NodePool's template.
    """
    length = 0
    for number, node in enumerate(nodes[:COMMIT_NODES]):
        length += sum(map(len, node.claim.nominated)) + _ATTEMPT_LENGTH * len(node.claim.attempts)
        length += len(json.dumps(dict(node.claim.annotations)))
        if number and length > COMMIT_NAMES_LENGTH:
            return nodes[:number]
    return nodes[:COMMIT_NODES]


def write_down(blobs: Blobs, cluster: str, decision: str, written: Mapping[str, Any]) -> None:
    """Store a decision's record."""
    blobs.put(decision_key(cluster, decision), gzip.compress(canonical(written), 6, mtime=0))


class Recorder(Protocol):
    """A run that records what it decides."""

    @property
    def cluster_name(self) -> str:
        """The cluster that it decides for."""

    @property
    def blobs(self) -> Blobs:
        """Where records are kept."""


def recorded(
    run: Recorder,
    inputs: Inputs,
    plan: Plan,
    data: bytes,
    durations_ms: Mapping[str, float],
    carry_out: Callable[[], bool | None],
) -> bool | None:
    """Record a decision before it is carried out, and again if it was superseded: then `carry_out` returns None.

    Data that only replays need is stored after EC2 was asked: the snapshot's `data`, and the claims if there are many.
    Return what `carry_out` does.
    """
    digest, is_whole = hashlib.sha256(data).hexdigest(), len(inputs.ledger.claims) < MANY_CLAIMS
    written = record(inputs, plan, digest, durations_ms, with_claims=is_whole)
    write_down(run.blobs, run.cluster_name, inputs.decision, written)
    outcome = carry_out()
    if not is_whole:
        written = record(inputs, plan, digest, durations_ms)
    if outcome is None or not is_whole:
        written["superseded"] = outcome is None
        write_down(run.blobs, run.cluster_name, inputs.decision, written)
    run.blobs.put(decision_snapshot_key(run.cluster_name, inputs.decision), data)
    return outcome


class TypeTable:
    """Looks up instance types by NodeClaim and name, as the claim buys them and NodeOverlays change them."""

    def __init__(self, snapshot: Snapshot, catalog: Catalog, settings: NodeSettings, ledger: Ledger) -> None:
        self._statuses, self._learned = ledger.nodeclasses, ledger.learned
        self.nodeclasses = parsed_nodeclasses(snapshot)
        self.nodepools = parsed_nodepools(snapshot.nodepools)
        self._catalog, self._settings = catalog, settings
        self._overlays = overlays_of(snapshot, catalog, settings)
        self._tables: dict[tuple[str, str, str], dict[str, InstanceType]] = {}

    def __call__(self, claim: NodeClaim, name: str) -> InstanceType | None:
        nodeclass, tenancy_ = claim.nodeclass.name, tenancy(claim.requirements)
        if nodeclass not in self.nodeclasses:
            return None
        pool = self._pool(claim) if self._overlays.applied else None
        of = nodeclass, tenancy_, claim.name if claim.is_by_hand else pool.name if pool else ""
        if of not in self._tables:
            configuration = NodeConfiguration.of(self.nodeclasses[nodeclass], (tenancy_,))
            status = self._statuses.get(nodeclass)
            types = known_types(self._catalog, configuration, self._settings, status, self._learned)
            offered = self._overlays.on(pool, type_set(types)).types if pool else types
            self._tables[of] = {t.name: t for t in offered}
        return self._tables[of].get(name)

    def _pool(self, claim: NodeClaim) -> NodePool | None:
        return as_pool(claim) if claim.is_by_hand else self.nodepools.get(claim.nodepool)


def buy_without_pods(
    run: Buyer,
    inputs: Inputs,
    last_heartbeat: Callable[[], Heartbeat | None],
    types: TypeLookup,
    allowance: Allowance,
) -> tuple[Refused | None, Settled]:
    """Buy the nodes that users' NodeClaims and static NodePools request, or return the reasons why they get none.

    The first value is None if a purchase was tried, so that the caller must look again. Raises Transient, Rejected.
    """
    quotas = left_of(inputs)
    own, (static, short) = (
        by_hand(with_confirmed_time(inputs, last_heartbeat), quotas),
        replicas(inputs, quotas),
    )
    planned = [*own.planned, *static]
    if not planned:
        refusals = {f"NodeClaim/{name}": reason for name, reason in own.refused.items()}
        refusals |= {f"NodePool/{name}": reason for name, reason in short.items()}
        return Refused(refusals, own.unschedulable), Settled()
    settled = Settled()
    with suppress(Conflict):  # another run was first, perhaps with the same nodes
        settled, _ = buy_many(run, planned, inputs.ledger, types, inputs.decision, allowance)
    return None, settled


def no_heartbeat() -> Heartbeat | None:
    """Return None: there is no heartbeat."""
    return None


def with_confirmed_time(inputs: Inputs, last_heartbeat: Callable[[], Heartbeat | None]) -> Inputs:
    """Return `inputs` with the snapshot's time moved to the last moment at which the forwarder confirms its content.

    The heartbeat is read only if the snapshot is old. If it cannot be read, users' NodeClaims wait. Raises Rejected.
    """
    if not is_old(inputs):
        return inputs
    with suppress(Transient):
        return replace(inputs, snapshot=_still_true(inputs.snapshot, last_heartbeat(), inputs.now))
    return inputs


def _still_true(snapshot: Snapshot, heartbeat: Heartbeat | None, now: datetime) -> Snapshot:
    if heartbeat is None or heartbeat.changed > snapshot.taken_at:
        return snapshot
    return replace(snapshot, taken_at=max(snapshot.taken_at, min(heartbeat.at, now)))


def buy_gang(
    run: Buyer,
    nodes: Sequence[PlannedNode],
    ledger: Ledger,
    types: TypeLookup,
    decision: str,
    allowance: Allowance,
    gang: Gang,
) -> Settled:
    """Commit a gang with its nodes, all of them before EC2 is called for any, and launch as many as is allowed.

    The others are launched by the next run. If another run commits between two of the commits that many nodes need, the
    gang lacks nodes, which the next decision about it replaces. Raises Transient, and Conflict if nothing was
    committed.
    """
    requested = intents(nodes, run.clock())
    now = first_calls(requested, allowance.of(len(set(map(call_of, requested)))))
    names = {claim.name for claim in now}
    requested = [claim if claim.name in names else claim.freed(nothing_begun=True) for claim in requested]
    count = len(committable(nodes))
    run.store.commit(ledger.version, requested[:count], decision, gang=gang)
    committed = _commit_rest(run, nodes, requested, count, ledger.version + 1, decision)
    settled = _launched(run, nodes, [claim for claim in committed if claim.name in names], ledger, types)
    settled.is_cut = len(names) < len(requested)
    return settled


def _commit_rest(
    run: Buyer,
    nodes: Sequence[PlannedNode],
    requested: Sequence[NodeClaim],
    committed: int,
    version: int,
    decision: str,
) -> Sequence[NodeClaim]:
    """Commit the claims after the first `committed`; return those that are committed."""
    while committed < len(requested):
        count = len(committable(nodes[committed:]))
        try:
            run.store.commit(version, requested[committed : committed + count], decision)
        except Conflict:
            break
        committed, version = committed + count, version + 1
    return requested[:committed]
