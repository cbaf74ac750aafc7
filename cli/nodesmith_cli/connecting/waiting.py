"""Waiting for the first snapshot: by it a cluster is seen to be served. Where none comes, why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.dynamodb.heartbeats import read_heartbeat
from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.settings import forwarder_partition_key, function_name, snapshot_key
from nodesmith_cli.connecting.clients import Client, asking, if_there
from nodesmith_cli.connecting.clusterreading import forwarders_pods
from nodesmith_cli.connecting.manifests import FORWARDER, NAMESPACE
from nodesmith_cli.pause import TABLE
from nodesmith_cli.sharing.survey import Manifest

POLL_SECONDS = 3.0
LOG_GROUP = "/aws/lambda/nodesmith"
FRESH = timedelta(seconds=150)
"""A snapshot that was true so lately is one of a cluster that is served: two heartbeats and a half."""
_NO_NODE = "there is no node for its pod yet, as in a cluster without nodes"


@dataclass(frozen=True, slots=True)
class Written:
    """A snapshot: when it was last true, and as which version of its object. S3 tells times to the second.

    It is when it is written, and with each heartbeat of the forwarder, which writes another only when something has
    changed.
    """

    at: datetime
    version: str


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Where a cluster's snapshot is."""

    client: Client
    bucket: str
    cluster: str

    def newest(self) -> Written | None:
        """Return when the newest was last true, None without one. Raises Denied, Transient, Rejected."""
        key = snapshot_key(self.cluster)
        with asking("s3:GetObject and s3:ListBucket", f"{self.bucket}/{key}"):
            s3 = self.client("s3")
            found = if_there(lambda: s3.head_object(Bucket=self.bucket, Key=key))
        if found is None:
            return None
        version = found.get("VersionId") or found["ETag"]
        return Written(max([found["LastModified"], *self._heartbeats()]), version)

    def _heartbeats(self) -> Iterator[datetime]:
        """Yield when the forwarder last gave a sign of life, if it ever has."""
        pk = forwarder_partition_key(self.cluster)
        with asking("dynamodb:Query", f"table/{TABLE}"):
            dynamodb = self.client("dynamodb")
            found = if_there(
                lambda: dynamodb.query(
                    TableName=TABLE,
                    KeyConditionExpression="pk = :pk",
                    ExpressionAttributeValues={":pk": {"S": pk}},
                )
            )
        beats = (read_heartbeat(item) for item in (found or {}).get("Items", ()))
        yield from (beat.at for beat in beats if beat is not None)


def wait_for_snapshot(
    snapshots: Snapshots,
    before: Written | None,
    timeout: timedelta,
    *,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None],
) -> Written | None:
    """Wait for another one than `before`; None where none has come in time."""
    end = clock() + timeout
    while True:
        written = snapshots.newest()
        if written is not None and written != before:
            return written
        if clock() >= end:
            return None
        sleep(POLL_SECONDS)


def missing_because(server: ApiServer, reached_from: str) -> Iterator[str]:
    """Yield why no snapshot comes, as far as the forwarder's pods show it, and where to look next."""
    pods = forwarders_pods(server)
    if not pods:
        yield f"the forwarder has no pod: kubectl -n {NAMESPACE} describe deployment {FORWARDER}"
    for pod in pods:
        yield f"pod {pod['metadata']['name']}: {_state(pod)}"
    if any(_is_without_node(pod) for pod in pods) or not pods:
        yield f"the observation function writes the snapshot until then: {log_of_observation(reached_from)}"
    else:
        yield f"its log: kubectl -n {NAMESPACE} logs deployment/{FORWARDER}"


def log_of_observation(reached_from: str) -> str:
    """Return where the observation function of a cluster logs: all functions of a region have one log group."""
    return f"see what {function_name('observation', reached_from)} logs to {LOG_GROUP}"


def _state(pod: Manifest) -> str:
    if _is_without_node(pod):
        return _NO_NODE
    status: Mapping[str, Any] = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            said = f": {waiting['message']}" if waiting.get("message") else ""
            return f"{waiting.get('reason', 'waits')}{said}"
    return f"is {status.get('phase') or 'Pending'}, and has written nothing yet"


def _is_without_node(pod: Manifest) -> bool:
    return not (pod.get("spec") or {}).get("nodeName")
