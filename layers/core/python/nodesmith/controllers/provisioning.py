"""The story of provisioning: carry on what was begun, look, decide, write it down, commit, launch; again if need be."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from nodesmith.controllers.launching import carry_on
from nodesmith.controllers.snapshots import own_snapshot
from nodesmith.controllers.unplaced import write_unplaced
from nodesmith.decisions.provisioning import (
    Inputs,
    Plan,
    PlannedNode,
    by_hand,
    canonical,
    decide,
    decision_id,
    record,
    replicas,
)
from nodesmith.effects import Settled, TypeLookup, intent, launch
from nodesmith.errors import Conflict, Transient
from nodesmith.model.capacity import NodeConfiguration, NodeSettings
from nodesmith.model.catalog import Catalog
from nodesmith.model.events import Concern, Hint
from nodesmith.model.instancetypes import InstanceType
from nodesmith.model.learnedtypes import known_types
from nodesmith.model.ledger import Ledger
from nodesmith.model.nodeclasses import EC2NodeClass, parse_nodeclass
from nodesmith.model.nodepools import parsed_nodepools
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

    cluster_name: str
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
    """What a run did: decisions written, claims by what became of them; `deferred` says what is to be repeated.

    `unplaced` tells that pods stay, and that it was written down why.
    """

    decisions: list[str] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    unplaced: bool = False

    def note(self, settled: Settled) -> None:
        """Add what became of launches."""
        self.launched += settled.launched
        self.given_up += settled.given_up
        self.deferred += [f"NodeClaim {d.claim}: {d.reason}: {d.message}" for d in settled.deferred]


def provision(run: Provisioning) -> Outcome:
    """Serve the pending pods of a cluster.

    Raises Transient once everything else is done when a launch has to be repeated, Rejected when the snapshot or the
    catalogue cannot be read.
    """
    outcome = Outcome()
    for _ in range(MAX_ROUNDS):
        if _look(run, outcome):
            break
    else:
        run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, f"not done after {MAX_ROUNDS} looks"))
    if outcome.launched or outcome.given_up or outcome.deferred:
        run.hints.send(Concern.LIFECYCLE, Hint(run.cluster_name, "claims changed"))
    elif outcome.unplaced:
        run.hints.send(Concern.LIFECYCLE, Hint(run.cluster_name, "pods stay"))
    if outcome.deferred:
        raise Transient("; ".join(outcome.deferred), "Deferred")
    return outcome


def _look(run: Provisioning, outcome: Outcome) -> bool:
    """Look once, decide, write it down and buy; tell whether there is nothing more to do."""
    started = run.stopwatch()
    data = run.blobs.get(snapshot_key(run.cluster_name))
    if data is None:
        return True
    snapshot, catalog = own_snapshot(data, run.cluster_name), run.catalogs.latest()
    ledger = replace(run.store.load(), learned=run.store.learned())
    types = _TypeTable(snapshot, catalog, run.settings, ledger)
    ledger = _resume(run, ledger, types, outcome)
    now, digest = run.clock(), hashlib.sha256(data).hexdigest()
    decision = decision_id(digest, ledger.version, now)
    inputs = Inputs(snapshot, ledger, catalog, run.settings, now, decision)
    refused = _buy_without_pods(run, inputs, types, outcome)
    if refused is None:
        return False
    loaded = run.stopwatch()
    outcome.plan = plan = decide(inputs)
    durations = {"load": (loaded - started) * 1000, "decide": (run.stopwatch() - loaded) * 1000}
    if plan.is_idle:
        _note_unplaced(run, outcome, refused, now)
        return True
    # Every decision about a pod leaves a record, before anything comes of it; once more if nothing did.
    written = record(inputs, plan, digest, durations)
    _write_down(run, decision, written)
    outcome.decisions.append(decision)
    nodes = committable(plan.nodes)
    done = True
    if nodes:
        try:
            settled = _buy(run, nodes, ledger, types, decision)
            outcome.note(settled)
            done = not settled.given_up and len(nodes) == len(plan.nodes)
        except Conflict:
            _write_down(run, decision, {**written, "superseded": True})
            outcome.decisions.remove(decision)
            done = False
    # For replays and for people, and so only once EC2 has been asked.
    run.blobs.put(decision_snapshot_key(run.cluster_name, decision), data)
    _note_unplaced(run, outcome, refused, now)
    return done


def _note_unplaced(run: Provisioning, outcome: Outcome, refused: Mapping[str, str], now: datetime) -> None:
    if outcome.plan.unplaced or refused:
        write_unplaced(run.blobs, run.cluster_name, outcome.plan, now, refused)
        outcome.unplaced = bool(outcome.plan.unplaced)


def _buy_without_pods(
    run: Provisioning, inputs: Inputs, types: TypeLookup, outcome: Outcome
) -> Mapping[str, str] | None:
    """Buy what users' own NodeClaims and static NodePools ask for, or give why they get nothing (by Kind/name).

    None where something was bought, and one has to look again.
    """
    (own, refused), (static, short) = by_hand(inputs), replicas(inputs)
    planned = [*own, *static]
    if not planned:
        named = {f"NodeClaim/{name}": why for name, why in refused.items()}
        return {**named, **{f"NodePool/{name}": why for name, why in short.items()}}
    with suppress(Conflict):  # another run was first, perhaps with the very same
        outcome.note(_buy(run, committable(planned), inputs.ledger, types, inputs.decision))
    return None


def _resume(run: Provisioning, ledger: Ledger, types: _TypeTable, outcome: Outcome) -> Ledger:
    """See to the claims left behind, and give the ledger as it then is.

    Where that fails they are on their way still, and new pods need not wait.
    """
    try:
        settled = carry_on(ledger, types.nodepools, types.nodeclasses, types, run.store, run.cloud, run.clock)
    except Transient as error:
        outcome.deferred.append(f"NodeClaims left behind: {error}")
        return ledger
    outcome.note(settled)
    if not (settled.launched or settled.given_up):
        return ledger
    return replace(run.store.load(), learned=ledger.learned)


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
) -> Settled:
    intents = [intent(node, run.clock()) for node in nodes]
    run.store.commit(ledger.version, intents, decision)
    templates = {t.name: t for node in nodes for t in node.templates}
    committed = [replace(claim, revision=1) for claim in intents]
    wanted = [templates[name] for name in sorted(templates)]
    return launch(committed, wanted, ledger, types, run.store, run.cloud, run.clock)


def _write_down(run: Provisioning, decision: str, written: Mapping[str, Any]) -> None:
    run.blobs.put(decision_key(run.cluster_name, decision), gzip.compress(canonical(written), 6, mtime=0))


class _TypeTable:
    """Looks instance types up by EC2NodeClass and name."""

    def __init__(self, snapshot: Snapshot, catalog: Catalog, settings: NodeSettings, ledger: Ledger) -> None:
        self._statuses, self._learned = ledger.nodeclasses, ledger.learned
        parsed = [parse_nodeclass(manifest).value for manifest in snapshot.nodeclasses]
        self.nodeclasses: dict[str, EC2NodeClass] = {n.name: n for n in parsed if n is not None}
        self.nodepools = parsed_nodepools(snapshot.nodepools)
        self._catalog, self._settings = catalog, settings
        self._tables: dict[str, dict[str, InstanceType]] = {}

    def __call__(self, nodeclass: str, name: str) -> InstanceType | None:
        if nodeclass not in self.nodeclasses:
            return None
        if nodeclass not in self._tables:
            configuration = NodeConfiguration.of(self.nodeclasses[nodeclass])
            status = self._statuses.get(nodeclass)
            types = known_types(self._catalog, configuration, self._settings, status, self._learned)
            self._tables[nodeclass] = {t.name: t for t in types}
        return self._tables[nodeclass].get(name)
