"""The controller of routing: look up each event once, and store it unchanged for the clusters that it concerns.

EC2 does not say which cluster an instance belongs to. Events that concern no cluster are counted and dropped here, so
that other workloads in the same account wake no cluster. Since an event may be lost on its way, EC2 is asked every
minute, once for all clusters, which Spot instances it will interrupt.

Routing also wakes readiness where Amazon Application Recovery Controller has shifted a zone away. Events name the zones
of autoshifts and practice runs, but shifts that a user starts have no event. Routing therefore asks for these once a
minute as well, with one call for all clusters of the region. Readiness reads what holds for its cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from nodesmith.controllers.runs import Report
from nodesmith.errors import Failures, Rejected, Transient
from nodesmith.model.ec2.notices import ZONAL_SHIFTS, Notice, event_id, read_event
from nodesmith.model.ec2.zonalshifts import cluster_of
from nodesmith.model.functions import Concern, Hint
from nodesmith.ports import Hints
from nodesmith.regionports import (
    MarkedInstances,
    RegionNotices,
    Registrations,
    Routes,
    ShiftedClusters,
    Ticks,
)

AGAIN_SECONDS = 30
"""After a notice, interruption is woken at once, and again after this delay in case its first run has died."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What a run needs."""

    routes: Routes
    notices: RegionNotices
    marked: MarkedInstances
    hints: Hints
    clock: Callable[[], datetime]


def route(run: Routing, event: str, account: str) -> Report:
    """Store an event (JSON), received in `account`, for each cluster that it concerns, and wake interruption there.

    Raises Rejected for an event that cannot be read. Raises Transient, after all clusters have been tried, if the event
    must be routed again. An event that is routed twice is stored once.
    """
    notices, id_ = read_event(event, account, run.clock()), event_id(event)
    clusters = sorted({cluster for notice in notices for cluster in _clusters(run.routes, notice)})
    report = Report()
    report.counts["NoticesRouted" if clusters else "NoticesOfOthers"] += 1
    with Failures() as failures:
        for cluster in clusters:
            with failures.of(cluster):
                try:
                    run.notices.keep(cluster, id_, event, account)
                    _wake(run, cluster)
                except Rejected as error:
                    report.rejected.append(f"{cluster}: {error}")
    return report


def _clusters(routes: Routes, notice: Notice) -> frozenset[str]:
    if notice.reservation_id:
        return routes.of_reservation(notice.reservation_id)
    return routes.of_instance(notice.instance_id)


def _wake(run: Routing, cluster: str) -> None:
    hint = Hint(cluster, "EC2 has sent a notice")
    run.hints.send(Concern.INTERRUPTION, hint)
    run.hints.send(Concern.INTERRUPTION, hint, AGAIN_SECONDS)


def wake_warned(run: Routing) -> Report:
    """Wake interruption for each cluster with a Spot instance that EC2 will interrupt: its warning may have been lost.

    Raises Transient, after all clusters have been tried, if one could not be looked up or woken.
    """
    report = Report()
    warned: set[str] = set()
    with Failures() as failures:
        for instance in sorted(run.marked.ids()):
            with failures.of(instance):
                clusters = run.routes.of_instance(instance)
                report.counts["InstancesMarked"] += bool(clusters)
                warned |= clusters
        for cluster in sorted(warned):
            with failures.of(cluster):
                hint = Hint(cluster, "EC2 has marked spot instances")
                run.hints.send(Concern.INTERRUPTION, hint)
    return report


@dataclass(frozen=True, slots=True)
class Shifts:
    """What a run needs."""

    clusters: ShiftedClusters
    registrations: Registrations
    ticks: Ticks


def is_of_shifts(event: str) -> bool:
    """Return whether an event (JSON) comes from Application Recovery Controller."""
    try:
        document = json.loads(event)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("source") == ZONAL_SHIFTS


def wake_shifted(run: Shifts, event: str = "") -> Report:
    """Wake readiness of each registered cluster that is shifted away from a zone, or that the event may concern.

    Events of autoshifts name no cluster: they may concern all. An event is only a hint: readiness reads the shifts of
    its cluster. Raises Transient if a cluster could not be woken. If the shifts cannot be read on a tick, this is
    counted, and the next tick asks again; readiness itself looks every few minutes.
    """
    report = Report()
    names = set(_clusters_named(event))
    if not event:
        try:
            names = set(run.clusters.clusters())
        except (Transient, Rejected):
            report.counts["ZonalShiftsNotRead"] += 1
    if event or names:
        registered, _ = run.registrations.all()
        served = [registration for registration in registered if not names or registration.cluster in names]
        if served:
            report.counts["ClustersShifted"] += len(served)
            run.ticks.send(Concern.READINESS, served)
    return report


def _clusters_named(event: str) -> Iterator[str]:
    """Yield the clusters that an event names, if any."""
    resources = json.loads(event).get("resources") if event else ()
    for arn in resources if isinstance(resources, list) else ():
        name = cluster_of(arn) if isinstance(arn, str) else ""
        if name:
            yield name
