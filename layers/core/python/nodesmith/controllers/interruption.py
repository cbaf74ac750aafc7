"""The story of interruption: read what EC2 says, let claims end, buy for their pods at once, wake termination.

Nothing stands between a warning and CreateFleet: the API server is termination's to talk to, and it is woken when the
replacement has been asked for. A notice is deleted last: a run that dies before leaves it to the next, and what is
committed needs no notice any more, for every later run carries on from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.controllers.metrics.notices import note_checks, note_message
from nodesmith.controllers.provisioning import Outcome
from nodesmith.controllers.runs.report import Report
from nodesmith.controllers.runs.snapshots import newest_snapshot
from nodesmith.decisions.interruption import (
    Answer,
    answer,
    expiries,
    next_expiry,
    of_instances,
    risks_after,
)
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.ec2.events import read_event
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.notices import KeptEvent, Notice
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cloud, Hints, Store
from nodesmith.ports.notices import Notices

LOCKED_FOR = timedelta(seconds=20)
"""How long a run has the notices to itself: the function's time-out. Two runs would plan twice for the same pods."""
LOOKS = 5
"""At the notices in one run: others may have come while it worked."""
ATTEMPTS = 4
"""At one claim in one run: another function may just have written it, and lets go within a call."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a run needs. `provision` is the whole story of provisioning, in this very process."""

    cluster_name: str
    store: Store
    cloud: Cloud
    blobs: Blobs
    hints: Hints
    notices: Notices
    provision: Callable[[], Outcome]
    clock: Callable[[], datetime]
    metrics: Metrics = field(default_factory=Metrics)


def handle_notices(run: Interruption) -> Report:
    """Do what the notices that are kept ask for, all of them planned together. Where there is none, ask EC2 itself.

    One run at a time does that; what comes meanwhile it does before it ends. Raises Transient where nothing could be
    done; what failed in part, `again` in the report says.
    """
    report, until = Report(), run.clock() + LOCKED_FOR
    for look in range(LOOKS):
        if not run.store.take_lock(Concern.INTERRUPTION, run.clock(), until):
            if not look:
                report.counts["TurnedAway"] += 1
                report.due = until  # whoever has it may have died
            return report
        try:
            _look(run, report, asks_ec2=not look)
        except (Transient, Rejected) as error:
            run.store.release_lock(Concern.INTERRUPTION, until)
            if not look or isinstance(error, Rejected):
                raise
            break  # what the looks before have done is to be told of
        if not run.store.release_lock(Concern.INTERRUPTION, until):
            return report
    report.again = True
    return report


def _look(run: Interruption, report: Report, *, asks_ec2: bool) -> None:
    """Work off the notices that are there. Those that cannot be read are told of, and deleted with those done."""
    kept, now = run.notices.pending(), run.clock()
    if not kept and not asks_ec2:
        return
    told: list[tuple[str, Notice]] = []
    for event in kept:
        try:
            told += [(event.id, notice) for notice in _read(run, event, now)]
        except Rejected as error:
            report.rejected.append(str(error))
    ledger = run.store.load()
    if not kept:
        told = [("", notice) for notice in _swept(run, ledger, report)]
    failed = _carry_out(run, told, ledger, report)
    done = [event.id for event in kept if event.id not in failed]
    if done:
        run.notices.done(done)
        run.metrics.count("interruption_deleted_messages_total", len(done))
    report.again = report.again or bool(failed)


def _carry_out(
    run: Interruption, told: Sequence[tuple[str, Notice]], ledger: Ledger, report: Report
) -> set[str]:
    """Do what notices ask for, each told under an id; give the ids of those of which a claim could not be written."""
    told = [(id_, each) for id_, notice in told for each in of_instances(notice, ledger.claims)]
    found, lost = _commit(run, [notice for _, notice in told], ledger, report)
    if found.going:
        _replace(run, found.going, report)
    if found.interrupted:
        _remember(run, found, ledger, report)
    for concern in sorted(found.woken):
        run.hints.send(concern, Hint(run.cluster_name, "instances are gone"))
    moments = report.due, found.put_off_until, next_expiry(ledger, [claim.name for claim in found.changed])
    report.due = min((moment for moment in moments if moment is not None), default=None)
    return {id_ for id_, notice in told if notice.instance_id in lost}


