"""The controller of commitments, and of the object that lists what NodePools may buy.

Commitments are read with what runs in the region, and shared between clusters.

Anything that cannot be read keeps its last known value, and the fault is stored beside it, for `nodesmith status`.
Purchases never wait for commitments: without them, prices are those of the catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from nodesmith.decisions.provisioning import Inputs, PlannedNode
from nodesmith.decisions.provisioning.nodepools.onsale import on_sale
from nodesmith.decisions.scheduling.offerings.commitments import applied_now, on_demand_prices, usage_of
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.keys import commitments_key, on_sale_key
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ON_DEMAND
from nodesmith.model.apimachinery.problems import Problem
from nodesmith.model.costs.commitmentsettings import CommitmentSettings
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.ledger.commitments import (
    NO_COMMITMENTS,
    Commitment,
    CommitmentBook,
    Commitments,
    Usage,
    book_item,
    family_of,
)
from nodesmith.model.metrics.objects import write_on_sale
from nodesmith.ports import NONE_THERE, Blobs, CommitmentStore, VersionedBlobs

T = TypeVar("T")
_ATTEMPTS = 5


class CommitmentReader(Protocol):
    """The commitments of an account. Each call returns a complete answer, or raises Transient or Rejected."""

    def savings_plans(self) -> Sequence[Commitment]:
        """Return the Savings Plans that apply to instances of the region."""

    def reserved_instances(self, vcpus: Mapping[str, int]) -> Sequence[Commitment]:
        """Return the Reserved Instances of the region. `vcpus` are those of bare metal types."""

    def running(self) -> Mapping[str, Usage]:
        """Return what runs on demand, by cluster; under the empty name what belongs to none."""


@dataclass(frozen=True, slots=True)
class CommitmentReading:
    """The result of a reading: what is known now, and the faults that the previous reading did not have."""

    book: CommitmentBook
    new_faults: tuple[str, ...]


def read_commitments_of(
    reader: CommitmentReader,
    payer: Callable[[], CommitmentReader] | None,
    settings: CommitmentSettings,
    store: CommitmentStore,
    blobs: Blobs,
    catalog: Catalog,
    now: datetime,
) -> CommitmentReading:
    """Read the commitments of the account and of its payer, add the listed ones, and write all of them.

    `payer` returns the payer's commitments, which the role of the settings gives access to.
    """
    known_book, faults = store.load().book, list[str]()
    vcpus = _vcpus_of_metal(catalog)
    commitments = _of_account(reader, vcpus, known_book, faults, of_payer=False)
    if payer is not None:
        payer_reader = _result_of(payer, faults)
        commitments += (
            _last_read(known_book, of_payer=True)
            if payer_reader is None
            else _of_account(payer_reader, vcpus, known_book, faults, of_payer=True)
        )
    commitments += _listed(settings, catalog, vcpus, now, faults)
    running = _result_of(reader.running, faults)
    # A commitment that the payer shares may appear in both accounts.
    once = {commitment.id: commitment for commitment in commitments}
    book = CommitmentBook(
        now,
        tuple(once[id_] for id_ in sorted(once)),
        known_book.running if running is None else running,
        tuple(faults),
        settings.share,
        vcpus,
    )
    store.keep(book)
    blobs.put(commitments_key(catalog.region), json.dumps(book_item(book), sort_keys=True).encode())
    return CommitmentReading(book, tuple(fault for fault in faults if fault not in known_book.faults))


def _of_account(
    reader: CommitmentReader,
    vcpus: Mapping[str, int],
    book: CommitmentBook,
    faults: list[str],
    *,
    of_payer: bool,
) -> list[Commitment]:
    plans, reserved = (
        _result_of(reader.savings_plans, faults),
        _result_of(lambda: reader.reserved_instances(vcpus), faults),
    )
    before = _last_read(book, of_payer=of_payer)
    return [
        *(plans if plans is not None else (commitment for commitment in before if commitment.kind.is_plan)),
        *(
            reserved
            if reserved is not None
            else (commitment for commitment in before if not commitment.kind.is_plan)
        ),
    ]


def _last_read(book: CommitmentBook, *, of_payer: bool) -> list[Commitment]:
    return [
        commitment
        for commitment in book.commitments
        if commitment.of_payer is of_payer and not _is_listed(commitment)
    ]


def _is_listed(commitment: Commitment) -> bool:
    return commitment.id.startswith("commitment ")


def _result_of(call: Callable[[], T], faults: list[str]) -> T | None:
    try:
        return call()
    except (Transient, Rejected) as failure:
        faults.append(str(failure))
        return None


def _listed(
    settings: CommitmentSettings, catalog: Catalog, vcpus: Mapping[str, int], now: datetime, faults: list[str]
) -> list[Commitment]:
    prices = {kind: price for (kind, _), price in sorted(on_demand_prices(catalog).items())}
    commitments: list[Commitment] = []
    for entry in settings.listed:
        result = entry.commitment(prices, vcpus)
        if isinstance(result, Problem):
            faults.append(str(result))
        elif result.ends <= now:
            faults.append(f"{entry.name}: ends: it has expired: remove it")
        else:
            commitments.append(result)
    return commitments


def _vcpus_of_metal(catalog: Catalog) -> FrozenMap[int]:
    return FrozenMap(
        {
            name: facts.vcpus
            for name, facts in catalog.facts.items()
            if isinstance(facts, InstanceFacts) and name == f"{family_of(name)}.metal"
        }
    )


def known_commitments(store: CommitmentStore | None) -> Commitments:
    """Return the commitments for a decision; none if they are not configured or cannot be read now."""
    try:
        return store.load() if store is not None else NO_COMMITMENTS
    except Transient:
        return NO_COMMITMENTS


def claim_commitments(
    store: CommitmentStore | None, inputs: Inputs, nodes: Sequence[PlannedNode], now: datetime
) -> None:
    """Report what a cluster will use of commitments, before it buys nodes on them.

    Raises Conflict if other clusters have meanwhile used what the plan counts on. If the report cannot be written, the
    purchase goes on: at worst, its nodes cost their on-demand price.
    """
    cluster = inputs.ledger.cluster
    names = {node.request.cheapest.commitment for node in nodes} - {""}
    if store is None or cluster is None or not names:
        return
    usage = _with(usage_of(inputs.ledger.claims), nodes)
    commitments = inputs.ledger.commitments
    try:
        for _ in range(_ATTEMPTS):
            try:
                store.report(commitments.reporting(cluster.name, usage, now))
                return
            except Conflict:
                commitments = store.load()
            _require_left(replace(inputs, ledger=replace(inputs.ledger, commitments=commitments)), nodes)
    except Transient:
        return


def _with(usage: dict[tuple[str, str], float], nodes: Sequence[PlannedNode]) -> dict[tuple[str, str], float]:
    for node in nodes:
        cheapest = node.request.overrides[0]
        if node.claim.capacity_type == ON_DEMAND:
            key = cheapest.instance_type, cheapest.zone
            usage[key] = usage.get(key, 0.0) + 1
    return usage


def _require_left(inputs: Inputs, nodes: Sequence[PlannedNode]) -> None:
    """Raise Conflict unless what is left of commitments is still enough for these nodes."""
    applied = applied_now(inputs.ledger, inputs.catalog, inputs.now)
    pools = {pool.name: pool for pool in applied.pools} if applied is not None else {}
    remaining = dict(applied.left) if applied is not None else {}
    for node in nodes:
        cheapest = node.request.overrides[0]
        if cheapest.commitment and not cheapest.price_hourly_usd:
            pool = pools.get(cheapest.commitment)
            use = pool.use(cheapest.instance_type, cheapest.zone) if pool is not None else 1
            remaining[cheapest.commitment] = remaining.get(cheapest.commitment, 0) - use
            if remaining[cheapest.commitment] < 0:
                raise Conflict(f"another cluster has used what was left of {cheapest.commitment}")


@dataclass(frozen=True, slots=True)
class UsageKeeper:
    """Keeps a cluster's report up to date from run to run, so that others know what it uses of commitments."""

    store: CommitmentStore
    clock: Callable[[], datetime]

    def keep(self, inputs: Inputs) -> None:
        """Report the usage if others see another one. A failed report is repeated by a later run."""
        commitments, cluster, now = inputs.ledger.commitments, inputs.ledger.cluster, self.clock()
        usage = usage_of(inputs.ledger.claims)
        if (
            cluster is None
            or not commitments.book.commitments
            or not commitments.renews(cluster.name, usage, now)
        ):
            return
        try:
            self.store.report(commitments.reporting(cluster.name, usage, now))
        except (Conflict, Transient):
            return


