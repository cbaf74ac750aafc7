"""One cluster of a local system: all of its own parts, in addition to the functions that all clusters share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from nodesmith.adapters.aws.messaging import LambdaHints, LambdaInvocations
from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats
from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.connection import Connection
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.model.ec2.catalog import Catalog
from nodesmith_formats.decisions.records import Bucket, Folder
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_formats.prices import prices
from nodesmith_forwarder.forwarder import Forwarder
from nodesmith_forwarder.health import METRICS, serve_health
from nodesmith_local.apiserver.storage.history import Watcher
from nodesmith_local.aws import LocalAws
from nodesmith_local.backends.clusters import RunningCluster
from nodesmith_local.backends.objects import Objects
from nodesmith_local.chaos.calls import FaultyCalls
from nodesmith_local.chaos.faults import FORWARDER
from nodesmith_local.functions.deployment import TABLE_NAME, Deployment
from nodesmith_local.runs.decisions import Decisions
from nodesmith_local.runs.quiet import CALM, WORKLOADS, ClusterState, pending_activity
from nodesmith_local.runs.report import Report, build_report
from nodesmith_local.runs.timeline import DECIDED, FOLLOWED, Timeline, View

Stage = Callable[[str], AbstractContextManager[None]]
_LOOPBACK = "127.0.0.1"
_GLANCE_SECONDS, _RECORDED_WITHIN_SECONDS = 0.01, 10.0  # real seconds
_CALM_OF_LIFE_SECONDS = 0.5  # real seconds: at any speed, the functions need time to act
_DECIDED_UPON = ("nodepools", "provisioners", "ec2nodeclasses", "awsnodetemplates", "nodeoverlays")


@dataclass(frozen=True, slots=True)
class Region:
    """What the clusters of a local system share.

    `stage` wraps steps that the user waits for; `stopping` ends all threads.
    """

    aws: LocalAws
    deployment: Deployment
    clock: LocalClock
    catalog: Catalog
    stage: Stage
    stopping: threading.Event
    calls: FaultyCalls


class ServedCluster:
    """A cluster that the functions serve, with its forwarder, kubelets, timeline and records.

    `keep` is the folder for the records of decisions. `is_alone` means that there is no other cluster, so thread names
    in the log omit the cluster.
    """

    def __init__(
        self,
        name: str,
        cluster: RunningCluster,
        region: Region,
        timeline: Timeline,
        keep: Folder,
        *,
        is_alone: bool = True,
    ) -> None:
        self.name, self.cluster, self.timeline, self.keep = name, cluster, timeline, keep
        self.aws, self.clock, self.stage = region.aws, region.clock, region.stage
        self.catalog = region.catalog
        self.metrics_url: str
        records = Bucket(region.aws.client("s3"), region.deployment.bucket)
        self.decisions = Decisions(records, name, timeline, keep)
        self._heartbeats = DynamoHeartbeats(region.aws.client("dynamodb"), TABLE_NAME, name)
        self._region = region
        self._started_at = region.clock.now()
        self._recorded: dict[str, int] = {}
        self._suffix = "" if is_alone else f"-{name}"

    @property
    def objects(self) -> Objects:
        """The cluster's objects."""
        return self.cluster.objects

    def state(self) -> ClusterState:
        """Return the current state of the cluster, to decide whether it is quiet."""
        return ClusterState(
            now=self.clock.now(),
            last_change=self.last_change(),
            refused=lambda: self.decisions.refused(self._heartbeats.last()),
            quiet_for=max(CALM, timedelta(seconds=_CALM_OF_LIFE_SECONDS * self.clock.speed)),
            pods=self.objects.list("pods"),
            nodeclaims=self.objects.list("nodeclaims"),
            nodepools=[nodepool for kind in _DECIDED_UPON for nodepool in self.objects.list(kind)],
            workloads={resource: self.objects.list(resource) for resource in WORKLOADS},
        )

    def pending_activity(self) -> str:
        """Return the first thing that is still under way, or "" if the cluster is quiet."""
        return pending_activity(self.state())

    def last_change(self) -> datetime:
        """Return the time of the last change of the cluster's objects."""
        entries = self.timeline.entries
        return max((e.at for e in entries if e.what != DECIDED), default=self._started_at)

    def report(self) -> Report:
        """Return the outcome so far."""
        return build_report(
            self.objects.list("pods"),
            self.objects.list("nodes"),
            price_of=prices(self.catalog),
            reasons=self.decisions.reasons(),
            timeline=self.timeline.entries,
            problems=self.decisions.problems(),
        )

    def claims_by_node(self) -> dict[str, str]:
        """Return the names of NodeClaims by the names of their nodes."""
        claims = self.objects.list("nodeclaims")
        named = {(claim.get("status") or {}).get("nodeName"): claim["metadata"]["name"] for claim in claims}
        return {str(node): claim for node, claim in named.items() if node}

    def until_recorded(self) -> None:
        """Wait until the timeline contains all changes. Threads record them, on a busy machine much later."""
        newest = {resource: self._newest(resource) for resource in self._recorded}
        deadline = time.monotonic() + _RECORDED_WITHIN_SECONDS
        while any(self._recorded[kind] < newest[kind] for kind in newest) and time.monotonic() < deadline:
            time.sleep(_GLANCE_SECONDS)

    def follow(self, stack: ExitStack) -> None:
        """Record changes of the cluster's objects on the timeline, until the stack closes."""
        for resource in FOLLOWED:
            watcher = self.objects.watch(resource)
            self._recorded[resource] = self._newest(resource)
            self._thread(stack, f"follow-{resource}", partial(self._observe, resource, watcher))
            stack.callback(watcher.close)

    def start(self, stack: ExitStack) -> None:
        """Start the forwarder and the kubelets; they end when `stopping` is set, and the stack waits for them."""
        deployment, calls = self._region.deployment, self._region.calls
        forwarder = forwarder_here(
            self.name,
            self.cluster,
            cache(lambda service: calls.client(self.aws.client(service), FORWARDER)),
            deployment.bucket,
            self.clock,
            partial(calls.connection, FORWARDER),
        )
        stopping = self._region.stopping
        self._thread(stack, "forwarder", lambda: forwarder.run(stopping))
        answering = serve_health(0, {}, forwarder.metrics, _LOOPBACK)
        stack.callback(answering.server_close)
        stack.callback(answering.shutdown)
        self.metrics_url = f"http://{_LOOPBACK}:{answering.server_port}{METRICS}"
        kubelets = self.aws.kubelets(self.objects, kwok=self.cluster.kwok, cluster=self.name)
        self._thread(stack, "kubelets", lambda: kubelets.run(self.clock, stopping))

    def _observe(self, resource: str, watcher: Watcher) -> None:
        while (change := watcher.queue.get()) is not None:
            after = None if change.verb == "DELETED" else change.after.object
            before = change.before.object if change.before else None
            self.timeline.observe(self.clock.now(), before, after)
            self._recorded[resource] = max(self._recorded[resource], _version(change.after.object))

    def _newest(self, resource: str) -> int:
        return max(map(_version, self.objects.list(resource)), default=0)

    def _thread(self, stack: ExitStack, name: str, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, name=name + self._suffix, daemon=True)
        thread.start()
        stack.callback(thread.join, 5)


def _version(manifest: View) -> int:
    return int(manifest["metadata"]["resourceVersion"])


def forwarder_here(
    name: str,
    cluster: RunningCluster,
    client: Callable[[str], Any],
    bucket: str,
    clock: LocalClock,
    connected: Callable[[Connection], Connection] = lambda connection: connection,
) -> Forwarder:
    """Return a forwarder that runs in this process. `name` is the cluster's.

    `connected` returns what it uses for its connection to the API server.
    """
    return Forwarder(
        cluster=name,
        server=ApiServer(connected(connect(cluster.url, cluster.ca_bundle, lambda: cluster.token))),
        blobs=S3Blobs(client("s3"), bucket),
        hints=LambdaHints(LambdaInvocations(client)),
        heartbeats=DynamoHeartbeats(client("dynamodb"), TABLE_NAME, name),
        clock=clock,
    )
