"""DynamoDB: the heartbeat of a cluster's forwarder, one item that it writes once a minute."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.aws.errors import all_errors
from nodesmith.adapters.dynamodb.partition import Partition
from nodesmith.adapters.dynamodb.reading import Attributes, read_moment
from nodesmith.model.functions.health import Heartbeat
from nodesmith.settings import forwarder_partition_key

HEARTBEAT = "HEARTBEAT"


class DynamoHeartbeats:
    """The Heartbeats of one cluster. `client` is a boto3 DynamoDB client. All calls may raise Transient, Rejected."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._partition = Partition(client, table, forwarder_partition_key(cluster))

    def beat(self, at: datetime, changed: datetime) -> None:
        """Write that the forwarder is alive, and when it last wrote a snapshot because something had changed."""
        item = {**self._partition.key(HEARTBEAT), "at": _text(at), "changed": _text(changed)}
        with all_errors("dynamodb:PutItem"):
            self._partition.put(item)

    def last(self) -> Heartbeat | None:
        """Return the latest heartbeat, perhaps a second old, or None if there is none that can be read."""
        with all_errors("dynamodb:Query"):
            found = self._partition.attributes(HEARTBEAT, "at", "changed", consistent=False)
        return read_heartbeat(found)


def read_heartbeat(item: Attributes) -> Heartbeat | None:
    """Return the heartbeat in an item, or None if it is missing or cannot be read."""
    at, changed = read_moment(item, "at"), read_moment(item, "changed")
    return None if at is None or changed is None else Heartbeat(at, changed)


def _text(moment: datetime) -> Attributes:
    return {"S": moment.astimezone(UTC).isoformat(timespec="milliseconds")}
