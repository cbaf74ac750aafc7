"""The composition root: connect adapters to ports, for each function that serves clusters.

Each public function of this module composes one concern and returns its handler. It is called when the function's
module is imported, in Lambda's initialisation. The parts for a cluster are composed when its first message arrives.
Nothing here makes decisions.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypedDict

from nodesmith.composition.handlers import Handler, Run, concern_handler
from nodesmith.composition.parts import ClusterParts, Parts, now
from nodesmith.controllers.runs import Report
from nodesmith.model.functions import Concern

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodesmith.controllers.allocations import Booking
    from nodesmith.controllers.notifying import Notifier
    from nodesmith.controllers.provisioning import Provisioning
    from nodesmith.decisions.provisioning import Inputs
    from nodesmith.model.metrics.metrics import Metrics
    from nodesmith.ports import Blobs, Cloud, Cluster, Hints, Store

LEDGER_AND_EC2 = ("ssm", "sts", "s3", "dynamodb", "ec2", "lambda")
"""The services that most concerns call, including those for a cluster's registration and session"""
NODES_AT_ONCE = 8
"""How many nodes take a step concurrently. Most of that time is spent waiting for EC2, DynamoDB and the API server."""


class _ClusterPorts(TypedDict):
    cluster_name: str
    store: Store
    cloud: Cloud
    cluster: Cluster
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
    metrics: Metrics


def _outside(parts: ClusterParts, cluster: Cluster) -> _ClusterPorts:
    """Return the ports that most concerns use: the ledger, EC2, the API server, objects, hints, clock and metrics."""
    return _ClusterPorts(
        cluster_name=parts.settings.cluster_name,
        store=parts.store,
        cloud=parts.measured_cloud(),
        cluster=cluster,
        blobs=parts.blobs,
        hints=parts.hints,
        clock=now,
        metrics=parts.metrics,
    )


def _logged(parts: ClusterParts, report: Report, **names: list[str]) -> Report:
    """Log a finished run, with `names` as further fields, and return its report."""
    parts.telemetry.ran(report.counts, **names)
    return report


def provisioning() -> Handler:
    """Compose provisioning, which buys nodes for pending pods."""
    from nodesmith.controllers.provisioning import provision
    from nodesmith.controllers.region.commitments import OnSaleKeeper, UsageKeeper
    from nodesmith.decisions.provisioning import Rehearsal

    rehearse = Rehearsal()

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        keeper = OnSaleKeeper(parts.blobs, parts.settings.cluster_name, now)
        usage = UsageKeeper(parts.commitments, now) if parts.commitments is not None else None

        def afterwards(inputs: Inputs) -> None:
            keeper.keep(inputs)
            if usage is not None:
                usage.keep(inputs)

        run = replace(_provisioning(parts), rehearse=rehearse, when_nothing_bought=afterwards)

        def provision_once() -> Report:
            outcome = provision(run)
            report = Report(Counter(outcome.counts), due=outcome.due)
            return _logged(parts, report, decisions=outcome.decisions)

        return provision_once

    return concern_handler(Parts(Concern.PROVISIONING, *LEDGER_AND_EC2), composed)


def _provisioning(parts: ClusterParts) -> Provisioning:
    from nodesmith.adapters.catalog.catalogs import StoredCatalogs
    from nodesmith.controllers.provisioning import Provisioning

    parts.client("ec2")  # created now, so that the first pods do not wait for it
    return Provisioning(
        cluster_name=parts.settings.cluster_name,
        settings=parts.node_settings(),
        store=parts.store,
        cloud=parts.measured_cloud(),
        blobs=parts.blobs,
        hints=parts.hints,
        catalogs=StoredCatalogs(parts.settings.region, parts.blobs),
        clock=now,
        stopwatch=time.perf_counter,
        remaining_seconds=parts.remaining_seconds,
        metrics=parts.metrics,
        commitments=parts.commitments,
        last_heartbeat=parts.heartbeats.last,
    )


def interruption() -> Handler:
    """Compose interruption, which replaces instances that EC2 reclaims in the run that reads the notice."""
    from nodesmith.adapters.dynamodb.regionitems import DynamoNotices
    from nodesmith.controllers.disruption.interruption import Interruption, handle_notices
    from nodesmith.controllers.provisioning import provision

    def composed(parts: ClusterParts) -> Run:
        buying, cluster = _provisioning(parts), parts.settings.cluster_name
        run = Interruption(
            cluster_name=cluster,
            store=buying.store,
            cloud=buying.cloud,
            blobs=parts.blobs,
            hints=parts.hints,
            notices=DynamoNotices(parts.client("dynamodb"), parts.settings.table_name, cluster),
            provision=lambda: provision(buying),
            clock=now,
            metrics=parts.metrics,
        )

        return lambda: _logged(parts, handle_notices(run))

    return concern_handler(Parts(Concern.INTERRUPTION, *LEDGER_AND_EC2), composed)


