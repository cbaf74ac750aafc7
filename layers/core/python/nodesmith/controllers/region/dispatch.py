"""The controller of dispatch: wake each concern of each cluster from time to time, and report faulty functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.decisions.dispatch import (
    KINDS,
    OF_LIMITS,
    due_concerns,
    due_observers,
    findings,
    is_quiet,
    judge_trial,
    limit_findings,
)
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions import OBSERVED_TICK_MINUTES, TICK_MINUTES, Concern, Finding, Marks, Record
from nodesmith.model.limits.spendinglimits import parse_spending_limit
from nodesmith.regionports import (
    DeadLetters,
    HealthEvents,
    HealthRecords,
    LimitParameters,
    Registrations,
    SharedLimits,
    Ticks,
    Trials,
)
from nodesmith.regionports import Marks as MarksPort
from nodesmith.registration import Registration
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What a run needs. `stale_after` returns the age of a heartbeat at which a cluster's forwarder counts as away."""

    registrations: Registrations
    marks: MarksPort
    records: HealthRecords
    ticks: Ticks
    stale_after: Callable[[Registration], timedelta]


@dataclass(slots=True)
class DispatchReport:
    """The result of a run. `faults` maps each cluster whose registration cannot be read to the reason.

    `rejected` lists errors that no retry fixes: missing functions, functions of a VPC that is not deployed, and
    unreadable input.
    """

    registrations: Sequence[Registration] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    delays: list[Transient] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, error: Transient | Rejected) -> None:
        """Keep an error until the rest is done."""
        if isinstance(error, Transient):
            self.delays.append(error)
        else:
            self.rejected.append(str(error))


def send_ticks(run: Dispatch, at: datetime) -> DispatchReport:
    """Do what `try_ticks` does. Raises Transient if a read or a hint failed, after all have been tried."""
    report = try_ticks(run, at)
    if report.delays:
        raise report.delays[0]
    return report


def try_ticks(run: Dispatch, at: datetime) -> DispatchReport:
    """Wake routing, and send the hints that are due in the minute of `at`, for which the schedule woke dispatch.

    A cluster whose marks or records cannot be read counts as changing, so that its ticks do not stop. The report has
    what failed. Raises Transient if registrations cannot be read.
    """
    report = DispatchReport()
    _wake_routing(run, report)  # first, since a spot warning leaves two minutes
    report.registrations, report.faults = run.registrations.all()
    report.counts["ClustersServed"] = len(report.registrations)
    woken: dict[Concern, list[Registration]] = {
        concern: [] for concern in {**TICK_MINUTES, **OBSERVED_TICK_MINUTES}
    }
    marks = _marks(run, report) if report.registrations else {}
    for registration in report.registrations:
        for concern in _due(run, registration, marks.get(registration.cluster), report, at):
            woken[concern].append(registration)
    for concern, clusters in woken.items():
        if clusters:
            try:
                run.ticks.send(concern, clusters)
            except (Transient, Rejected) as error:
                report.note(error)
    return report


def _wake_routing(run: Dispatch, report: DispatchReport) -> None:
    try:
        run.ticks.wake(Concern.ROUTING)
    except (Transient, Rejected) as error:
        report.note(error)


def _marks(run: Dispatch, report: DispatchReport) -> Mapping[str, Marks]:
    try:
        return run.marks.of([registration.cluster for registration in report.registrations])
    except (Transient, Rejected) as error:
        report.note(error)
        return {}


def _due(
    run: Dispatch, registration: Registration, marks: Marks | None, report: DispatchReport, at: datetime
) -> list[Concern]:
    if registration.observed:
        heartbeat = marks.heartbeat if marks is not None else None
        return due_observers(registration.cluster, heartbeat, run.stale_after(registration), at)
    if marks is not None and is_quiet(marks, at):
        report.counts["ClustersQuiet"] += 1
    records = _records(run, registration.cluster, report)
    return due_concerns(registration.cluster, marks, records, run.stale_after(registration), at)


