"""`python -m nodesmith_forwarder`: run the forwarder against the real API server and AWS, until SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import timedelta
from threading import Event
from typing import Any

from botocore.config import Config
from botocore.session import get_session

from nodesmith.adapters.aws.messaging import LambdaHints, LambdaInvocations
from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats
from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.connection import Connection
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.errors import Rejected
from nodesmith.model.functions import Concern, Hint
from nodesmith.ports import Hints
from nodesmith_forwarder.clock import SystemClock
from nodesmith_forwarder.forwarder import Forwarder
from nodesmith_forwarder.health import serve_health
from nodesmith_forwarder.logs import log_json
from nodesmith_forwarder.serviceaccount import connection
from nodesmith_forwarder.settings import ForwarderSettings, read_forwarder_settings

LOG = logging.getLogger("nodesmith_forwarder")
_STUCK_AFTER = timedelta(minutes=5)  # no pass takes half as long, however slow S3 and Lambda are
_STALE_AFTER = timedelta(minutes=3)
_SHADOWED = frozenset({Concern.PROVISIONING, Concern.LIFECYCLE})
"""The concerns whose hints also go to the shadows: pods wait for nodes, or nodes have joined or left.

The shadows' own ticks cover all other changes.
"""


def main() -> int:
    """Run until stopped. Return the exit status: 2 for settings that cannot work."""
    try:
        settings = read_forwarder_settings(os.environ)
        api_server = connection(os.environ)
    except Rejected as error:
        print(f"nodesmith forwarder: {error}", file=sys.stderr)  # noqa: T201 there is no log yet
        return 2
    log_json(settings.log_level)
    stop = Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stop.set())
    forwarder = _forwarder(settings, api_server)
    checks = {
        "/healthz": lambda: _stuck(forwarder),
        "/readyz": lambda: _stuck(forwarder) or _stale(forwarder),
    }
    health = serve_health(settings.health_port, checks, forwarder.metrics)
    LOG.info("serving cluster %s", settings.cluster_name)
    forwarder.run(stop)
    health.shutdown()
    LOG.info("stopped")
    return 0


def _forwarder(settings: ForwarderSettings, api_server: Connection) -> Forwarder:
    patient = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "max_attempts": 2})
    session = get_session()  # boto3's session returns the same clients, but uses more memory

    def client(service: str) -> Any:
        return session.create_client(service, region_name=settings.region, config=patient)

    functions = client("lambda")
    hints: Hints = LambdaHints(LambdaInvocations(lambda _: functions), reached_from=settings.reached_from)
    if settings.is_observing:
        hints = ShadowHints(hints)
    return Forwarder(
        settings.cluster_name,
        ApiServer(api_server),
        S3Blobs(client("s3"), settings.bucket_name),
        hints,
        DynamoHeartbeats(client("dynamodb"), settings.table_name, settings.cluster_name),
        SystemClock(),
        settings.pace,
        labels_kept=settings.labels_kept,
    )


class ShadowHints:
    """Sends the hints of a cluster that is only observed. They go to its shadows, not to the concerns that serve."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Wake the shadows if the change concerns them. Raises Transient."""
        if concern in _SHADOWED:
            self._hints.send(Concern.SHADOW, hint, delay_seconds)


def _stuck(forwarder: Forwarder) -> str:
    idle = SystemClock().now() - forwarder.last_turn
    return f"the delivery loop has been stuck for {idle}" if idle > _STUCK_AFTER else ""


def _stale(forwarder: Forwarder) -> str:
    beat = forwarder.last_beat
    if beat is None or SystemClock().now() - beat > _STALE_AFTER:
        return f"last heartbeat: {beat or 'none yet'}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