def disruption() -> Handler:
    """Compose disruption, which shrinks the fleet with its load, at the lowest price and with few evictions."""
    from nodesmith.adapters.kubernetes.cluster import ApiCluster
    from nodesmith.controllers.disruption.disruption import disrupt
    from nodesmith.controllers.disruption.moves.runstate import Disruption, Memory

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        buying, memory = _provisioning(parts), Memory()
        cluster = ApiCluster(parts.api_server, now)

        def disrupt_once() -> Report:
            run = Disruption(
                **_outside(parts, cluster),
                settings=buying.settings,
                catalogs=buying.catalogs,
                memory=memory,
                commitments=buying.commitments,
            )
            look = disrupt(run)
            if look is None:
                return Report()
            return _logged(parts, Report(look.done, due=look.due), decisions=look.decisions)

        return disrupt_once

    return concern_handler(Parts(Concern.DISRUPTION, *LEDGER_AND_EC2), composed)


def lifecycle() -> Handler:
    """Compose lifecycle, which takes claims to registered and initialized nodes, or ends them."""
    from nodesmith.adapters.kubernetes.cluster import ApiCluster
    from nodesmith.controllers.lifecycle import Lifecycle, follow
    from nodesmith.controllers.nodeclaims.objects import Pace
    from nodesmith.controllers.runs import EventDeduplication, SelfHints, from_anywhere

    def notifier_of(parts: ClusterParts) -> Notifier | None:
        if not parts.settings.notifications:
            return None
        from nodesmith.adapters.aws.messaging import EventBridge
        from nodesmith.controllers.notifying import Notifier

        bus = EventBridge(lambda: parts.client("events"), parts.settings.region)
        return Notifier(bus, parts.blobs, parts.settings.cluster_name, parts.node_settings())

    spread = from_anywhere(ThreadPoolExecutor(NODES_AT_ONCE).map)

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        published: EventDeduplication = {}
        self_hints, pace, notifier = SelfHints(), Pace(), notifier_of(parts)
        cluster = ApiCluster(parts.api_server, now)

        def follow_once() -> Report:
            run = Lifecycle(
                **_outside(parts, cluster),
                published=published,
                self_hints=self_hints,
                pace=pace,
                shared_provisioning_classes=parts.settings.shared_provisioning_classes,
                spread=spread,
                autoscaler_events=parts.settings.cluster_autoscaler_events,
                notifier=notifier,
            )
            return _logged(parts, follow(run))

        return follow_once

    return concern_handler(Parts(Concern.LIFECYCLE, *LEDGER_AND_EC2), composed)


def termination() -> Handler:
    """Compose termination, which drains ending nodes, terminates their instances and forgets their claims."""
    from nodesmith.adapters.kubernetes.cluster import ApiCluster
    from nodesmith.controllers.runs import SelfHints
    from nodesmith.controllers.termination import Drains, InterruptionMetrics, Termination, end_nodes

    spread = ThreadPoolExecutor(NODES_AT_ONCE).map

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        self_hints, interruption_metrics, drains = (
            SelfHints(),
            InterruptionMetrics(parts.telemetry.note),
            Drains(),
        )
        denied: dict[str, datetime] = {}

        def end_nodes_once() -> Report:
            run = Termination(
                **_outside(parts, ApiCluster(parts.api_server, now, parts.metrics)),
                self_hints=self_hints,
                interruption_metrics=interruption_metrics,
                drains=drains,
                denied=denied,
                spread=spread,
            )
            return _logged(parts, end_nodes(run))

        return end_nodes_once

    return concern_handler(Parts(Concern.TERMINATION, *LEDGER_AND_EC2), composed)


def readiness() -> Handler:
    """Compose readiness, which resolves EC2NodeClasses and writes conditions."""
    from nodesmith.adapters.kubernetes.cluster import ApiCluster
    from nodesmith.controllers.readiness import Readiness, make_ready

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        def make_ready_once() -> Report:
            report = make_ready(Readiness(**_outside(parts, ApiCluster(parts.api_server, now))))
            return _logged(parts, Report(Counter(report.counts), due=report.due))

        return make_ready_once

    return concern_handler(Parts(Concern.READINESS, *LEDGER_AND_EC2), composed)


