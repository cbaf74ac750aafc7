"""The parts of every function: clock, clients, and for each cluster that it serves a session and what depends on it."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import UnknownServiceError
from botocore.session import get_session

from nodesmith.adapters.aws.messaging import LambdaHints, LambdaInvocations, SqsDelayedInvocations
from nodesmith.adapters.aws.registrations import SsmRegistrations
from nodesmith.adapters.dynamodb.healthrecords import HealthWriter
from nodesmith.adapters.s3 import MetricsWriter, S3Blobs
from nodesmith.composition.telemetry import Telemetry
from nodesmith.errors import Rejected, Transient
from nodesmith.keys import metrics_key
from nodesmith.model.functions import MEASURED, SHARING, Concern
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.registration import OBSERVED_PARAMETERS, PARAMETERS, Registration, settings_of
from nodesmith.settings import Settings, read_settings

if TYPE_CHECKING:
    from nodesmith.adapters.cloud import AwsCloud
    from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats
    from nodesmith.adapters.dynamodb.ledger import DynamoStore
    from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
    from nodesmith.adapters.kubernetes.apiserver import ApiServer
    from nodesmith.adapters.kubernetes.connection import Connection
    from nodesmith.model.policies import NodeSettings
    from nodesmith.ports import Cloud

_IN_SESSIONS = frozenset({"dynamodb", "ec2", "s3"})
"""The services that a function with sessions calls only in them, except for rare records that belong to no cluster"""
_REGISTRATIONS = {
    Concern.DISPATCH: (PARAMETERS, OBSERVED_PARAMETERS),
    Concern.OBSERVATION: (PARAMETERS, OBSERVED_PARAMETERS),
    Concern.SHADOW: (OBSERVED_PARAMETERS,),
}
"""Where the functions that work for observed clusters find registrations. All others know only served clusters."""
_WRITE_SECONDS = 5
"""Time reserved for writing metrics after a run, which usually takes 0.02 s. A run with less time left skips it."""
_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=3, read_timeout=20)


def system_time() -> datetime:
    """Return the current time of this machine in UTC."""
    return datetime.now(UTC)


_clock = system_time


def set_clock(clock: Callable[[], datetime]) -> None:
    """Set the clock of all functions in this process. A local system may let time run faster than `system_time`."""
    global _clock
    _clock = clock


def now() -> datetime:
    """Return the time by the clock of all functions in this process."""
    return _clock()


def collect_seldom() -> None:
    """Exclude everything loaded so far from garbage collection. `nodesmith` itself makes collections rare."""
    gc.freeze()


Session = Callable[[Concern, str], Any]
"""Returns the botocore session of a concern's function for a cluster, or the function's own for no cluster ("")."""


def own_session(concern: Concern, cluster: str) -> Any:
    """Return a botocore session with the function's own credentials."""
    del concern, cluster
    return get_session()


_session: Session = own_session


def set_session(session: Session) -> None:
    """Set the source of sessions for all functions in this process: `session` gets a concern and a cluster."""
    global _session
    _session = session


Connected = Callable[[Concern, "Connection"], "Connection"]
"""Returns what a concern's function uses for a connection to an API server."""


def own_connection(concern: Concern, connection: Connection) -> Connection:
    """Return the connection itself."""
    del concern
    return connection


_connected: Connected = own_connection


def set_connected(connected: Connected) -> None:
    """Set what all functions in this process use for connections to API servers. A local system lets some fail."""
    global _connected
    _connected = connected


class Clients:
    """The AWS clients of one session, each created once on first use."""

    def __init__(self, session: Any, region: str) -> None:
        self.session, self._region = session, region
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        """Return the client of a service."""
        if service not in self._made:
            config = _CONFIG
            if service == "ec2":
                from nodesmith.adapters.cloud import EC2_CONFIG

                config = EC2_CONFIG
            elif service == "events":
                from nodesmith.adapters.aws.messaging import EVENTS_CONFIG

                config = EVENTS_CONFIG
            elif service == "arc-zonal-shift":
                from nodesmith.adapters.aws.eks import ARC_CONFIG

                config = ARC_CONFIG
            self._made[service] = self.session.create_client(service, region_name=self._region, config=config)
        return self._made[service]

    def read_model(self, service: str) -> None:
        """Load the API model of a service, for the clients of all sessions that share this session's models."""
        loader = self.session.get_component("data_loader")
        for kind in ("service-2", "endpoint-rule-set-1"):
            with suppress(UnknownServiceError):
                loader.load_service_model(service, kind)


