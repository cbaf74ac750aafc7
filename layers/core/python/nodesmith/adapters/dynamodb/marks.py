"""DynamoDB: the heartbeat of a cluster's forwarder, and when each of several clusters last changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.aws.calls import all_errors
from nodesmith.adapters.dynamodb.partition import META, Attributes, Partition, read_items, read_moment
from nodesmith.model.functions.health import Heartbeat, Marks
from nodesmith.settings import forwarder_partition_key, partition_key

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


_NAMES = {"#pk": "pk", "#sk": "sk", "#changed": "changed", "#at": "at"}
_ASKED = {"ProjectionExpression": ", ".join(_NAMES), "ExpressionAttributeNames": _NAMES}


class DynamoMarks:
    """The Marks of a region's clusters. `client` is a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of(self, clusters: Collection[str]) -> Mapping[str, Marks]:
        """Return the marks of these clusters, by cluster, perhaps a second old. Raises Transient, Rejected."""
        ledgers = {partition_key(cluster): cluster for cluster in sorted(clusters)}
        forwarders = {forwarder_partition_key(cluster): cluster for cluster in ledgers.values()}
        keys = [_key(pk, META) for pk in ledgers] + [_key(pk, HEARTBEAT) for pk in forwarders]
        with all_errors("dynamodb:BatchGetItem"):
            items = {item["pk"]["S"]: item for item in read_items(self._client, self._table, keys, _ASKED)}
        return {
            cluster: Marks(
                read_heartbeat(items.get(forwarder_partition_key(cluster), {})),
                read_moment(items.get(pk, {}), "changed"),
            )
            for pk, cluster in ledgers.items()
        }


def _key(pk: str, sk: str) -> Attributes:
    return {"pk": {"S": pk}, "sk": {"S": sk}}
