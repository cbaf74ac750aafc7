"""The second task of routing: wake readiness where Amazon Application Recovery Controller has shifted a zone away.

Events name the zones of autoshifts and practice runs, but shifts that a user starts have no event. Routing therefore
also asks once a minute, with one call for all clusters of the region. Readiness reads what holds for its cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from nodesmith.controllers.runs import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2.events import ZONAL_SHIFTS
from nodesmith.model.ec2.zonalshifts import cluster_of
from nodesmith.model.functions.hints import Concern
from nodesmith.regionports import Registrations, ShiftedClusters, Ticks


@dataclass(frozen=True, slots=True)
class Shifts:
    """What a run needs."""

    clusters: ShiftedClusters
    registrations: Registrations
    ticks: Ticks


def is_of_shifts(event: str) -> bool:
    """Return whether an event (JSON) comes from Application Recovery Controller."""
    try:
        found = json.loads(event)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("source") == ZONAL_SHIFTS


def wake_shifted(run: Shifts, event: str = "") -> Report:
    """Wake readiness of each registered cluster that is shifted away from a zone, or that the event names.

    The event is only a hint. Raises Transient if a cluster could not be woken. If the shifts cannot be read on a tick,
    this is counted, and the next tick asks again; readiness itself looks every few minutes.
    """
    report = Report()
    try:
        wanted = set(run.clusters.clusters())
    except (Transient, Rejected):
        if event:
            raise
        report.counts["ZonalShiftsNotRead"] += 1
        return report
    wanted |= set(_named(event))
    if wanted:
        known, _ = run.registrations.all()
        served = [each for each in known if each.cluster in wanted]
        if served:
            report.counts["ClustersShifted"] += len(served)
            run.ticks.send(Concern.READINESS, served)
    return report


def _named(event: str) -> Iterator[str]:
    """Yield the clusters that an event names, if any."""
    resources = json.loads(event).get("resources") if event else ()
    for arn in resources if isinstance(resources, list) else ():
        name = cluster_of(arn) if isinstance(arn, str) else ""
        if name:
            yield name