AGAIN_AFTER = timedelta(minutes=1)
"""How long to wait after the object could not be written."""


@dataclass(slots=True)
class OnSaleKeeper:
    """Keeps the object that lists what a cluster's NodePools may buy up to date, from run to run.

    `written` is the object's version and content. `basis` holds the inputs of that content: the computation takes a
    tenth of a second and is skipped if they have not changed.
    """

    blobs: VersionedBlobs
    cluster: str
    clock: Callable[[], datetime]
    written: tuple[str, bytes] | None = None
    basis: object = None
    failed_at: datetime | None = None

    def keep(self, inputs: Inputs) -> None:
        """Write the object if its content has changed. After a failure, a later run tries again."""
        now, basis = self.clock(), _basis(inputs)
        if basis == self.basis or (self.failed_at is not None and now - self.failed_at < AGAIN_AFTER):
            return
        try:
            self._write(write_on_sale(on_sale(inputs)))
            self.basis = basis
        except (Transient, Conflict):
            self.failed_at = now

    def _write(self, data: bytes) -> None:
        key, written = on_sale_key(self.cluster), self.written
        if written is None:
            version = self.blobs.read(key, NONE_THERE)
            self.written = written = version.tag, version.data or b""
        tag, held = written
        if held != data:
            self.written = None  # until the outcome of the write is known
            self.written = self.blobs.replace(key, data, tag), data


def _basis(inputs: Inputs) -> object:
    """Return everything that what is on sale depends on, without what changes as nodes come and go."""
    ledger, snapshot = inputs.ledger, inputs.snapshot
    closed = frozenset(key for key, backoff in ledger.unavailable.items() if backoff.holds(inputs.now))
    specs = [
        (manifest.get("metadata", {}).get("name"), manifest.get("spec")) for manifest in snapshot.nodepools
    ]
    specs += [
        (manifest.get("metadata", {}).get("name"), manifest.get("spec")) for manifest in snapshot.nodeclasses
    ]
    resolved = {
        name: (frozenset(subnet.zone for subnet in status.subnets), status.images)
        for name, status in ledger.nodeclasses.items()
    }
    return inputs.catalog.ref, specs, resolved, closed, frozenset(ledger.shifted(inputs.now))
