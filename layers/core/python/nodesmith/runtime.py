"""The composition root: which adapter stands behind which port, for each function.

Each function of this module composes one concern when it is called, which a handler does at import, in Lambda's
initialisation; it gives the handler. Nothing here decides anything.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypedDict

from nodesmith.errors import Rejected
from nodesmith.model.events import Concern
from nodesmith.parts import Event, Handler, Parts, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodesmith.controllers.provisioning import Provisioning
    from nodesmith.model.metrics import Metrics
    from nodesmith.ports import Blobs, Cloud, Cluster, Hints, Store

NODES_AT_ONCE = 8
"""How many nodes that come or end take a step at once: with most of it they wait for EC2, DynamoDB, the API server."""


class _Outside(TypedDict):
    cluster_name: str
    store: Store
    cloud: Cloud
    cluster: Cluster
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
    metrics: Metrics


def _outside(parts: Parts, store: Store, cluster: Cluster) -> _Outside:
    """Give what most concerns work with: the ledger, EC2, the API server, objects, queues and the time."""
    return _Outside(
        cluster_name=parts.settings.cluster_name,
        store=store,
        cloud=parts.measured_cloud(),
        cluster=cluster,
        blobs=parts.blobs,
        hints=parts.hints,
        clock=now,
        metrics=parts.metrics,
    )


def provisioning() -> Handler:
    """Compose provisioning: pending pods become nodes."""
    from nodesmith.controllers.onsale import OnSaleKeeper
    from nodesmith.controllers.provisioning import provision
    from nodesmith.decisions.provisioning import rehearse

    parts = Parts(Concern.PROVISIONING)
    keeper = OnSaleKeeper(parts.blobs, parts.settings.cluster_name, now)
    run = replace(_provisioning(parts), rehearse=rehearse, afterwards=keeper.keep)

    def provision_once() -> None:
        outcome = provision(run)
        parts.telemetry.ran(outcome.counts, decisions=outcome.decisions)

    return parts.handler(provision_once)


def _provisioning(parts: Parts) -> Provisioning:
    from nodesmith.adapters.catalogs import StoredCatalogs
    from nodesmith.controllers.provisioning import Provisioning

    parts.client("ec2")  # made now, in the initialisation, and not when the first pods wait for it
    return Provisioning(
        cluster_name=parts.settings.cluster_name,
        settings=parts.node_settings(),
        store=parts.store(),
        cloud=parts.measured_cloud(),
        blobs=parts.blobs,
        hints=parts.hints,
        catalogs=StoredCatalogs(parts.settings.region, parts.blobs),
        clock=now,
        stopwatch=time.perf_counter,
        remaining_seconds=parts.remaining_seconds,
        metrics=parts.metrics,
    )


def interruption() -> Handler:
    """Compose interruption: what EC2 takes away is replaced in the run that hears of it."""
    from nodesmith.controllers.interruption import Interruption, heed
    from nodesmith.controllers.provisioning import provision

    parts = Parts(Concern.INTERRUPTION)
    buying = _provisioning(parts)
    run = Interruption(
        cluster_name=parts.settings.cluster_name,
        store=buying.store,
        cloud=buying.cloud,
        blobs=parts.blobs,
        hints=parts.hints,
        provision=lambda: provision(buying),
        clock=now,
        metrics=parts.metrics,
    )
    return parts.handler_of_letters(lambda letters: heed(run, letters))


def routing() -> Handler:
    """Compose routing: what EC2 says of an instance reaches the cluster that launched it."""
    from nodesmith.adapters.routes import DynamoRoutes, SqsPost
    from nodesmith.controllers.routing import Routing, route

    parts = Parts(Concern.ROUTING)
    routes = DynamoRoutes(parts.client("dynamodb"), parts.settings.table_name)
    run = Routing(routes, SqsPost(parts.client("sqs"), parts.settings.routing_queue_url), now)
    return parts.handler_of_letters(lambda letters: route(run, letters))


def disruption() -> Handler:
    """Compose disruption: the fleet follows the work down, at the lowest price and with the least harm."""
    from nodesmith.adapters.kubernetes import ApiCluster
    from nodesmith.controllers.disruption import Disruption, Memory, disrupt

    parts = Parts(Concern.DISRUPTION)
    buying = _provisioning(parts)
    memory = Memory()

    def disrupt_once() -> None:
        run = Disruption(
            **_outside(parts, buying.store, ApiCluster(parts.api_server(), now)),
            settings=buying.settings,
            catalogs=buying.catalogs,
            memory=memory,
        )
        look = disrupt(run)
        if look is not None:
            parts.telemetry.ran(look.done, decisions=look.decisions)

    return parts.handler(disrupt_once)


def lifecycle() -> Handler:
    """Compose lifecycle: claims become registered, initialized nodes, or end."""
    from nodesmith.adapters.kubernetes import ApiCluster
    from nodesmith.controllers.consolidatable import Pace
    from nodesmith.controllers.lifecycle import Lifecycle, follow
    from nodesmith.controllers.news import Told
    from nodesmith.controllers.selfhints import SelfHints
    from nodesmith.controllers.sidebyside import from_anywhere

    parts = Parts(Concern.LIFECYCLE)
    store = parts.store()
    told: Told = {}
    self_hints, pace = SelfHints(), Pace()
    spread = from_anywhere(ThreadPoolExecutor(NODES_AT_ONCE).map)

    def follow_once() -> None:
        run = Lifecycle(
            **_outside(parts, store, ApiCluster(parts.api_server(), now)),
            told=told,
            self_hints=self_hints,
            pace=pace,
            spread=spread,
        )
        parts.telemetry.ran(follow(run))

    return parts.handler(follow_once)


def termination() -> Handler:
    """Compose termination: nodes that are to go are drained, their instances terminated, their claims forgotten."""
    from nodesmith.adapters.kubernetes import ApiCluster
    from nodesmith.controllers.drains import Drains
    from nodesmith.controllers.reckoning import Reckoning
    from nodesmith.controllers.selfhints import SelfHints
    from nodesmith.controllers.termination import Termination, end_nodes

    parts = Parts(Concern.TERMINATION)
    store = parts.store()
    self_hints, reckoning, drains = SelfHints(), Reckoning(parts.telemetry.note), Drains()
    denied: dict[str, datetime] = {}
    spread = ThreadPoolExecutor(NODES_AT_ONCE).map

    def end_nodes_once() -> None:
        run = Termination(
            **_outside(parts, store, ApiCluster(parts.api_server(), now, parts.metrics)),
            self_hints=self_hints,
            reckoning=reckoning,
            drains=drains,
            denied=denied,
            spread=spread,
        )
        parts.telemetry.ran(end_nodes(run))

    return parts.handler(end_nodes_once)


def readiness() -> Handler:
    """Compose readiness: EC2NodeClasses are resolved, conditions written."""
    from nodesmith.adapters.kubernetes import ApiCluster
    from nodesmith.controllers.readiness import Readiness, make_ready

    parts = Parts(Concern.READINESS)
    store = parts.store()

    def make_ready_once() -> None:
        report = make_ready(Readiness(**_outside(parts, store, ApiCluster(parts.api_server(), now))))
        parts.telemetry.ran(report.counts)

    return parts.handler(make_ready_once)


def observation() -> Handler:
    """Compose observation: a snapshot from the API server when the forwarder is away."""
    from nodesmith.adapters.observer import Observer
    from nodesmith.controllers.observation import Observation, observe

    parts = Parts(Concern.OBSERVATION)
    run = Observation(
        cluster_name=parts.settings.cluster_name,
        observer=lambda: Observer(parts.api_server()),
        blobs=parts.blobs,
        hints=parts.hints,
        clock=now,
        stale_after=timedelta(seconds=parts.settings.heartbeat_stale_seconds),
    )
    return parts.handler(lambda: parts.telemetry.ran({"SnapshotsWritten": int(observe(run))}))


def garbagecollection() -> Handler:
    """Compose garbage collection: what nobody needs any more goes."""
    from nodesmith.adapters.kubernetes import ApiCluster
    from nodesmith.controllers.garbagecollection import GarbageCollection, collect_garbage

    parts = Parts(Concern.GARBAGECOLLECTION)
    store = parts.store()
    detached_since: dict[str, datetime] = {}

    def collect_once() -> None:
        run = GarbageCollection(
            **_outside(parts, store, ApiCluster(parts.api_server(), now)),
            detached_since=detached_since,
        )
        report = collect_garbage(run)
        parts.telemetry.ran(report.counts, collected=report.collected)

    return parts.handler(collect_once)


def repair() -> Handler:
    """Compose repair: nodes that have been sick for too long are replaced, or told of."""
    from nodesmith.adapters.kubernetes import ApiCluster
    from nodesmith.controllers.news import Told
    from nodesmith.controllers.repair import Repair, repair_nodes

    parts = Parts(Concern.REPAIR)
    store = parts.store()
    told: Told = {}

    def repair_once() -> None:
        run = Repair(
            cluster_name=parts.settings.cluster_name,
            store=store,
            cluster=ApiCluster(parts.api_server(), now),
            blobs=parts.blobs,
            hints=parts.hints,
            clock=now,
            told=told,
            metrics=parts.metrics,
        )
        parts.telemetry.ran(repair_nodes(run))

    return parts.handler(repair_once)


def catalog() -> Handler:
    """Compose catalog: what can be bought, refreshed. Woken by a schedule, without a message."""
    from nodesmith.adapters.catalogs import StoredCatalogs, embedded_prices
    from nodesmith.adapters.pricing import aws_market
    from nodesmith.controllers.catalog import refresh_catalog

    parts = Parts(Concern.CATALOG)
    region = parts.settings.region
    market = aws_market(region, isolated_vpc=parts.settings.isolated_vpc)
    catalogs = StoredCatalogs(region, parts.blobs)

    def handle(event: Event, context: object) -> None:
        del event, context
        try:
            report = refresh_catalog(market, catalogs, embedded_prices(region), now())
        except Rejected as error:
            parts.telemetry.rejected(str(error))
            return
        parts.telemetry.ran({"InstanceTypes": report.types, "Offerings": report.offerings}, ref=report.ref)

    return handle