def _records(run: Dispatch, cluster: str, report: DispatchReport) -> Sequence[Record] | None:
    try:
        return run.records.of(cluster)
    except (Transient, Rejected) as error:
        report.note(error)
        return None


@dataclass(frozen=True, slots=True)
class Limits:
    """What `keep_limits` needs."""

    parameters: LimitParameters
    shared: SharedLimits
    ticks: Ticks


def keep_limits(
    run: Limits, registrations: Sequence[Registration], unreadable: Collection[str], now: datetime
) -> list[Finding]:
    """Write the SpendingLimits where all functions that buy read them; return what is wrong with them, or used up.

    `unreadable` are registered clusters without a readable registration: their nodes count as well. After a change,
    each cluster reports what it takes of the limits and decides again about what waits for one. Raises Transient,
    Rejected.
    """
    values = run.parameters.all()
    limits = [parse_spending_limit(name, values[name]) for name in sorted(values)]
    served = [registration for registration in registrations if not registration.observed]
    clusters = {registration.cluster for registration in served} | set(unreadable)
    if run.shared.save(limits, clusters) and served:
        for concern in (Concern.READINESS, Concern.PROVISIONING):
            run.ticks.send(concern, served)
    return list(limit_findings(run.shared.region(), now)) if limits else []


LOOK_EVERY = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """What a run needs."""

    records: HealthRecords
    dead_letters: DeadLetters
    events: HealthEvents
    trials: Trials


def is_due(at: datetime) -> bool:
    """Return whether a health check is due in the minute of `at`."""
    return int(at.timestamp()) // 60 % (LOOK_EVERY // timedelta(minutes=1)) == 0


def check_health(
    run: HealthCheck,
    registrations: Sequence[Registration],
    unreadable: Mapping[str, str],
    now: datetime,
    of_limits: Sequence[Finding] | None = (),
) -> list[Finding]:
    """Return all findings, and send an event for each finding that is new or gone.

    `unreadable` maps each cluster whose registration cannot be read to the reason. `of_limits` are the findings of
    `keep_limits`, None if it failed: then those found last still hold. Raises Transient, Rejected.
    """
    known_since, before = run.records.state()
    since = {"": known_since.get("", now)}
    since |= {
        registration.cluster: known_since.get(registration.cluster, now) for registration in registrations
    }
    records = [record for name in since for record in run.records.of(name)]
    served = [(registration, since[registration.cluster]) for registration in registrations]
    current = findings(records, served, since[""], now)
    current += [Finding(cluster, "", "Unreadable", error) for cluster, error in sorted(unreadable.items())]
    if of_limits is None:
        of_limits = [finding for finding in before if finding.kind in OF_LIMITS]
    current += [*_trial(run, records, now), *of_limits]
    given_up = run.dead_letters.waiting()
    if given_up:
        current.append(Finding("", "", "GivenUp", f"{given_up} messages wait in {DEAD_LETTER_QUEUE_NAME}"))
    after = frozenset(current)
    if after != before:
        run.events.publish(_changes(before, after))
    if after != before or since != known_since:
        run.records.keep(since, after)
    return sorted(current)


def _trial(run: HealthCheck, records: Sequence[Record], now: datetime) -> list[Finding]:
    """End the trial of a release that fails; return a finding if one was ended, until the next deployment."""
    trial = run.trials.current()
    judged = judge_trial(trial, (record for record in records if record.cluster in trial.clusters), now)
    if judged != trial:
        run.trials.keep(judged)
    return [Finding("", "", "TrialEnded", judged.ended)] if judged.ended else []


def _changes(before: frozenset[Finding], after: frozenset[Finding]) -> Iterator[Mapping[str, str]]:
    for state, changed in (("unhealthy", after - before), ("healthy", before - after)):
        for finding in sorted(changed):
            yield {
                "state": state,
                "cluster": finding.cluster,
                "concern": finding.concern,
                "kind": finding.kind,
                "meaning": KINDS.get(finding.kind, ""),
                "message": finding.message,
            }