class Parts:
    """The parts of one function that do not depend on a cluster.

    Lambda's initialisation creates the function's own clients of `services`, and loads the API models of those services
    that it calls in a cluster's session, so that the first message need not wait. An unused client would cost 30 ms of
    CPU time on each start.
    """

    def __init__(self, concern: Concern, *services: str) -> None:
        self.concern = concern
        self.settings = _deployment_settings()
        self.telemetry = Telemetry(
            concern, "", metrics=self.settings.cloudwatch_metrics, release=self.settings.release
        )
        # botocore's session creates the same clients as boto3's, but saves 50 ms of cold start for S3 transfers.
        self.client = Clients(_session(concern, ""), self.settings.region)
        self.invocations = LambdaInvocations(self.client)
        self.delayed = SqsDelayedInvocations(self.client, self.settings.queue_url)
        paths = _REGISTRATIONS.get(concern, (PARAMETERS,))
        self.registrations = SsmRegistrations(lambda: self.client("ssm"), now, paths)
        self.context: object = None
        """Lambda's context of the current invocation."""
        in_sessions = _IN_SESSIONS if self.settings.session_role_arn else frozenset()
        for service in services:
            if service in in_sessions:
                self.client.read_model(service)
            else:
                self.client(service)

    def remaining_seconds(self) -> float:
        """Return how long the current invocation may still run, by Lambda's context; infinite outside Lambda."""
        remaining_ms = getattr(self.context, "get_remaining_time_in_millis", None)
        return remaining_ms() / 1000 if remaining_ms else math.inf

    @property
    def alias(self) -> str:
        """The alias by which the function was invoked, empty if there was none."""
        name = str(getattr(self.context, "invoked_function_arn", "")).partition(":function:")[2]
        return name.partition(":")[2]

    @cached_property
    def health(self) -> HealthWriter:
        """The writer of health records that belong to no cluster."""
        return HealthWriter(self.client("dynamodb"), self.settings.table_name, "", self.concern, now)

    @cached_property
    def blobs(self) -> S3Blobs:
        """The bucket, with the function's permissions outside a cluster's session."""
        return S3Blobs(self.client("s3"), self.settings.bucket_name)


