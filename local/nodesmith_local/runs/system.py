"""The whole system in one process: everything between `kubectl apply` and a bound pod, started in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.composition import parts
from nodesmith.registration import Registration
from nodesmith_formats.decisions.records import Folder, Records
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_formats.manifests.places import numbered
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.backends.clusters import LocalCluster, RunningCluster
from nodesmith_local.backends.embedded import EmbeddedCluster
from nodesmith_local.chaos.actions import interrupt, send_unreadable_events
from nodesmith_local.chaos.active import ActiveFaults
from nodesmith_local.chaos.calls import FaultyCalls
from nodesmith_local.chaos.control import controlling
from nodesmith_local.chaos.faults import FaultKind, Service
from nodesmith_local.cluster import Pace
from nodesmith_local.composite import Started
from nodesmith_local.functions.deployment import FUNCTIONS, Deployment, deploy, register
from nodesmith_local.functions.invoker import Invoker
from nodesmith_local.functions.loading import Function, environment, load_function
from nodesmith_local.functions.sharedclients import SharedClients
from nodesmith_local.functions.sqsclock import queues_run_on
from nodesmith_local.logs import logs_to
from nodesmith_local.runs.servedcluster import Region, ServedCluster, Stage
from nodesmith_local.runs.timeline import Timeline

ControlPlaneKind = Literal["embedded", "real"]
_LAMBDAS_OWN = {
    "POWERTOOLS_TRACE_DISABLED": "true",
    "POWERTOOLS_METRICS_DISABLED": "true",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
_THE_USERS = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a local system runs.

    `cluster` names the first of `clusters`; the others are named `<cluster>-2` and so on. `zones` are those with
    subnets, empty for all. `port` 0 takes a free one; further clusters take the ports after it. `no_capacity` holds
    patterns of pools. `pull_seconds` is how long a node pulls the images of a pod if it lacks them; Kubernetes' own
    programs (`control_plane`) do not simulate this.
    """

    region: str
    cluster: str
    zones: tuple[str, ...] = ()
    speed: float = 1.0
    port: int = 0
    no_capacity: tuple[str, ...] = ()
    control_plane: ControlPlaneKind = "embedded"
    clusters: int = 1
    pull_seconds: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all clusters, the first cluster first."""
        return tuple(numbered(self.cluster, number) for number in range(1, self.clusters + 1))


def _start_of(place: Place, state: Path) -> datetime:
    """Return the time that the clocks start at: now, or after the decisions that the folder holds, whichever is later.

    An earlier run is ahead of the time if its clock ran fast, and `latest` must mean a decision of this run.
    Kubernetes' own programs keep real time.
    """
    now = datetime.now(UTC)
    if place.control_plane == "real":
        return now
    earlier = (Records(Folder(state), name).newest_time() for name in place.names)
    return max((now, *(at + timedelta(seconds=1) for at in earlier if at is not None)))


class LocalSystem(Started):
    """A context manager; inside it the clusters run, served by one set of functions. See `clusters`, or `first`.

    `state` is the folder for the log and the records of decisions; `stage` wraps each part of the start. `timeline`
    returns a cluster's timeline by its name. Raises Rejected for a region or pattern that does not exist.
    """

    def __init__(
        self,
        place: Place,
        state: Path,
        *,
        timeline: Callable[[str], Timeline] = lambda cluster: Timeline(),  # noqa: ARG005
        stage: Stage = lambda what: nullcontext(),  # noqa: ARG005
    ) -> None:
        self.place = place
        self.log = state / "local.log"
        self.clock = LocalClock(place.speed, start=_start_of(place, state))
        self.catalog = embedded_catalog(place.region)
        self.clusters: tuple[ServedCluster, ...]
        self.invoker: Invoker
        self.aws: LocalAws
        self.stage = stage
        self.chaos_url: str
        """Where `nodesmith chaos` starts faults."""
        self._state = state
        self._timeline = timeline
        self._stopping = threading.Event()
        self.faults = ActiveFaults(self.clock, self._stopping, self._pending_activity)
        self._calls = FaultyCalls(self.faults, self.clock)

    @property
    def first(self) -> ServedCluster:
        """The first cluster, usually the only one."""
        return self.clusters[0]

    def _start(self, stack: ExitStack) -> None:
        """Start the parts, those that others depend on first; the stack ends them in reverse order."""
        # Functions' output is their log, as on Lambda; user output goes to a console that was opened before.
        stack.enter_context(redirect_stdout(stack.enter_context(logs_to(self.log))))
        stack.enter_context(environment(_LAMBDAS_OWN, without=_THE_USERS))
        with self.stage("starting the cluster" if self.place.clusters == 1 else "starting the clusters"):
            running = {
                name: stack.enter_context(self._cluster(name, number))
                for number, name in enumerate(self.place.names)
            }
        with self.stage("starting AWS"):
            self.aws = self._start_aws(stack, running)
            deployment = deploy(self.aws.client, self.place.region)
            for name, network in self.aws.networks.items():
                registration = Registration(name, network.vpc_id, (self.aws.roles[name],))
                register(self.aws.client, registration)
        with self.stage("starting the functions"):
            self.clusters = self._served(running, deployment)
            self._start_functions(stack, deployment)
            for cluster in self.clusters:
                cluster.start(stack)
        self.chaos_url = stack.enter_context(controlling(self.faults))
        stack.callback(self._stopping.set)

    def _cluster(self, name: str, number: int) -> LocalCluster:
        """Return the cluster with this name; the first has the number 0."""
        port = self.place.port + number if self.place.port else 0
        match self.place.control_plane:
            case "embedded":
                return EmbeddedCluster(self.clock, port, Pace(pull_seconds=self.place.pull_seconds))
            case "real":
                from nodesmith_local.backends.real import RealCluster, functions_of

                return RealCluster(
                    self._state / numbered("controlplane", number + 1),
                    authenticate=functions_of("local", name),
                    rights=name,
                    port=port,
                    stage=self.stage,
                )
            case _:
                assert_never(self.place.control_plane)

    def _start_aws(self, stack: ExitStack, running: Mapping[str, RunningCluster]) -> LocalAws:
        stack.enter_context(queues_run_on(self.clock, self._stopping))
        endpoints = {name: Endpoint(server.url, server.ca_bundle) for name, server in running.items()}
        aws = LocalAws(
            self.place.region,
            cluster=self.place.cluster,
            endpoint=endpoints.pop(self.place.cluster),
            clock=self.clock,
            catalog=self.catalog,
            zones=self.place.zones,
            no_capacity=self.place.no_capacity,
        )
        stack.enter_context(aws)
        for name, endpoint in endpoints.items():
            aws.join(name, endpoint)
        stack.enter_context(environment(aws.environment))
        return aws

    def _served(
        self, running: Mapping[str, RunningCluster], deployment: Deployment
    ) -> tuple[ServedCluster, ...]:
        region = Region(
            self.aws, deployment, self.clock, self.catalog, self.stage, self._stopping, self._calls
        )
        keep, is_alone = Folder(self._state), len(running) == 1
        return tuple(
            ServedCluster(name, server, region, self._timeline(name), keep, is_alone=is_alone)
            for name, server in running.items()
        )

    def _start_functions(self, stack: ExitStack, deployment: Deployment) -> None:
        stack.enter_context(environment(deployment.environment()))
        # The queues use the same clock, so delays need no conversion to real seconds.
        parts.set_clock(self._calls.now)
        stack.callback(parts.set_clock, parts.system_time)
        clients = SharedClients()
        parts.set_session(lambda concern, cluster: self._calls.session(clients, concern))  # noqa: ARG005
        stack.callback(parts.set_session, parts.own_session)
        parts.set_connected(self._calls.connection)
        stack.callback(parts.set_connected, parts.own_connection)
        functions = self._functions()
        for served_cluster in self.clusters:
            served_cluster.follow(stack)
        self._prepare_faults(deployment)
        ticks = partial(self.faults.deliveries, Service.SCHEDULER)
        self.invoker = Invoker(deployment, functions, self.aws.lambdas, self.clock, self._stopping, ticks)
        stack.callback(self.invoker.join)
        self.invoker.start()

    def _functions(self) -> dict[str, Function]:
        functions = {
            function.name: load_function(function.name, function.timeout_seconds).within(self._calls.running)
            for function in FUNCTIONS
        }
        for concern in ("provisioning", "disruption"):
            functions[concern] = functions[concern].followed_by(self._collect)
        return functions

    def _prepare_faults(self, deployment: Deployment) -> None:
        """Let EventBridge's deliveries meet faults, and faults act by themselves."""
        aws, region = self.aws, self.place.region
        aws.lambdas.deliveries = partial(self.faults.deliveries, Service.EVENTS)
        self.faults.acts = {
            FaultKind.POISONED: send_unreadable_events(aws.lambdas, aws.client, deployment.queue_url, region),
            FaultKind.INTERRUPTED: interrupt(aws.client, region, self.clock.now),
        }

    def _pending_activity(self) -> str:
        """Return the first thing that is still under way in the clusters, or "" if there is nothing."""
        return next(filter(None, (cluster.pending_activity() for cluster in self.clusters)), "")

    def _collect(self) -> None:
        for cluster in self.clusters:
            cluster.decisions.collect()
