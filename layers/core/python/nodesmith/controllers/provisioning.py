"""The story of provisioning: carry on what was begun, look, decide, write it down, commit, launch; again if need be."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from nodesmith.controllers.launching import carry_on
from nodesmith.controllers.snapshots import own_snapshot
from nodesmith.decisions.provisioning import Inputs, Plan, PlannedNode, canonical, decide, decision_id, record
from nodesmith.effects import Settled, TypeLookup, intent, launch
from nodesmith.errors import Conflict, Transient
from nodesmith.model.capacity import NodeConfiguration, NodeSettings
from nodesmith.model.catalog import Catalog
from nodesmith.model.events import Concern, Hint
from nodesmith.model.instancetypes import InstanceType, instance_types
from nodesmith.model.ledger import Ledger
from nodesmith.model.nodeclasses import EC2NodeClass, parse_nodeclass
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cloud, Hints, Store
from nodesmith.settings import decision_key, decision_snapshot_key, snapshot_key

MAX_ROUNDS = 12
"""Looks in one run: one for each offering list that turned out empty, lost race or full commit, then enough."""
COMMIT_NODES = 90
"""Nodes in one commit: DynamoDB's transactions hold 100 items."""
COMMIT_NAMES_LENGTH = 2_000_000
"""Characters of pods' names in one commit. A transaction holds 4 MB, and the rest of 90 claims takes up to 1.5."""


class Catalogs(Protocol):
    """Where the catalogue of the region is kept."""

    def latest(self) -> Catalog:
        """Read it."""


@dataclass(frozen=True, slots=True)
class Provisioning:
    """What a run needs. `clock` gives the time, `stopwatch` seconds that only go forward."""

    cluster: str
    settings: NodeSettings
    store: Store
    cloud: Cloud
    blobs: Blobs
    hints: Hints
    catalogs: Catalogs
    clock: Callable[[], datetime]
    stopwatch: Callable[[], float]


@dataclass(slots=True)
class Outcome:
    """What a run did: decisions written, claims by what became of them."""

    decisions: list[str] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)


def provision(run: Provisioning) -> Outcome:
    """Serve the pending pods of a cluster.

    Raises Transient once everything else is done when a launch has to be repeated, Rejected when the snapshot or the
    catalogue cannot be read.
    """
    outcome = Outcome()
    deferred: list[str] = []
    for _ in range(MAX_ROUNDS):
        started = run.stopwatch()
        data = run.blobs.get(snapshot_key(run.cluster))
        if data is None:
            return outcome
        snapshot, ledger, catalog = own_snapshot(data, run.cluster), run.store.load(), run.catalogs.latest()
        types = _TypeTable(snapshot, catalog, run.settings)
        resumed = _resume(run, ledger, types, deferred)
        _note(outcome, resumed, deferred)
        if resumed.launched or resumed.given_up:
            ledger = run.store.load()
        now = run.clock()
        digest = hashlib.sha256(data).hexdigest()
        inputs = Inputs(
            snapshot, ledger, catalog, run.settings, now, decision_id(digest, ledger.version, now)
        )
        loaded = run.stopwatch()
        outcome.plan = plan = decide(inputs)
        durations = {"load": (loaded - started) * 1000, "decide": (run.stopwatch() - loaded) * 1000}
        _write_down(run, inputs, plan, digest, durations, outcome)
        if not plan.nodes:
            break
        try:
            nodes = committable(plan.nodes)
            settled = _buy(run, nodes, ledger, types, inputs.decision, data)
        except Conflict:
            _write_down(run, inputs, plan, digest, durations, outcome, superseded=True)
            continue
        _note(outcome, settled, deferred)
        if not settled.given_up and len(nodes) == len(plan.nodes):
            break
    else:
        run.hints.send(Concern.PROVISIONING, Hint(run.cluster, f"not done after {MAX_ROUNDS} looks"))
    _wake(run, outcome)
    if deferred:
        raise Transient("; ".join(deferred), "Deferred")
    return outcome


def _resume(run: Provisioning, ledger: Ledger, types: _TypeTable, deferred: list[str]) -> Settled:
    """See to the claims left behind. Where that fails they are on their way still, and new pods need not wait."""
    try:
        return carry_on(ledger, types.nodeclasses, types, run.store, run.cloud, run.clock)
    except Transient as error:
        deferred.append(f"NodeClaims left behind: {error}")
        return Settled()


def committable(nodes: Sequence[PlannedNode]) -> Sequence[PlannedNode]:
    """Give as many of the first nodes as one transaction holds, at least one. Names of pods may be long."""
    length = 0
    for number, node in enumerate(nodes[:COMMIT_NODES]):
        length += sum(map(len, node.claim.nominated))
        if number and length > COMMIT_NAMES_LENGTH:
            return nodes[:number]
    return nodes[:COMMIT_NODES]


def _buy(
    run: Provisioning,
    nodes: Sequence[PlannedNode],
    ledger: Ledger,
    types: TypeLookup,
    decision: str,
    snapshot: bytes,
) -> Settled:
    intents = [intent(node, run.clock()) for node in nodes]
    run.store.commit(ledger.version, intents, decision)
    templates = {t.name: t for node in nodes for t in node.templates}
    committed = [replace(claim, revision=1) for claim in intents]
    settled = launch(
        committed, [templates[n] for n in sorted(templates)], ledger, types, run.store, run.cloud, run.clock
    )
    run.blobs.put(decision_snapshot_key(run.cluster, decision), snapshot)
    return settled


def _write_down(
    run: Provisioning,
    inputs: Inputs,
    plan: Plan,
    digest: str,
    durations: dict[str, float],
    outcome: Outcome,
    *,
    superseded: bool = False,
) -> None:
    """Every decision about a pod leaves a record, before anything comes of it; once more if nothing did."""
    if plan.is_idle:
        return
    written = canonical(record(inputs, plan, digest, durations, superseded=superseded))
    run.blobs.put(decision_key(run.cluster, inputs.decision), gzip.compress(written, 6, mtime=0))
    if not superseded:
        outcome.decisions.append(inputs.decision)
    else:
        outcome.decisions.remove(inputs.decision)


def _note(outcome: Outcome, settled: Settled, deferred: list[str]) -> None:
    outcome.launched += settled.launched
    outcome.given_up += settled.given_up
    outcome.deferred += [d.claim for d in settled.deferred]
    deferred += [f"NodeClaim {d.claim}: {d.reason}: {d.message}" for d in settled.deferred]


def _wake(run: Provisioning, outcome: Outcome) -> None:
    if outcome.launched or outcome.given_up or outcome.deferred:
        run.hints.send(Concern.LIFECYCLE, Hint(run.cluster, "claims changed"))


class _TypeTable:
    """Looks instance types up by EC2NodeClass and name."""

    def __init__(self, snapshot: Snapshot, catalog: Catalog, settings: NodeSettings) -> None:
        parsed = [parse_nodeclass(manifest).value for manifest in snapshot.nodeclasses]
        self.nodeclasses: dict[str, EC2NodeClass] = {n.name: n for n in parsed if n is not None}
        self._catalog, self._settings = catalog, settings
        self._tables: dict[str, dict[str, InstanceType]] = {}

    def __call__(self, nodeclass: str, name: str) -> InstanceType | None:
        if nodeclass not in self.nodeclasses:
            return None
        if nodeclass not in self._tables:
            configuration = NodeConfiguration.of(self.nodeclasses[nodeclass])
            types = instance_types(self._catalog, configuration, self._settings)
            self._tables[nodeclass] = {t.name: t for t in types}
        return self._tables[nodeclass].get(name)
