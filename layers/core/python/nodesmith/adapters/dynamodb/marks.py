"""DynamoDB: when each of several clusters last changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nodesmith.adapters.aws.errors import all_errors
from nodesmith.adapters.dynamodb.heartbeats import HEARTBEAT, read_heartbeat
from nodesmith.adapters.dynamodb.partition import META, read_items
from nodesmith.adapters.dynamodb.reading import Attributes, read_moment
from nodesmith.model.functions.health import Marks
from nodesmith.settings import forwarder_partition_key, partition_key

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
