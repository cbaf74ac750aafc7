"""The whole system in one process: all that lies between `kubectl apply` and a bound pod, started in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, assert_never

from nodesmith import parts
from nodesmith.adapters.apiserver import ApiServer, connect
from nodesmith.adapters.blobs import S3Blobs
from nodesmith.adapters.catalogs import embedded_catalog
from nodesmith.adapters.messages import SqsHints
from nodesmith.model.events import Concern
from nodesmith.registration import Registration
from nodesmith.settings import queue_urls
from nodesmith_cli.local.apiserver.history import Watcher
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud import LocalAws
from nodesmith_cli.local.cloud.account import Endpoint
from nodesmith_cli.local.clusters import LocalCluster, RunningCluster
from nodesmith_cli.local.decisions import Decisions
from nodesmith_cli.local.deployment import DISPATCH, WOKEN_BY_QUEUES, Deployment, deploy, register
from nodesmith_cli.local.embedded import EmbeddedCluster
from nodesmith_cli.local.functions import environment, load_function
from nodesmith_cli.local.invoker import Invoker
from nodesmith_cli.local.logs import logs_to
from nodesmith_cli.local.objects import Objects
from nodesmith_cli.local.prices import prices
from nodesmith_cli.local.queuetime import queues_run_on
from nodesmith_cli.local.quiet import CALM, WORKLOADS, Scene
from nodesmith_cli.local.report import Report, build_report
from nodesmith_cli.local.sharedclients import SharedClients
from nodesmith_cli.local.started import Started
from nodesmith_cli.local.timeline import DECIDED, FOLLOWED, Timeline
from nodesmith_cli.records import Bucket, Folder
from nodesmith_forwarder.forwarder import Forwarder
from nodesmith_forwarder.health import METRICS, serve_health

ControlPlaneKind = Literal["embedded", "real"]
Stage = Callable[[str], AbstractContextManager[None]]
_LAMBDAS_OWN = {
    "POWERTOOLS_TRACE_DISABLED": "true",
    "POWERTOOLS_METRICS_DISABLED": "true",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
_LOOPBACK = "127.0.0.1"
_CALM_OF_LIFE_SECONDS = 0.5  # however fast the clock, the functions must have had the time to act
_DECIDED_UPON = ("nodepools", "provisioners", "ec2nodeclasses", "awsnodetemplates")
_THE_USERS = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a local system runs.

    `zones` are those with subnets, none for all. `port` 0 takes a free one; `no_capacity` are patterns of pools.
    """

    region: str
    cluster: str
    zones: tuple[str, ...] = ()
    speed: float = 1.0
    port: int = 0
    no_capacity: tuple[str, ...] = ()
    control_plane: ControlPlaneKind = "embedded"


