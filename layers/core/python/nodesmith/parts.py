"""What every function is made of: clock, clients, and the frame in which a batch of messages is answered."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.session import get_session

from nodesmith.adapters.blobs import S3Blobs
from nodesmith.adapters.measuredcloud import CONTROLLERS, MeasuredCloud
from nodesmith.adapters.messages import SqsHints
from nodesmith.adapters.metricswriter import MetricsWriter
from nodesmith.adapters.redelivery import SqsRedelivery
from nodesmith.controllers.letters import Letter, Report
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import MEASURED, WOKEN, Concern, parse_hint
from nodesmith.model.metrics import Metrics
from nodesmith.settings import Settings, metrics_key, read_settings
from nodesmith.telemetry import Telemetry

if TYPE_CHECKING:
    from nodesmith.adapters.apiserver import ApiServer
    from nodesmith.adapters.ec2 import AwsCloud
    from nodesmith.adapters.store import DynamoStore
    from nodesmith.model.nodeconfiguration import NodeSettings
    from nodesmith.ports import Cloud

Event = Mapping[str, Any]
Handler = Callable[[Event, object], Mapping[str, Any] | None]
"""What it gives names the messages of a batch that are to come again; None is none of them."""
_OBJECTS_A_COLLECTION = 50_000
_WRITE_SECONDS = 5
"""What writing metrics may take at the end of a run, mostly a fiftieth of a second: a run with less left leaves them"""
_OF_A_REGION = frozenset({Concern.CATALOG, Concern.ROUTING})
_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=3, read_timeout=20)


def system_time() -> datetime:
    """Give the time of this machine."""
    return datetime.now(UTC)


_clock = system_time


def set_clock(clock: Callable[[], datetime]) -> None:
    """Let all functions of this process go by another clock than `system_time`; a laptop may let time run faster."""
    global _clock
    _clock = clock


def now() -> datetime:
    """Give the time by which all functions of this process go."""
    return _clock()


def collect_seldom() -> None:
    """Keep what is loaded by now for good, and look for cycles in the rest seldom: nearly all goes without.

    With Python's own threshold a decision on 10,000 pods walks through the whole snapshot, for half of its time.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION)


def own_session(concern: Concern) -> Any:
    """Return a botocore session of the function's own."""
    del concern
    return get_session()


_session: Callable[[Concern], Any] = own_session


def set_session(session: Callable[[Concern], Any]) -> None:
    """Let each function of this process have its clients from what `session` returns for its concern."""
    global _session
    _session = session


