"""DynamoDB: which cluster an instance belongs to, and the EC2 events that a cluster still has to act on.

The sort key is EventBridge's event id, so an event that is delivered twice is one item. Items are deleted when they
have been handled. The table's TTL removes unhandled items after four hours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.aws.calls import transient_errors
from nodesmith.adapters.dynamodb.partition import Attributes, Partition
from nodesmith.keys import cluster_of, notices_partition_key
from nodesmith.model.ec2.notices import KeptEvent
from nodesmith.settings import INDEXES

KEPT = timedelta(hours=4)


class DynamoNotices:
    """The Notices of one cluster. `client` is a boto3 DynamoDB client. Every call may raise Transient."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._partition = Partition(client, table, notices_partition_key(cluster))

    def pending(self) -> list[KeptEvent]:
        """Return all pending events, strongly consistent. An item without an event yields an unreadable event."""
        return [_kept(item) for item in self._partition.items()]

    def done(self, ids: Collection[str]) -> None:
        """Delete the events with these ids, 25 per call. Those already gone are ignored."""
        self._partition.write(
            [{"DeleteRequest": {"Key": self._partition.key(id_)}} for id_ in sorted(set(ids))]
        )


class DynamoRegionNotices:
    """The RegionNotices. `client` is a boto3 DynamoDB client. `clock` determines when events expire."""

    def __init__(self, client: Any, table: str, clock: Callable[[], datetime]) -> None:
        self._client, self._table, self._clock = client, table, clock

    def keep(self, cluster: str, id_: str, event: str, account: str) -> None:
        """Write an event for a cluster, replacing any with the same id. Raises Transient."""
        partition = Partition(self._client, self._table, notices_partition_key(cluster))
        expires = int((self._clock() + KEPT).timestamp())
        partition.put(partition.item(id_, {"event": event, "account": account}, ttl=expires))


def _kept(item: Attributes) -> KeptEvent:
    text = item.get("doc", {}).get("S", "")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    found = document if isinstance(document, dict) else {"event": text}
    event, account = (
        value if isinstance(value := found.get(name), str) else "" for name in ("event", "account")
    )
    return KeptEvent(item["sk"]["S"], event, account)


_INSTANCE, _RESERVATION = INDEXES


class DynamoRoutes:
    """The Routes of a region. `client` is a boto3 DynamoDB client.

    DynamoDB updates the indexes with every write of a claim, after a short delay. If an event arrives before that, the
    cluster's next sweep finds its cause.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of_instance(self, instance_id: str) -> frozenset[str]:
        """Return the cluster that has a claim with this instance, or an empty set. Raises Transient."""
        return self._clusters(_INSTANCE, instance_id)

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        """Return the clusters with instances in this capacity reservation. Raises Transient."""
        return self._clusters(_RESERVATION, reservation_id)

    def _clusters(self, index: str, value: str) -> frozenset[str]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName=index,
            KeyConditionExpression=f"{index} = :value",
            ExpressionAttributeValues={":value": {"S": value}},
            ProjectionExpression="pk",
        )
        with transient_errors("dynamodb:Query"):
            found = {cluster_of(item["pk"]["S"]) for page in pages for item in page["Items"]}
        return frozenset(found - {""})
