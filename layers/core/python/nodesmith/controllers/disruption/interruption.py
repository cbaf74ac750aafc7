"""The controller of interruption: read EC2's notices, begin to end claims, buy for their pods, wake termination.

Nothing delays CreateFleet after a warning: only termination calls the API server, and it is woken after the
replacements were requested. A notice is deleted last. If a run dies before that, the next one handles the notice again;
what is committed needs no notice any more, since every later run continues from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.controllers.observation import newest_snapshot
from nodesmith.controllers.provisioning import Outcome
from nodesmith.controllers.runs import Report
from nodesmith.decisions.disruption.interruption import (
    Answer,
    answer,
    expiries,
    next_expiry,
    of_instances,
    risks_after,
)
from nodesmith.decisions.takeover import standby
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.notices import InterruptionCause, KeptEvent, Notice, read_event
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Metrics, snake_case
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cloud, Hints, Store
from nodesmith.regionports import Notices

LOCKED_FOR = timedelta(seconds=20)
"""How long a run holds the lock on the notices: the function's time-out. Two runs would buy twice for the same pods."""
LOOKS = 5
"""The most looks at the notices in one run: others may have come while it worked."""
ATTEMPTS = 4
"""The most attempts to write a claim in one run: another function may write it as well, but is done within a call."""
STANDS_BY = timedelta(minutes=1)
"""When to look at stored notices again while nodesmith stands by. They are kept until then."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a run needs. `provision` runs the provisioning controller in this process."""

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
    """Handle all stored notices together. If there is none, ask EC2 for interruptions.

    Only one run works at a time; it handles the notices that arrive meanwhile before it ends. Raises Transient if
    nothing could be done. If only a part failed, the report's `retries_soon` is True.
    """
    report, until = Report(), run.clock() + LOCKED_FOR
    for look in range(LOOKS):
        if not run.store.take_lock(Concern.INTERRUPTION, run.clock(), until):
            if not look:
                report.counts["TurnedAway"] += 1
                report.due = until  # the run that holds the lock may have died
            return report
        try:
            _look(run, report, asks_ec2=not look)
        except (Transient, Rejected) as error:
            run.store.release_lock(Concern.INTERRUPTION, until)
            if not look or isinstance(error, Rejected):
                raise
            break  # report what the earlier looks have done
        if not run.store.release_lock(Concern.INTERRUPTION, until):
            return report
    report.retries_soon = True
    return report


def _look(run: Interruption, report: Report, *, asks_ec2: bool) -> None:
    """Handle the stored notices. Those that cannot be read are reported, and deleted together with the others."""
    events, now = run.notices.pending(), run.clock()
    if not events and not asks_ec2:
        return
    event_notices: list[tuple[str, Notice]] = []
    for event in events:
        try:
            event_notices += [(event.id, notice) for notice in _read(run, event, now)]
        except Rejected as error:
            report.rejected.append(str(error))
    ledger, snapshot = run.store.load(), _readable(run)
    if standby(ledger, snapshot or Snapshot(run.cluster_name, now), now) is not None:
        report.due = now + STANDS_BY
        return
    if not events:
        event_notices = [("", notice) for notice in _queried(run, ledger, report)]
    failed = _carry_out(run, event_notices, ledger, snapshot, report)
    handled = [event.id for event in events if event.id not in failed]
    if handled:
        run.notices.done(handled)
        run.metrics.count("interruption_deleted_messages_total", len(handled))
    report.retries_soon = report.retries_soon or bool(failed)


def _carry_out(
    run: Interruption,
    event_notices: Sequence[tuple[str, Notice]],
    ledger: Ledger,
    snapshot: Snapshot | None,
    report: Report,
) -> set[str]:
    """Handle notices, each with the id of its event; return the ids of those for which a claim could not be written."""
    event_notices = [
        (id_, resolved) for id_, notice in event_notices for resolved in of_instances(notice, ledger.claims)
    ]
    response, failed = _commit(run, [notice for _, notice in event_notices], ledger, snapshot, report)
    if response.terminating:
        _replace(run, response.terminating, report)
    if response.interrupted:
        _remember(run, response, ledger, report)
    for concern in sorted(response.to_wake):
        run.hints.send(concern, Hint(run.cluster_name, "instances are gone"))
    moments = (
        report.due,
        response.put_off_until,
        next_expiry(ledger, [claim.name for claim in response.changed]),
    )
    report.due = min((moment for moment in moments if moment is not None), default=None)
    return {id_ for id_, notice in event_notices if notice.instance_id in failed}


def _read(run: Interruption, event: KeptEvent, now: datetime) -> tuple[Notice, ...]:
    """Return the notices in an event, and count the message. Raises Rejected."""
    notices: tuple[Notice, ...] = ()
    try:
        notices = read_event(event.event, event.account, now)
    finally:
        note_message(run.metrics, notices, now)
    return notices


def _queried(run: Interruption, ledger: Ledger, report: Report) -> Sequence[Notice]:
    """Return the notices from EC2's API, and those of expiring Capacity Blocks in the ledger.

    If EC2 does not answer, the next tick asks again.
    """
    instances = [
        claim.instance_id
        for claim in ledger.claims
        if claim.instance_id and not (claim.terminated_at or claim.is_warm)
    ]
    notices = expiries(ledger, run.clock())
    try:
        notices += run.cloud.notices(instances) if instances else ()
    except Transient:
        report.counts["SweepsFailed"] += 1
        report.due = run.clock()
    return notices