class Parts:
    """The parts of one function, each made once and only if it is asked for."""

    def __init__(self, concern: Concern) -> None:
        self._concern = concern
        self.settings: Settings = read_settings(os.environ)
        if concern not in _OF_A_REGION and not self.settings.cluster_name:
            raise Rejected(f"settings: CLUSTER_NAME is not set, {concern} serves one cluster")
        self.telemetry = Telemetry(concern, self.settings.cluster_name)
        # botocore's own session gives the same clients as boto3's, without 50 ms of cold start for S3 transfers.
        self._session = _session(concern)
        self._clients: dict[str, Any] = {}
        self._store: DynamoStore | None = None
        self._cloud: AwsCloud | None = None
        self._api_server: ApiServer | None = None
        self._context: object = None
        self.blobs = S3Blobs(self.client("s3"), self.settings.bucket_name)
        self.hints = SqsHints(self.client("sqs"), self._queue_urls())
        known_url = self.settings.provisioning_queue_url or self.settings.routing_queue_url
        self._redelivery = SqsRedelivery(self.client("sqs"), known_url)
        self.metrics = Metrics(time.perf_counter)
        self._metrics_writer = self._writer_of(concern)

    def remaining_seconds(self) -> float:
        """Return how long the invocation under way may still run, as Lambda's context says; infinite outside Lambda."""
        remaining_ms = getattr(self._context, "get_remaining_time_in_millis", None)
        return remaining_ms() / 1000 if remaining_ms else math.inf

    def client(self, service: str) -> Any:
        """Give the boto3 client of a service."""
        if service not in self._clients:
            config = _CONFIG
            if service == "ec2":
                from nodesmith.adapters.ec2 import EC2_CONFIG

                config = EC2_CONFIG
            self._clients[service] = self._session.create_client(
                service, region_name=self.settings.region, config=config
            )
        return self._clients[service]

    def store(self) -> DynamoStore:
        """Give the ledger of this cluster."""
        from nodesmith.adapters.store import DynamoStore

        if self._store is None:
            self._store = DynamoStore(
                self.client("dynamodb"), self.settings.table_name, self.settings.cluster_name, now
            )
        return self._store

    def cloud(self) -> AwsCloud:
        """Give EC2 for this cluster."""
        from nodesmith.adapters.ec2 import AwsCloud

        if self._cloud is None:
            self._cloud = AwsCloud(self.client, self.settings, now)
        return self._cloud

    def measured_cloud(self) -> Cloud:
        """Give EC2 for this cluster, its calls timed and its failures counted."""
        return MeasuredCloud(self.cloud(), self.metrics, CONTROLLERS.get(self._concern, self._concern))

    def api_server(self) -> ApiServer:
        """Give the cluster's API server, found by the settings or by EKS. Raises Transient, Rejected."""
        from nodesmith.adapters.apiserver import ApiServer, connect
        from nodesmith.adapters.ekstoken import EksToken

        if self._api_server is None:
            cluster = self.cloud().cluster_info()
            credentials = self._session.get_credentials()
            if credentials is None:
                raise Rejected("no AWS credentials are found, so no token for the API server can be signed")
            # AWS checks the token by the time of this machine, however fast a laptop lets time run.
            token = EksToken(credentials, cluster.name, self.settings.region, system_time)
            self._api_server = ApiServer(connect(cluster.endpoint, cluster.ca_bundle, token))
        return self._api_server

    def node_settings(self) -> NodeSettings:
        """Give the settings that change what a node offers, and what pods may ask for."""
        from nodesmith.model.nodeconfiguration import NodeSettings

        return NodeSettings(
            vm_memory_overhead_percent=self.settings.vm_memory_overhead_percent,
            reserved_enis=self.settings.reserved_enis,
            prefix_delegation=self.settings.prefix_delegation,
            preference_policy=self.settings.preference_policy,
            min_values_policy=self.settings.min_values_policy,
            fragility_tolerance=self.settings.fragility_tolerance,
            interruption_cost_hours=self.settings.interruption_cost_hours,
            default_spreads=self.settings.default_spreads,
        )

    def handler(self, run: Callable[[], None]) -> Handler:
        """Give a handler of SQS batches. All messages say the same, so one run answers them all.

        Whatever the run raises, but Rejected, brings the whole batch back, within seconds at first.
        """
        collect_seldom()

        def handle(event: Event, context: object) -> None:
            self._context = context
            if not self._hinted(event):
                return
            with self._redelivery.if_failed(event["Records"]), self._metrics_written():
                try:
                    run()
                except Rejected as error:
                    self.telemetry.rejected(str(error))

        return handle

    def handler_of_letters(self, run: Callable[[Sequence[Letter]], Report]) -> Handler:
        """Give a handler of SQS batches whose messages say more than "look"; those that failed come back alone.

        A tick that only keeps the function warm brings no message.
        """
        collect_seldom()

        def handle(event: Event, context: object) -> Mapping[str, Any]:
            self._context = context
            records = event.get("Records", ())
            letters = [Letter(r["messageId"], r["body"], r["eventSourceARN"].split(":")[4]) for r in records]
            with self._redelivery.if_failed(records), self._metrics_written():
                report = run(letters)
            failed = set(report.failed)
            self._redelivery.soon([record for record in records if record["messageId"] in failed])
            for why in report.rejected:
                self.telemetry.rejected(why)
            self.telemetry.ran(report.counts)
            return {"batchItemFailures": [{"itemIdentifier": letter} for letter in report.failed]}

        return handle

    def _writer_of(self, concern: Concern) -> MetricsWriter | None:
        if concern not in MEASURED:
            return None
        key, process = metrics_key(self.settings.cluster_name, concern), os.urandom(6).hex()
        return MetricsWriter(self.blobs, key, self.metrics, now, process)

    @contextmanager
    def _metrics_written(self) -> Iterator[None]:
        """Write metrics once a run is over, however it ended. Where that fails they are written the next time."""
        try:
            yield
        finally:
            if self._metrics_writer is not None and self.remaining_seconds() > _WRITE_SECONDS:
                try:
                    self._metrics_writer.write()
                except (Transient, Rejected):
                    self.telemetry.note("MetricsNotWritten", 1)

    def _hinted(self, event: Event) -> bool:
        hinted = False
        for record in event["Records"]:
            try:
                parse_hint(record["body"], self.settings.cluster_name)
                hinted = True
            except Rejected as error:
                self.telemetry.rejected(str(error))
        return hinted

    def _queue_urls(self) -> dict[Concern, str]:
        return {concern: self.settings.queue_url(concern) for concern in WOKEN}
