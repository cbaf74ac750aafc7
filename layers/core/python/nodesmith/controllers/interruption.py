"""The story of interruption: read what EC2 says, let claims end, buy for their pods at once, wake termination.

Nothing stands between a warning and CreateFleet: the API server is termination's to talk to, and it is woken when the
replacement has been asked for. What is committed needs no message any more: every later run carries on from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.controllers.letters import Letter, Report
from nodesmith.controllers.noticemetrics import note_checks, note_message
from nodesmith.controllers.provisioning import Outcome
from nodesmith.controllers.snapshots import newest_snapshot
from nodesmith.decisions.interruption import Answer, answer, expiries, of_instances, risks_after
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.ec2events import read_event
from nodesmith.model.events import Concern, Hint
from nodesmith.model.launches import OfferingKey
from nodesmith.model.ledger import Ledger
from nodesmith.model.metrics import Metrics
from nodesmith.model.nodepools import parsed_nodepools
from nodesmith.model.notices import Notice
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cloud, Hints, Store

LOOKS = 4
"""At one claim in one run: another function may just have written it, and lets go within a call."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a run needs. `provision` is the whole story of provisioning, in this very process."""

    cluster_name: str
    store: Store
    cloud: Cloud
    blobs: Blobs
    hints: Hints
    provision: Callable[[], Outcome]
    clock: Callable[[], datetime]
    metrics: Metrics = field(default_factory=Metrics)


def heed(run: Interruption, letters: Sequence[Letter]) -> Report:
    """Do what a batch of letters asks for, and count the notices among them. Raises Transient as `_heed` does."""
    notices: list[str] = []
    report = _heed(run, letters, notices)
    done = len(set(notices) - set(report.failed))
    if done:
        run.metrics.count("interruption_deleted_messages_total", done)
    return report


def _heed(run: Interruption, letters: Sequence[Letter], notices: list[str]) -> Report:
    """Do what a batch of letters asks for, all of them planned together. Raises Transient where all have to come again.

    A letter that cannot be read is never given again; a hint among them asks for a look at EC2's own state. `notices`
    takes the ids of all others.
    """
    report, now = Report(), run.clock()
    told: list[tuple[str, Notice]] = []
    sweeps: list[str] = []
    for letter in letters:
        if not letter.event:
            sweeps.append(letter.id)
            continue
        notices.append(letter.id)
        try:
            told += [(letter.id, notice) for notice in _read(run, letter, now)]
        except Rejected as error:
            report.rejected.append(str(error))
    if not told and not sweeps:
        return report
    ledger = run.store.load()
    if sweeps:
        told += _swept(run, ledger, sweeps, report)
    told = [(id_, each) for id_, notice in told for each in of_instances(notice, ledger.claims)]
    if not told:
        return report
    found, failed = _commit(run, [notice for _, notice in told], ledger, report)
    report.failed += sorted(
        {id_ for id_, notice in told if notice.instance_id in failed} - set(report.failed)
    )
    if found.going:
        _replace(run, found.going, report)
    if found.interrupted:
        _remember(run, found, ledger, report)
    for concern in sorted(found.woken):
        run.hints.send(concern, Hint(run.cluster_name, "instances are gone"))
    return report


def _read(run: Interruption, letter: Letter, now: datetime) -> tuple[Notice, ...]:
    """Read an event. Raises Rejected."""
    said: tuple[Notice, ...] = ()
    try:
        said = read_event(letter.event, letter.account, now)
    finally:
        note_message(run.metrics, said, now)
    return said


def _swept(
    run: Interruption, ledger: Ledger, sweeps: Sequence[str], report: Report
) -> list[tuple[str, Notice]]:
    """Ask EC2 itself; where it does not answer, the next tick asks again, and letters in hand are not held up."""
    instances = [
        claim.instance_id for claim in ledger.claims if claim.instance_id and not claim.terminated_at
    ]
    found = expiries(ledger, run.clock())
    try:
        found += run.cloud.notices(instances) if instances else ()
    except Transient:
        report.counts["SweepsFailed"] += 1
    return [(sweeps[0], notice) for notice in found]


def _commit(
    run: Interruption, notices: Sequence[Notice], ledger: Ledger, report: Report
) -> tuple[Answer, set[str]]:
    """Write down which claims end; give what was decided, and the instances of those that could not be written."""
    snapshot = _snapshot(run, report) if any(not n.fate.is_certain for n in notices) else None
    pools = parsed_nodepools(snapshot.nodepools) if snapshot is not None else {}
    interrupted: dict[str, OfferingKey] = {}
    for look in range(LOOKS):
        if look:
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