def _commit(
    run: Interruption,
    notices: Sequence[Notice],
    ledger: Ledger,
    snapshot: Snapshot | None,
    report: Report,
) -> tuple[Answer, set[str]]:
    """Save the claims that end; return the decision, and the instance ids of claims that could not be saved.

    Only uncertain notices need the snapshot. If it could not be read, they read it again, and report why.
    """
    if all(n.cause.is_certain for n in notices):
        snapshot = None
    elif snapshot is None:
        snapshot = _snapshot(run, report)
    pools = parsed_nodepools(snapshot.nodepools) if snapshot is not None else {}
    interrupted: dict[str, OfferingKey] = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            ledger = run.store.load()
        response = answer(notices, ledger, pools, snapshot, run.clock())
        failed, outdated = _save(run, response)
        written = [c for c in response.changed if c.instance_id not in failed | outdated]
        note_checks(run.metrics, notices, written)
        saved = {claim.name for claim in written}
        interrupted |= {name: pool for name, pool in response.interrupted.items() if name in saved}
        if not outdated:
            break
    response.interrupted = interrupted
    report.counts.update(response.counts)
    return response, failed | outdated


def _save(run: Interruption, response: Answer) -> tuple[set[str], set[str]]:
    """Save a decision; return the instance ids of claims that could not be saved, and of those that have moved on."""
    failed: set[str] = set()
    outdated: set[str] = set()
    if response.unavailable:
        run.store.save_unavailable(response.unavailable)
    for claim in response.changed:
        try:
            run.store.save(claim)
        except Conflict:
            outdated.add(claim.instance_id)
        except Transient:
            failed.add(claim.instance_id)
    return failed, outdated


def _remember(run: Interruption, response: Answer, ledger: Ledger, report: Report) -> None:
    """Record interruptions by capacity pool, after the replacements were requested. Losing this once is harmless."""
    try:
        run.store.save_risks(risks_after(response.interrupted, ledger, run.clock()))
    except Transient:
        report.counts["RisksForgotten"] += 1


def _readable(run: Interruption) -> Snapshot | None:
    """Return the snapshot; None if it cannot be read: then only the user's word says whether nodesmith stands by."""
    try:
        return newest_snapshot(run.blobs, run.cluster_name)
    except (Rejected, Transient):
        return None


def _snapshot(run: Interruption, report: Report) -> Snapshot | None:
    """Return the snapshot, which only uncertain notices need; None if it is damaged, so that certain ones go on."""
    try:
        return newest_snapshot(run.blobs, run.cluster_name)
    except Rejected as error:
        report.rejected.append(str(error))
        return None


def _replace(run: Interruption, going: Sequence[str], report: Report) -> None:
    """Buy for the pods of interrupted nodes, then wake termination to taint and drain the nodes in any case."""
    try:
        outcome = run.provision()
        report.counts["NodeClaimsLaunched"] += len(outcome.launched)
        report.counts["NodeClaimsGivenUp"] += len(outcome.given_up)
        report.counts["PodsUnplaced"] += sum(len(u.pods) for u in outcome.plan.unplaced)
    except Rejected as error:
        report.rejected.append(str(error))
    except Transient:  # provisioning has scheduled its next run
        report.counts["LaunchesPutOff"] += 1
    finally:
        run.hints.send(Concern.TERMINATION, Hint(run.cluster_name, f"{len(going)} nodes are interrupted"))


_MESSAGE_TYPES: Mapping[InterruptionCause, str] = {
    InterruptionCause.TERMINATED: "instance_terminated",
    InterruptionCause.STOPPED: "instance_stopped",
    InterruptionCause.SPOT: "spot_interrupted",
    InterruptionCause.RESERVATION: "capacity_reservation_interrupted",
    InterruptionCause.EXPIRING: "capacity_reservation_interrupted",
    InterruptionCause.SCHEDULED: "scheduled_change",
    InterruptionCause.REBALANCE: "rebalance_recommendation",
}
_NOTHING = "no_op"
"""Karpenter's type for a message that requires no action."""


def note_message(metrics: Metrics, notices: Sequence[Notice], now: datetime) -> None:
    """Count a message that was read. `notices` is its content, empty if the message is of no interest."""
    notice = notices[0] if notices else None
    kind = _MESSAGE_TYPES.get(notice.cause, _NOTHING) if notice else _NOTHING
    metrics.count("interruption_received_messages_total", message_type=kind)
    if notice is not None and notice.occurred_at is not None:
        seconds = (now - notice.occurred_at).total_seconds()
        metrics.observe("interruption_message_queue_duration_seconds", seconds)


def note_checks(metrics: Metrics, notices: Iterable[Notice], ending: Iterable[NodeClaim]) -> None:
    """Count the claims whose termination begins because an EC2 status check failed."""
    checks = {(notice.instance_id, notice.cause.value): notice.check for notice in notices if notice.check}
    for claim in ending:
        check = checks.get((claim.instance_id, claim.cause))
        if check:
            name = "interruption_instance_status_unhealthy_total"
            metrics.count(name, category=snake_case(check))