def observation() -> Handler:
    """Compose observation, which writes a snapshot from the API server while the forwarder is away."""
    from nodesmith.adapters.kubernetes.cluster import Observer
    from nodesmith.controllers.observation import Observation, observe

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        run = Observation(
            cluster_name=parts.settings.cluster_name,
            observer=lambda: Observer(parts.api_server),
            blobs=parts.blobs,
            hints=parts.hints,
            last_heartbeat=parts.heartbeats.last,
            clock=now,
            stale_after=timedelta(seconds=parts.settings.heartbeat_stale_seconds),
            is_observed=parts.registration.observed,
            labels_kept=parts.settings.allocation_labels,
        )
        # The report has no `due`: dispatch decides when observation is due.
        return lambda: _logged(parts, Report(Counter(SnapshotsWritten=int(observe(run)))))

    return concern_handler(Parts(Concern.OBSERVATION, "ssm", "sts", "s3", "dynamodb"), composed)


def garbagecollection() -> Handler:
    """Compose garbage collection, which removes what is no longer needed and books what nodes have cost."""
    from nodesmith.adapters.kubernetes.cluster import ApiCluster
    from nodesmith.controllers.garbagecollection import GarbageCollection, collect_and_book

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        detached_since: dict[str, datetime] = {}
        booking = _booking(parts)

        def collect_once() -> Report:
            run = GarbageCollection(
                **_outside(parts, ApiCluster(parts.api_server, now)), detached_since=detached_since
            )
            report = collect_and_book(run, booking)
            logged = Report(report.counts, rejected=report.rejected, due=report.due)
            return _logged(parts, logged, collected=report.collected)

        return collect_once

    return concern_handler(Parts(Concern.GARBAGECOLLECTION, *LEDGER_AND_EC2), composed)


def _booking(parts: ClusterParts) -> Booking:
    from nodesmith.adapters.catalog.catalogs import StoredCatalogs
    from nodesmith.adapters.s3 import S3History
    from nodesmith.controllers.allocations import BookedMemory, Booking

    return Booking(
        cluster_name=parts.settings.cluster_name,
        region=parts.settings.region,
        store=parts.store,
        unbooked=parts.store.unbooked,
        blobs=parts.blobs,
        history=S3History(parts.client("s3"), parts.settings.bucket_name),
        catalogs=StoredCatalogs(parts.settings.region, parts.blobs),
        clock=now,
        memory=BookedMemory(),
        labels=parts.settings.allocation_labels,
        uses_commitments=parts.settings.commitments is not None,
    )


def repair() -> Handler:
    """Compose repair, which replaces or reports nodes that have been unhealthy for too long."""
    from nodesmith.adapters.kubernetes.cluster import ApiCluster
    from nodesmith.controllers.disruption.repair import Repair, repair_nodes
    from nodesmith.controllers.runs import EventDeduplication

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        published: EventDeduplication = {}
        cluster = ApiCluster(parts.api_server, now)

        def repair_once() -> Report:
            run = Repair(
                cluster_name=parts.settings.cluster_name,
                store=parts.store,
                cluster=cluster,
                blobs=parts.blobs,
                hints=parts.hints,
                clock=now,
                last_heartbeat=parts.heartbeats.last,
                stale_after=timedelta(seconds=parts.settings.heartbeat_stale_seconds),
                published=published,
                metrics=parts.metrics,
            )
            return _logged(parts, repair_nodes(run))

        return repair_once

    return concern_handler(Parts(Concern.REPAIR, "ssm", "sts", "s3", "dynamodb"), composed)


def shadow() -> Handler:
    """Compose the shadows of observed clusters, which read, decide, and write nothing but what they find."""
    from nodesmith.adapters.catalog.catalogs import StoredCatalogs
    from nodesmith.controllers.shadow import Watch, watch

    def composed(parts: ClusterParts) -> Callable[[], Report]:
        run = Watch(
            cluster_name=parts.settings.cluster_name,
            settings=parts.node_settings(),
            blobs=parts.blobs,
            versions=parts.blobs,
            catalogs=StoredCatalogs(parts.settings.region, parts.blobs),
            last_heartbeat=parts.heartbeats.last,
            clock=now,
            stale_after=timedelta(seconds=parts.settings.heartbeat_stale_seconds),
        )
        return lambda: _logged(parts, watch(run))

    return concern_handler(Parts(Concern.SHADOW, "ssm", "sts", "s3", "dynamodb"), composed)
