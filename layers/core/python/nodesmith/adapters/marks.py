"""DynamoDB: when each of many clusters last changed, read a hundred items at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nodesmith.adapters.awserrors import all_errors
from nodesmith.adapters.heartbeats import HEARTBEAT, read_heartbeat, read_moment
from nodesmith.adapters.partition import Attributes
from nodesmith.adapters.section import META
from nodesmith.errors import Transient
from nodesmith.model.marks import Marks
from nodesmith.settings import forwarder_partition_key, partition_key

_ITEMS_A_CALL = 100
_ATTEMPTS = 8
_NAMES = {"#pk": "pk", "#sk": "sk", "#changed": "changed", "#at": "at"}


class DynamoMarks:
    """The Marks of a region's clusters. `client` is a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of(self, clusters: Collection[str]) -> Mapping[str, Marks]:
        """Give the marks of each of these clusters, a second old, perhaps. Raises Transient, Rejected."""
        ledgers = {partition_key(cluster): cluster for cluster in sorted(clusters)}
        forwarders = {forwarder_partition_key(cluster): cluster for cluster in ledgers.values()}
        keys = [_key(pk, META) for pk in ledgers] + [_key(pk, HEARTBEAT) for pk in forwarders]
        items = {item["pk"]["S"]: item for item in self._items(keys)}
        return {
            cluster: Marks(
                read_heartbeat(items.get(forwarder_partition_key(cluster), {})),
                read_moment(items.get(pk, {}), "changed"),
            )
            for pk, cluster in ledgers.items()
        }

    def _items(self, keys: list[Attributes]) -> Iterator[Attributes]:
        for start in range(0, len(keys), _ITEMS_A_CALL):
            yield from self._batch(keys[start : start + _ITEMS_A_CALL])

    def _batch(self, keys: list[Attributes]) -> Iterator[Attributes]:
        for _ in range(_ATTEMPTS):
            asked = {
                "Keys": keys,
                "ProjectionExpression": ", ".join(_NAMES),
                "ExpressionAttributeNames": _NAMES,
            }
            with all_errors("dynamodb:BatchGetItem"):
                answer = self._client.batch_get_item(RequestItems={self._table: asked})
            yield from answer["Responses"].get(self._table) or ()
            left = (answer.get("UnprocessedKeys") or {}).get(self._table)
            if not left:
                return
            keys = left["Keys"]
        raise Transient(f"dynamodb:BatchGetItem left {len(keys)} items unread")


def _key(pk: str, sk: str) -> Attributes:
    return {"pk": {"S": pk}, "sk": {"S": sk}}
