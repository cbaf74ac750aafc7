"""The controller of dispatch: wake each concern of each cluster from time to time, in case a message was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.decisions.dispatch import due_concerns, is_quiet
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions.health import Record
from nodesmith.model.functions.hints import TICK_MINUTES, Concern
from nodesmith.model.functions.marks import Marks
from nodesmith.ports.region import HealthRecords, Registrations, Ticks
from nodesmith.ports.region import Marks as MarksPort
from nodesmith.registration import Registration


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
    """Wake routing, and send the hints that are due in the minute of `at`, for which the schedule woke dispatch.

    A cluster whose marks or records cannot be read counts as changing, so that its ticks do not stop. Raises Transient
    if a read or a hint failed, after all have been tried.
    """
    report = DispatchReport()
    _wake_routing(run, report)  # first, since a spot warning leaves two minutes
    report.registrations, report.faults = run.registrations.all()
    report.counts["ClustersServed"] = len(report.registrations)
    woken: dict[Concern, list[Registration]] = {concern: [] for concern in TICK_MINUTES}
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
    if report.delays:
        raise report.delays[0]
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