class LocalSystem(Started):
    """A context manager. Inside it the cluster lives: use `store` in process, or `api.url` from outside.

    `state` is the folder for the log and the records of decisions, `stage` wraps each part of the start, `timeline`
    collects what happens. Raises Rejected for a region or pattern that does not exist.
    """

    def __init__(
        self,
        place: Place,
        state: Path,
        *,
        timeline: Timeline | None = None,
        stage: Stage = lambda what: nullcontext(),  # noqa: ARG005
    ) -> None:
        self.place = place
        self.log = state / "local.log"
        self.clock = LocalClock(place.speed)
        self.catalog = embedded_catalog(place.region)
        self.timeline = timeline or Timeline()
        self.started_at = self.clock.now()
        self.decisions: Decisions
        self.invoker: Invoker
        self.cluster: RunningCluster
        self.aws: LocalAws
        self.metrics_url: str
        self._keep = Folder(state)
        self.stage = stage
        self._stopping = threading.Event()

    @property
    def objects(self) -> Objects:
        """The cluster's objects."""
        return self.cluster.objects

    def scene(self) -> Scene:
        """Give the cluster as it is now, for judging whether it is quiet."""
        return Scene(
            now=self.clock.now(),
            last_change=self.last_change(),
            refused=self.decisions.refused(),
            calm=max(CALM, timedelta(seconds=_CALM_OF_LIFE_SECONDS * self.clock.speed)),
            pods=self.objects.list("pods"),
            nodeclaims=self.objects.list("nodeclaims"),
            nodepools=[each for kind in _DECIDED_UPON for each in self.objects.list(kind)],
            workloads={resource: self.objects.list(resource) for resource in WORKLOADS},
        )

    def last_change(self) -> datetime:
        """Give when something last happened to the cluster's objects."""
        entries = self.timeline.entries
        return max((e.at for e in entries if e.what != DECIDED), default=self.started_at)

    def report(self) -> Report:
        """Give the outcome so far."""
        return build_report(
            self.objects.list("pods"),
            self.objects.list("nodes"),
            price_of=prices(self.catalog),
            reasons=self.decisions.reasons(),
            timeline=self.timeline.entries,
            problems=self.decisions.problems(),
        )

    def claims_by_node(self) -> dict[str, str]:
        """Give the NodeClaims' names by the names of their nodes."""
        claims = self.objects.list("nodeclaims")
        named = {(claim.get("status") or {}).get("nodeName"): claim["metadata"]["name"] for claim in claims}
        return {str(node): claim for node, claim in named.items() if node}

    def _start(self, stack: ExitStack) -> None:
        """Start what others lean on first; the stack ends it in the opposite order."""
        # What functions print is their log, as on Lambda; whoever talks to the user has opened a console before.
        stack.enter_context(redirect_stdout(stack.enter_context(logs_to(self.log))))
        stack.enter_context(environment(_LAMBDAS_OWN, without=_THE_USERS))
        with self.stage("starting the cluster"):
            self.cluster = stack.enter_context(self._cluster())
        with self.stage("starting AWS"):
            self.aws = self._start_aws(stack)
            client = self.aws.client
            deployment = deploy(client, self.place.region)
            register(client, Registration(self.place.cluster, self.aws.network.vpc_id, (self.aws.role,)))
        with self.stage("starting the functions"):
            self._start_functions(stack, client, deployment)
            forwarder = forwarder_here(
                self.place.cluster,
                self.cluster,
                client,
                deployment.bucket,
                queue_urls(deployment.queues_url, ""),
                self.clock,
            )
            self._run(stack, "forwarder", forwarder.run)
            answering = serve_health(0, {}, forwarder.metrics, _LOOPBACK)
            stack.callback(answering.server_close)
            stack.callback(answering.shutdown)
            self.metrics_url = f"http://{_LOOPBACK}:{answering.server_port}{METRICS}"
            kubelets = self.aws.kubelets(self.objects, kwok=self.cluster.kwok)
            self._run(stack, "kubelets", lambda stop: kubelets.run(self.clock, stop))
        stack.callback(self._stopping.set)

    def _cluster(self) -> LocalCluster:
        match self.place.control_plane:
            case "embedded":
                return EmbeddedCluster(self.clock, self.place.port)
            case "real":
                from nodesmith_cli.local.real import RealCluster, functions_of

                return RealCluster(
                    self.log.parent / "controlplane",
                    authenticate=functions_of("local", self.place.cluster),
                    rights=self.place.cluster,
                    port=self.place.port,
                    stage=self.stage,
                )
            case _:
                assert_never(self.place.control_plane)

    def _start_aws(self, stack: ExitStack) -> LocalAws:
        stack.enter_context(queues_run_on(self.clock, self._stopping))
        aws = LocalAws(
            self.place.region,
            cluster=self.place.cluster,
            endpoint=Endpoint(self.cluster.url, self.cluster.ca_bundle),
            clock=self.clock,
            catalog=self.catalog,
            zones=self.place.zones,
            no_capacity=self.place.no_capacity,
        )
        stack.enter_context(aws)
        stack.enter_context(environment(aws.environment))
        return aws

    def _start_functions(
        self, stack: ExitStack, client: Callable[[str], Any], deployment: Deployment
    ) -> None:
        stack.enter_context(environment(deployment.environment()))
        # The queues live by the same clock, so that no delay need be turned into seconds of life.
        parts.set_clock(self.clock.now)
        stack.callback(parts.set_clock, parts.system_time)
        clients = SharedClients()
        parts.set_session(lambda concern, cluster: clients)  # noqa: ARG005 - one for all
        stack.callback(parts.set_session, parts.own_session)
        functions = {c.name: load_function(c.name, c.timeout_seconds) for c in WOKEN_BY_QUEUES}
        functions[DISPATCH] = load_function(DISPATCH)
        records = Bucket(client("s3"), deployment.bucket)
        self.decisions = Decisions(records, self.place.cluster, self.timeline, self._keep)
        for concern in ("provisioning", "disruption"):
            functions[concern] = functions[concern].followed_by(self.decisions.collect)
        self._follow(stack)
        self.invoker = Invoker(deployment, functions, self.clock, self._stopping)
        stack.callback(self.invoker.join)
        self.invoker.start()

    def _follow(self, stack: ExitStack) -> None:
        """Put what happens to the cluster's objects on the timeline."""
        for resource in FOLLOWED:
            watcher = self.objects.watch(resource)
            self._thread(stack, f"follow-{resource}", partial(self._observe, watcher))
            stack.callback(watcher.close)

    def _observe(self, watcher: Watcher) -> None:
        while (change := watcher.queue.get()) is not None:
            after = None if change.verb == "DELETED" else change.after.object
            before = change.before.object if change.before else None
            self.timeline.observe(self.clock.now(), before, after)

    def _run(self, stack: ExitStack, name: str, job: Callable[[threading.Event], None]) -> None:
        self._thread(stack, name, partial(job, self._stopping))

    def _thread(self, stack: ExitStack, name: str, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, name=name, daemon=True)
        thread.start()
        stack.callback(thread.join, 5)


def forwarder_here(
    name: str,
    cluster: RunningCluster,
    client: Callable[[str], Any],
    bucket: str,
    queue_urls: Mapping[Concern, str],
    clock: LocalClock,
) -> Forwarder:
    """Give a forwarder that runs in this process. `name` is the cluster's, `queue_urls` go by concern."""
    return Forwarder(
        cluster=name,
        server=ApiServer(connect(cluster.url, cluster.ca_bundle, lambda: cluster.token)),
        blobs=S3Blobs(client("s3"), bucket),
        hints=SqsHints(client("sqs"), queue_urls),
        clock=clock,
    )
