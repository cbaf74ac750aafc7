"""Waiting for the first snapshot, which shows that a cluster is served, and explaining why none arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.dynamodb.healthrecords import read_heartbeat
from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.keys import forwarder_partition_key, snapshot_key
from nodesmith.settings import function_name
from nodesmith_cli.access.awssession import Client, asking, if_there
from nodesmith_cli.access.ledger import TABLE
from nodesmith_cli.connecting.manifests import FORWARDER, NAMESPACE
from nodesmith_cli.connecting.reading.cluster import forwarders_pods
from nodesmith_cli.sharing.ownership import Manifest

POLL_SECONDS = 3.0
LOG_GROUP = "/aws/lambda/nodesmith"
FRESH = timedelta(seconds=150)
"""A cluster with a snapshot no older than this is served. It is two and a half heartbeats."""
_NO_NODE = "not scheduled yet, as in a cluster without nodes"


@dataclass(frozen=True, slots=True)
class SnapshotVersion:
    """A snapshot: when it was last known to be current, and the version of its object. S3 times have seconds.

    It is current when it is written and at each heartbeat of the forwarder, which writes a new snapshot only after a
    change.
    """

    at: datetime
    version: str


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The location of a cluster's snapshot."""

    client: Client
    bucket: str
    cluster: str

    def newest(self) -> SnapshotVersion | None:
        """Return the newest snapshot, or None. Raises Denied, Transient, Rejected."""
        key = snapshot_key(self.cluster)
        with asking("s3:GetObject and s3:ListBucket", f"{self.bucket}/{key}"):
            s3 = self.client("s3")
            response = if_there(lambda: s3.head_object(Bucket=self.bucket, Key=key))
        if response is None:
            return None
        version = response.get("VersionId") or response["ETag"]
        return SnapshotVersion(max([response["LastModified"], *self._heartbeats()]), version)

    def _heartbeats(self) -> Iterator[datetime]:
        """Yield the time of the forwarder's last heartbeat, if there is one."""
        pk = forwarder_partition_key(self.cluster)
        with asking("dynamodb:Query", f"table/{TABLE}"):
            dynamodb = self.client("dynamodb")
            response = if_there(
                lambda: dynamodb.query(
                    TableName=TABLE,
                    KeyConditionExpression="pk = :pk",
                    ExpressionAttributeValues={":pk": {"S": pk}},
                )
            )
        beats = (read_heartbeat(item) for item in (response or {}).get("Items", ()))
        yield from (beat.at for beat in beats if beat is not None)


def wait_for_snapshot(
    snapshots: Snapshots,
    before: SnapshotVersion | None,
    timeout: timedelta,
    *,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None],
) -> SnapshotVersion | None:
    """Wait for a snapshot that differs from `before`. Returns None if the timeout expires first."""
    end = clock() + timeout
    while True:
        written = snapshots.newest()
        if written is not None and written != before:
            return written
        if clock() >= end:
            return None
        sleep(POLL_SECONDS)


def missing_because(server: ApiServer, reached_from: str) -> Iterator[str]:
    """Yield what the forwarder's pods show about a missing snapshot, and where to look next."""
    pods = forwarders_pods(server)
    if not pods:
        yield f"the forwarder has no pod: kubectl -n {NAMESPACE} describe deployment {FORWARDER}"
    for pod in pods:
        yield f"pod {pod['metadata']['name']}: {_state(pod)}"
    if any(_is_without_node(pod) for pod in pods) or not pods:
        yield f"until then, the observation function writes the snapshot: {log_of_observation(reached_from)}"
    else:
        yield f"see its log: kubectl -n {NAMESPACE} logs deployment/{FORWARDER}"


def log_of_observation(reached_from: str) -> str:
    """Return a hint where a cluster's observation function logs. All functions of a region share one log group."""
    return f"see the logs of {function_name('observation', reached_from)} in {LOG_GROUP}"


def _state(pod: Manifest) -> str:
    if _is_without_node(pod):
        return _NO_NODE
    status: Mapping[str, Any] = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            message = f": {waiting['message']}" if waiting.get("message") else ""
            return f"{waiting.get('reason', 'waits')}{message}"
    return f"{status.get('phase') or 'Pending'}, but has not written a snapshot yet"


def _is_without_node(pod: Manifest) -> bool:
    return not (pod.get("spec") or {}).get("nodeName")
