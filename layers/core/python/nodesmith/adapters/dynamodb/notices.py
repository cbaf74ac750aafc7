"""DynamoDB: the events of EC2 that each cluster has still to act on, a partition for each cluster.

The sort key is EventBridge's id of the event, so an event that is delivered twice is one item. Items are deleted once
they are done; what nobody has done for four hours expires by the table's TTL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.dynamodb.partition import Partition
from nodesmith.adapters.dynamodb.reading import Attributes
from nodesmith.model.ec2.notices import KeptEvent
from nodesmith.settings import notices_partition_key

KEPT = timedelta(hours=4)


class DynamoNotices:
    """The Notices of one cluster. `client` is a boto3 DynamoDB client. Every call may raise Transient."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._partition = Partition(client, table, notices_partition_key(cluster))

    def pending(self) -> list[KeptEvent]:
        """Read all of them, strongly consistent. An item that holds no event gives one that cannot be read."""
        return [_kept(item) for item in self._partition.items()]

    def done(self, ids: Collection[str]) -> None:
        """Delete items, 25 to a call; gone already is fine."""
        self._partition.write(
            [{"DeleteRequest": {"Key": self._partition.key(id_)}} for id_ in sorted(set(ids))]
        )


class DynamoRegionNotices:
    """The RegionNotices. `client` is a boto3 DynamoDB client; `clock` says when what is kept expires."""

    def __init__(self, client: Any, table: str, clock: Callable[[], datetime]) -> None:
        self._client, self._table, self._clock = client, table, clock

    def keep(self, cluster: str, id_: str, event: str, account: str) -> None:
        """Write an event for a cluster, whatever was there under its id. Raises Transient."""
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
