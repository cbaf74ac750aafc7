"""The controller of commitments, and of the object that lists what NodePools may buy.

Commitments are read with what runs in the region, and shared between clusters.

What cannot be read stays as it was known, and the fault is kept with the rest, for `nodesmith status`. Purchases never
wait for commitments: without them, prices are those of the catalogue.
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
    known, faults = store.load().book, list[str]()
    vcpus = _vcpus_of_metal(catalog)
    found = _of_account(reader, vcpus, known, faults, of_payer=False)
    if payer is not None:
        there = _asked(payer, faults)
        found += (
            _kept(known, of_payer=True)
            if there is None
            else _of_account(there, vcpus, known, faults, of_payer=True)
        )
    found += _listed(settings, catalog, vcpus, now, faults)
    running = _asked(reader.running, faults)
    # A commitment that the payer shares may appear in both accounts.
    once = {each.id: each for each in found}
    book = CommitmentBook(
        now,
        tuple(once[id_] for id_ in sorted(once)),
        known.running if running is None else running,
        tuple(faults),
        settings.share,
        vcpus,
    )
    store.keep(book)
    blobs.put(commitments_key(catalog.region), json.dumps(book_item(book), sort_keys=True).encode())
    return CommitmentReading(book, tuple(fault for fault in faults if fault not in known.faults))


def _of_account(
    reader: CommitmentReader,
    vcpus: Mapping[str, int],
    known: CommitmentBook,
    faults: list[str],
    *,
    of_payer: bool,
) -> list[Commitment]:
    plans, reserved = (
        _asked(reader.savings_plans, faults),
        _asked(lambda: reader.reserved_instances(vcpus), faults),
    )
    before = _kept(known, of_payer=of_payer)
    return [
        *(plans if plans is not None else (each for each in before if each.kind.is_plan)),
        *(reserved if reserved is not None else (each for each in before if not each.kind.is_plan)),
    ]


def _kept(known: CommitmentBook, *, of_payer: bool) -> list[Commitment]:
    return [each for each in known.commitments if each.of_payer is of_payer and not _is_listed(each)]


def _is_listed(each: Commitment) -> bool:
    return each.id.startswith("commitment ")


def _asked(call: Callable[[], T], faults: list[str]) -> T | None:
    try:
        return call()
    except (Transient, Rejected) as failure:
        faults.append(str(failure))
        return None


def _listed(
    settings: CommitmentSettings, catalog: Catalog, vcpus: Mapping[str, int], now: datetime, faults: list[str]
) -> list[Commitment]:
    prices = {kind: price for (kind, _), price in sorted(on_demand_prices(catalog).items())}
    found: list[Commitment] = []
    for each in settings.listed:
        made = each.commitment(prices, vcpus)
        if isinstance(made, Problem):
            faults.append(str(made))
        elif made.ends <= now:
            faults.append(f"{each.name}: ends: it has expired: remove it")
        else:
            found.append(made)
    return found


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
    wanted = {node.request.cheapest.commitment for node in nodes} - {""}
    if store is None or cluster is None or not wanted:
        return
    usage = _with(usage_of(inputs.ledger.claims), nodes)
    found = inputs.ledger.commitments
    try:
        for _ in range(_ATTEMPTS):
            try:
                store.report(found.reporting(cluster.name, usage, now))
                return
            except Conflict:
                found = store.load()
            _require_left(replace(inputs, ledger=replace(inputs.ledger, commitments=found)), nodes)
    except Transient:
        return


def _with(usage: dict[tuple[str, str], float], nodes: Sequence[PlannedNode]) -> dict[tuple[str, str], float]:
    for node in nodes:
        first = node.request.overrides[0]
        if node.claim.capacity_type == ON_DEMAND:
            key = first.instance_type, first.zone
            usage[key] = usage.get(key, 0.0) + 1
    return usage


def _require_left(inputs: Inputs, nodes: Sequence[PlannedNode]) -> None:
    """Raise Conflict unless what is left of commitments is still enough for these nodes."""
    found = applied_now(inputs.ledger, inputs.catalog, inputs.now)
    pools = {pool.name: pool for pool in found.pools} if found is not None else {}
    left = dict(found.left) if found is not None else {}
    for node in nodes:
        first = node.request.overrides[0]
        if first.commitment and not first.price_hourly_usd:
            pool = pools.get(first.commitment)
            use = pool.use(first.instance_type, first.zone) if pool is not None else 1
            left[first.commitment] = left.get(first.commitment, 0) - use
            if left[first.commitment] < 0:
                raise Conflict(f"another cluster has used what was left of {first.commitment}")


@dataclass(frozen=True, slots=True)
class UsageKeeper:
    """Keeps a cluster's report up to date from run to run, so that others know what it uses of commitments."""

    store: CommitmentStore
    clock: Callable[[], datetime]

    def keep(self, inputs: Inputs) -> None:
        """Report the usage if others see another one. A failed report is repeated by a later run."""
        found, cluster, now = inputs.ledger.commitments, inputs.ledger.cluster, self.clock()
        usage = usage_of(inputs.ledger.claims)
        if cluster is None or not found.book.commitments or not found.renews(cluster.name, usage, now):
            return
        try:
            self.store.report(found.reporting(cluster.name, usage, now))
        except (Conflict, Transient):
            return


AGAIN_AFTER = timedelta(minutes=1)
"""How long to wait after the object could not be written."""


@dataclass(slots=True)
class OnSaleKeeper:
    """Keeps the object that lists what a cluster's NodePools may buy up to date, from run to run.

    `kept` is the object's version and content. `seen` is what the content was computed from: the computation takes a
    tenth of a second and is skipped if nothing has changed.
    """

    blobs: VersionedBlobs
    cluster: str
    clock: Callable[[], datetime]
    kept: tuple[str, bytes] | None = None
    seen: object = None
    failed_at: datetime | None = None

    def keep(self, inputs: Inputs) -> None:
        """Write the object if its content has changed. After a failure, a later run tries again."""
        now, seen = self.clock(), _basis(inputs)
        if seen == self.seen or (self.failed_at is not None and now - self.failed_at < AGAIN_AFTER):
            return
        try:
            self._write(write_on_sale(on_sale(inputs)))
            self.seen = seen
        except (Transient, Conflict):
            self.failed_at = now

    def _write(self, data: bytes) -> None:
        key, kept = on_sale_key(self.cluster), self.kept
        if kept is None:
            found = self.blobs.read(key, NONE_THERE)
            self.kept = kept = found.tag, found.data or b""
        tag, held = kept
        if held != data:
            self.kept = None  # until the outcome of the write is known
            self.kept = self.blobs.replace(key, data, tag), data


def _basis(inputs: Inputs) -> object:
    """Return everything that what is on sale depends on, without what changes as nodes come and go."""
    ledger, snapshot = inputs.ledger, inputs.snapshot
    closed = frozenset(key for key, backoff in ledger.unavailable.items() if backoff.holds(inputs.now))
    asked = [(each.get("metadata", {}).get("name"), each.get("spec")) for each in snapshot.nodepools]
    asked += [(each.get("metadata", {}).get("name"), each.get("spec")) for each in snapshot.nodeclasses]
    resolved = {
        name: (frozenset(subnet.zone for subnet in status.subnets), status.images)
        for name, status in ledger.nodeclasses.items()
    }
    return inputs.catalog.ref, asked, resolved, closed, frozenset(ledger.shifted(inputs.now))
