"""The controller of garbage collection: read AWS, then the ledger, and remove what neither side needs.

Its function also books what nodes have cost, since it is woken often enough and no pod waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.controllers.allocations import Booking, BookingReport, book_hours
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.controllers.runs import ClusterPorts
from nodesmith.decisions.garbagecollection import (
    MOST,
    Inventory,
    garbage,
    next_change,
    still_detached,
    suspects,
)
from nodesmith.decisions.takeover import standby
from nodesmith.decisions.termination.beginning import lost_long, still_lost
from nodesmith.effects import collect
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.model.commands import (
    Correct,
    EndClaim,
    Garbage,
    Lift,
    Owned,
    OwnedKind,
    ReleaseNode,
    Remove,
    TakeBack,
    Terminate,
)
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class GarbageCollection(ClusterPorts):
    """What a run needs."""

    detached_since: dict[str, datetime] = field(default_factory=dict)
    """since when volumes and network interfaces have been seen detached, and claims without a Node; kept from run to
    run"""


@dataclass(slots=True)
class GarbageReport:
    """What was removed, as counts and by name, and how much is left for the next run (`counts["Left"]`).

    `due` is when to look again even if nothing changes, None for never. `rejected` is what could not be booked.
    """

    counts: Counter[str] = field(default_factory=Counter)
    collected: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    due: datetime | None = None


def collect_and_book(run: GarbageCollection, booking: Booking) -> GarbageReport:
    """Collect garbage, then book the hours that are over. Raises Transient if either failed, after both were tried."""
    report, booked = GarbageReport(), BookingReport()
    with Failures() as failures:
        with failures.of():
            report = collect_garbage(run)
        with failures.of():
            booked = book_hours(booking)
    report.rejected += booked.faults
    if booked.hours:
        report.counts["HoursBooked"] = booked.hours
    return report


def collect_garbage(run: GarbageCollection) -> GarbageReport:
    """Remove what is no longer needed. Raises Transient if a call failed, after everything else is done.

    The snapshot is read before AWS, and the ledger after it; `decisions/garbagecollection` explains the order.
    """
    report = GarbageReport()
    snapshot = newest_snapshot(run.blobs, run.cluster_name)
    if snapshot is None:
        return report
    with Failures() as failures:
        inventory = _look(run, snapshot, failures)
        if (held := standby(inventory.ledger, snapshot, inventory.now)) is not None:
            report.due = held.until
            return report
        batch, report.counts["Left"] = garbage(inventory)
        report.due = inventory.now if batch else next_change(inventory)
        for item in batch:
            with failures.of():
                _collect(run, item, report)
        if any(isinstance(item, EndClaim | TakeBack) for item in batch):
            run.hints.send(Concern.TERMINATION, Hint(run.cluster_name, "claims end"))
    return report


def _collect(run: GarbageCollection, item: Garbage, report: GarbageReport) -> None:
    try:
        collect(item, run.store, run.cloud, run.cluster)
    except Conflict:
        report.counts["Conflict"] += 1
        return
    names = _names(item)
    report.counts[_counted(item)] += len(names)
    report.collected += names


def _look(run: GarbageCollection, snapshot: Snapshot, failures: Failures) -> Inventory:
    instances = run.cloud.owned_instances()
    owned: dict[OwnedKind, Sequence[Owned]] = {}
    for kind in OwnedKind:
        try:
            owned[kind] = run.cloud.owned(kind)
        except Transient as error:  # the other kinds need not wait
            failures.add(error)
    ledger, now = run.store.load(), run.clock()
    since = {
        **still_detached(run.detached_since, owned, now),
        **still_lost(run.detached_since, snapshot, ledger, now),
    }
    run.detached_since.clear()
    run.detached_since.update(since)
    living = _living(run, suspects(snapshot, instances, ledger), failures)
    lost = _lost_claims(run, lost_long(ledger, since, now)[:MOST], failures)
    return Inventory(snapshot, instances, owned, ledger, living, since, now, lost)


def _lost_claims(run: GarbageCollection, claims: Sequence[NodeClaim], failures: Failures) -> Sequence[str]:
    """Return the names of those of the claims that have no Node in the API server; none while it does not answer."""
    try:
        return [c.name for c in claims if not run.cluster.has_node(c.node_name, c.provider_id)]
    except Transient as error:
        failures.add(error)
        return ()


def _living(run: GarbageCollection, suspected: list[str], failures: Failures) -> Sequence[str]:
    """Return the suspects that are alive: all of them if EC2 does not answer."""
    if not suspected:
        return ()
    try:
        return sorted(run.cloud.living(suspected))
    except Transient as error:
        failures.add(error)
        return suspected


def _counted(garbage: Garbage) -> str:
    match garbage:
        case Terminate():
            return f"Instances{garbage.reason}"
        case TakeBack():
            return "NodeClaimsTakenBack"
        case EndClaim():
            return "NodeClaimsEnded"
        case Correct():
            return "NodeClaimsCorrected"
        case ReleaseNode():
            return "NodesReleased"
        case Lift():
            return "NodeClaimsReleased"
        case Remove():
            return f"{garbage.owned.kind.title().replace('-', '')}sRemoved"


def _names(garbage: Garbage) -> Sequence[str]:
    match garbage:
        case Terminate():
            return garbage.instances
        case TakeBack():
            return [claim.name for claim in garbage.claims]
        case EndClaim() | Correct():
            return (garbage.claim.name,)
        case ReleaseNode():
            return (garbage.node,)
        case Lift():
            return (garbage.nodeclaim,)
        case Remove():
            return (garbage.owned.id,)