class ClusterParts:
    """The parts of one function that serve one cluster, each created once on first use."""

    def __init__(self, parts: Parts, registration: Registration) -> None:
        self.registration = registration
        self.settings = settings_of(registration, parts.settings)
        self.telemetry = parts.telemetry.of(registration.cluster)
        self.remaining_seconds = parts.remaining_seconds
        self.client = Clients(_cluster_session(parts, registration), self.settings.region)
        self.blobs = S3Blobs(self.client("s3"), self.settings.bucket_name)
        self.hints = LambdaHints(parts.invocations, parts.delayed, registration.reached_from)
        self.metrics = Metrics(time.perf_counter)
        cluster = registration.cluster
        self.health = HealthWriter(
            self.client("dynamodb"), self.settings.table_name, cluster, parts.concern, now
        )
        self._concern = parts.concern
        self._metrics_writer = self._writer_of(parts.concern)

    @cached_property
    def store(self) -> DynamoStore:
        """The ledger of the cluster."""
        from nodesmith.adapters.dynamodb.ledger import DynamoStore

        return DynamoStore(
            self.client("dynamodb"),
            self.settings.table_name,
            self.settings.cluster_name,
            now,
            most_launches=self.settings.launches_per_hour,
            shares=self._concern in SHARING,
        )

    @cached_property
    def commitments(self) -> DynamoCommitments | None:
        """The commitments of the region; None if the deployment does not use them."""
        if self.settings.commitments is None:
            return None
        from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments

        return DynamoCommitments(self.client("dynamodb"), self.settings.table_name)

    @cached_property
    def heartbeats(self) -> DynamoHeartbeats:
        """The heartbeats of the cluster's forwarder."""
        from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats

        return DynamoHeartbeats(self.client("dynamodb"), self.settings.table_name, self.settings.cluster_name)

    @cached_property
    def cloud(self) -> AwsCloud:
        """EC2 for the cluster."""
        from nodesmith.adapters.cloud import AwsCloud

        return AwsCloud(self.client, self.settings, now)

    def measured_cloud(self) -> Cloud:
        """Return EC2 for the cluster, with metrics for the duration and failures of calls."""
        from nodesmith.adapters.cloud import CONTROLLERS, MeasuredCloud

        return MeasuredCloud(self.cloud, self.metrics, CONTROLLERS.get(self._concern, self._concern))

    @cached_property
    def api_server(self) -> ApiServer:
        """The cluster's API server. The first call connects to it, and may raise Transient or Rejected for that."""
        from nodesmith.adapters.kubernetes.apiserver import ApiServer

        return ApiServer(self._connection)

    def _connection(self) -> Connection:
        """Return a connection to the API server, whose endpoint settings or EKS provide. Raises Transient, Rejected."""
        from nodesmith.adapters.aws.eks import EksToken
        from nodesmith.adapters.kubernetes.apiserver import connect

        cluster = self.cloud.cluster_info()
        credentials = self.client.session.get_credentials()
        if credentials is None:
            raise Rejected("no AWS credentials were found, so no token for the API server can be signed")
        # AWS checks the token against real time, even if a local system lets time run faster.
        token = EksToken(credentials, cluster.name, self.settings.region, system_time)
        return _connected(self._concern, connect(cluster.endpoint, cluster.ca_bundle, token))

    def node_settings(self) -> NodeSettings:
        """Return the settings that affect what nodes offer and how pods are scheduled."""
        from nodesmith.model.policies import NodeSettings

        return NodeSettings(
            vm_memory_overhead_percent=self.settings.vm_memory_overhead_percent,
            reserved_enis=self.settings.reserved_enis,
            prefix_delegation=self.settings.prefix_delegation,
            windows_prefix_delegation=self.settings.windows_prefix_delegation,
            shared_provisioning_classes=self.settings.shared_provisioning_classes,
            preference_policy=self.settings.preference_policy,
            min_values_policy=self.settings.min_values_policy,
            fragility_tolerance=self.settings.fragility_tolerance,
            interruption_cost_hours=self.settings.interruption_cost_hours,
            default_spreads=self.settings.default_spreads,
            cluster_limits=self.settings.cluster_limits,
            expendable_priority_cutoff=self.settings.expendable_priority_cutoff,
            ignore_dra_requests=self.settings.ignore_dra_requests,
            proactive_pod_limit=self.settings.proactive_pod_limit,
        )

    @contextmanager
    def metrics_written(self) -> Iterator[None]:
        """Write metrics after the block, even if it raises. If that fails, they are written after the next run."""
        try:
            yield
        finally:
            if self._metrics_writer is not None and self.remaining_seconds() > _WRITE_SECONDS:
                try:
                    self._metrics_writer.write()
                except (Transient, Rejected):
                    self.telemetry.note("MetricsNotWritten", 1)

    def _writer_of(self, concern: Concern) -> MetricsWriter | None:
        if concern not in MEASURED:
            return None
        key, process = metrics_key(self.settings.cluster_name, concern), os.urandom(6).hex()
        return MetricsWriter(self.blobs, key, self.metrics, now, process)


def _deployment_settings() -> Settings:
    """Read the environment. Raises Rejected with every required variable that is not set."""
    settings = read_settings(os.environ)
    required = {
        "TABLE_NAME": settings.table_name,
        "BUCKET_NAME": settings.bucket_name,
        "QUEUE_URL": settings.queue_url,
    }
    missing = [name for name, value in required.items() if not value]
    if missing:
        raise Rejected(f"settings: {', '.join(missing)} not set; the region's stack must set them")
    return settings


def _cluster_session(parts: Parts, registration: Registration) -> Any:
    """Return the session for a cluster, which assumes the session role if the settings name one."""
    role_arn = parts.settings.session_role_arn
    if not role_arn:
        return _session(parts.concern, registration.cluster)
    from nodesmith.adapters.aws.registrations import cluster_session

    # Credentials expire by real time, even if a local system lets time run faster.
    return cluster_session(parts.client.session, parts.client("sts"), role_arn, registration, system_time)
