"""One look of disruption at a cluster: what it reads and writes, and what a warm process keeps from run to run."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from nodesmith.controllers.launching.launch import write_down
from nodesmith.controllers.runs.eventdeduplication import EventDeduplication, publish_new
from nodesmith.controllers.runs.outside import Outside
from nodesmith.controllers.runs.selfhints import SelfHints
from nodesmith.decisions.disruption.moves.stages import Scene
from nodesmith.decisions.provisioning import Inputs, decision_id
from nodesmith.errors import Failures
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Catalogs
from nodesmith.settings import decision_snapshot_key

AGAIN_AFTER = timedelta(minutes=15)
"""How long the same Event on the same object is not repeated, as in Karpenter."""


@dataclass(slots=True)
class Memory:
    """What a warm process keeps from run to run. Losing it does no harm."""

    told: EventDeduplication = field(default_factory=dict)
    looked_at: Mapping[str, datetime] = field(default_factory=dict)
    self_hints: SelfHints = field(default_factory=SelfHints)
    rests_until: datetime | None = None
    """until when no search begins, however much has changed"""
    seen: tuple[Snapshot, Ledger] | None = None
    """what the last search that found nothing to do looked at"""
    until: datetime | None = None
    """when the next search is made even though nothing has changed"""
    due: datetime | None = None
    """the next foreseeable moment at which time alone may change the result of a search"""
    next_search: datetime | None = None
    """the earliest moment at which time alone can change the result of the last search; None for never"""


@dataclass(frozen=True, slots=True)
class Disruption(Outside):
    """What a run needs."""

    settings: NodeSettings
    catalogs: Catalogs
    memory: Memory = field(default_factory=Memory)

    def publish_new(self, events: Iterable[ObjectEvent], most: int | None = None) -> None:
        """Publish the Events that were not published lately, at most `most` of them."""
        publish_new(self.cluster, events, self.memory.told, self.clock(), AGAIN_AFTER, most)

    def wake(self, concern: Concern, why: str, seconds: int = 0) -> None:
        """Wake a concern, after `seconds`."""
        self.hints.send(concern, Hint(self.cluster_name, why), seconds)

    def wake_me(self, wait: timedelta) -> None:
        """Have disruption look again after `wait`."""
        hint = Hint(self.cluster_name, "moves are under way")
        self.memory.self_hints.send(self.hints, Concern.DISRUPTION, hint, wait, self.clock())


@dataclass
class Look:
    """A snapshot, also as its raw `data`, and the ledger: read after the snapshot, and again whenever it has changed.

    `done` counts what was done. An error in one move is kept in `failures` until all others have been processed.
    """

    run: Disruption
    snapshot: Snapshot
    data: bytes
    ledger: Ledger
    done: Counter[str] = field(default_factory=Counter)
    failures: Failures = field(default_factory=Failures)
    decisions: list[str] = field(default_factory=list)
    due: datetime | None = None
    """when to look again although nothing changes; None for never"""

    def scene(self) -> Scene:
        """Return the input for deciding the steps of moves."""
        return Scene.of(self.snapshot, self.ledger, self.run.clock())

    def inputs(self, about: str = "") -> Inputs:
        """Return the input for deciding moves. Decisions with a different `about` have different ids."""
        now, ledger = self.run.clock(), replace(self.ledger, learned=self._learned)
        decision = decision_id(self.digest + about, ledger.version, now)
        settings = self.run.settings.in_cluster(ledger.cluster)
        return Inputs(self.snapshot, ledger, self._catalog, settings, now, decision)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the snapshot's data."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def _learned(self) -> Mapping[Boot, Offered]:
        return self.run.store.learned()

    @cached_property
    def _catalog(self) -> Catalog:
        return self.run.catalogs.latest()

    def reload(self) -> None:
        """Read the ledger again."""
        self.ledger = self.run.store.load()

    def claims(self, names: Sequence[str]) -> list[NodeClaim]:
        """Return the claims with these names that exist in the ledger."""
        return [claim for claim in self.ledger.claims if claim.name in names]

    def write_down(self, decision: str, written: Mapping[str, Any]) -> None:
        """Store a decision's record, before the decision is carried out."""
        write_down(self.run.blobs, self.run.cluster_name, decision, written)
        self.decisions.append(decision)

    def keep_snapshot(self, decision: str) -> None:
        """Store a decision's snapshot for replays. If the decision buys nodes, call this only after EC2 was asked."""
        self.run.blobs.put(decision_snapshot_key(self.run.cluster_name, decision), self.data)

    def supersede(self, decision: str, written: Mapping[str, Any]) -> None:
        """Record that a decision was not carried out, because another run was first."""
        write_down(self.run.blobs, self.run.cluster_name, decision, {**written, "superseded": True})
        self.decisions.remove(decision)
