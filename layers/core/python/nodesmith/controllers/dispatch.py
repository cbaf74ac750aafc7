"""The story of dispatch: whatever was lost, each concern of each cluster looks from time to time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import TICK_MINUTES, Concern
from nodesmith.regionports import Registrations, Ticks
from nodesmith.registration import Registration

_MINUTE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What a run needs."""

    registrations: Registrations
    ticks: Ticks


@dataclass(slots=True)
class DispatchReport:
    """What was done. `faults` say of each cluster whose registration cannot be read why not.

    `rejected` say which queues are missing: those of a VPC that is not deployed.
    """

    registrations: Sequence[Registration]
    faults: Mapping[str, str]
    rejected: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def send_ticks(run: Dispatch, at: datetime) -> DispatchReport:
    """Send the hints that are due in the minute of `at`, which is when the schedule was to wake dispatch.

    Raises Transient where some could not be sent, once all have been tried.
    """
    registrations, faults = run.registrations.all()
    report = DispatchReport(registrations, faults)
    report.counts["ClustersServed"] = len(registrations)
    delays: list[Transient] = []
    for concern in due_concerns(at) if registrations else ():
        try:
            run.ticks.send(concern, registrations)
        except Transient as delay:
            delays.append(delay)
        except Rejected as error:
            report.rejected.append(str(error))
    if delays:
        raise delays[0]
    return report


def due_concerns(at: datetime) -> list[Concern]:
    """Return the concerns that are to look in the minute of `at`."""
    minute = int(at.timestamp()) // _MINUTE_SECONDS
    return [concern for concern, every in TICK_MINUTES.items() if minute % every == 0]