def _read(run: Interruption, kept: KeptEvent, now: datetime) -> tuple[Notice, ...]:
    """Read an event. Raises Rejected."""
    said: tuple[Notice, ...] = ()
    try:
        said = read_event(kept.event, kept.account, now)
    finally:
        note_message(run.metrics, said, now)
    return said


def _swept(run: Interruption, ledger: Ledger, report: Report) -> Sequence[Notice]:
    """Ask EC2 itself, and the ledger of blocks that end; where EC2 does not answer, the next tick asks again."""
    instances = [
        claim.instance_id for claim in ledger.claims if claim.instance_id and not claim.terminated_at
    ]
    found = expiries(ledger, run.clock())
    try:
        found += run.cloud.notices(instances) if instances else ()
    except Transient:
        report.counts["SweepsFailed"] += 1
        report.due = run.clock()
    return found


def _commit(
    run: Interruption, notices: Sequence[Notice], ledger: Ledger, report: Report
) -> tuple[Answer, set[str]]:
    """Write down which claims end; give what was decided, and the instances of those that could not be written."""
    snapshot = _snapshot(run, report) if any(not n.fate.is_certain for n in notices) else None
    pools = parsed_nodepools(snapshot.nodepools) if snapshot is not None else {}
    interrupted: dict[str, OfferingKey] = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            ledger = run.store.load()
        found = answer(notices, ledger, pools, snapshot, run.clock())
        failed, outdated = _save(run, found)
        written = [c for c in found.changed if c.instance_id not in failed | outdated]
        note_checks(run.metrics, notices, written)
        saved = {claim.name for claim in written}
        interrupted |= {name: pool for name, pool in found.interrupted.items() if name in saved}
        if not outdated:
            break
    found.interrupted = interrupted
    report.counts.update(found.counts)
    return found, failed | outdated


def _save(run: Interruption, found: Answer) -> tuple[set[str], set[str]]:
    """Save what is decided; give the instances of claims that could not be saved, and of those that have moved on."""
    failed: set[str] = set()
    outdated: set[str] = set()
    if found.unavailable:
        run.store.save_unavailable(found.unavailable)
    for claim in found.changed:
        try:
            run.store.save(claim)
        except Conflict:
            outdated.add(claim.instance_id)
        except Transient:
            failed.add(claim.instance_id)
    return failed, outdated


def _remember(run: Interruption, found: Answer, ledger: Ledger, report: Report) -> None:
    """Keep what it says of the pools, now that replacements are asked for. To lose it once is no reason for haste."""
    try:
        run.store.save_risks(risks_after(found.interrupted, ledger, run.clock()))
    except Transient:
        report.counts["RisksForgotten"] += 1


def _snapshot(run: Interruption, report: Report) -> Snapshot | None:
    """Read what only uncertain notices need: a certain one is not held up by a damaged snapshot."""
    try:
        return newest_snapshot(run.blobs, run.cluster_name)
    except Rejected as error:
        report.rejected.append(str(error))
        return None


def _replace(run: Interruption, going: Sequence[str], report: Report) -> None:
    """Buy for the pods of nodes that go, then have the nodes closed and drained, whatever came of it."""
    try:
        outcome = run.provision()
        report.counts["NodeClaimsLaunched"] += len(outcome.launched)
        report.counts["NodeClaimsGivenUp"] += len(outcome.given_up)
        report.counts["PodsUnplaced"] += sum(len(u.pods) for u in outcome.plan.unplaced)
    except Rejected as error:
        report.rejected.append(str(error))
    except Transient:  # provisioning has had itself woken
        report.counts["LaunchesPutOff"] += 1
    finally:
        run.hints.send(Concern.TERMINATION, Hint(run.cluster_name, f"{len(going)} nodes are interrupted"))
