"""DynamoDB items that all clusters of a region share: observed node capacity, EC2 calls, SpendingLimits, commitments.

The module also stores the events of EC2 that clusters still have to act on, and finds the cluster that an event
concerns.

SpendingLimits are in the partition of the budget of calls. `LIMITS` holds them with the registered clusters. `SHARES`
holds the share that each cluster takes of them, launches and a revision. Commitments are in the same partition.
`COMMITMENTS` holds them as the catalog function last read them, and `COMMITTED` holds the reports of all clusters on
their use. A cluster that buys on commitments writes its report only if no other cluster has written one since it read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from nodesmith.adapters.aws.calls import transient_errors
from nodesmith.adapters.dynamodb.partition import META, Attributes, Partition, read_items, written_once
from nodesmith.errors import Conflict
from nodesmith.keys import budget_partition_key, cluster_of, learned_partition_key, notices_partition_key
from nodesmith.model.ec2.notices import KeptEvent
from nodesmith.model.ledger.commitments import (
    NO_COMMITMENTS,
    CommitmentBook,
    Commitments,
    book_item,
    read_book,
    read_reports,
    reports_item,
)
from nodesmith.model.ledger.items import offered_item, read_offered
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.region import CallBudget, Region, Scarcity, region_of
from nodesmith.model.limits.spendinglimits import SpendingLimit
from nodesmith.settings import INDEXES

# Observed node capacity is in a partition that all clusters of a region share, as `{pk, sk: type#image, doc}`. The
# last write wins. If it overwrites an observation, the next such node restores it.
_KEPT = timedelta(days=180)


def read_learned(client: Any, table: str) -> dict[Boot, Offered]:
    """Return all entries, eventually consistent. `client` is a boto3 DynamoDB client. Raises Transient."""
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": _learned(client)}},
    )
    offered: dict[Boot, Offered] = {}
    with transient_errors("dynamodb:Query"):
        for page in pages:
            for item in page["Items"]:
                boot = Boot(*item["sk"]["S"].split("#"))
                offered[boot] = read_offered(json.loads(item["doc"]["S"]))
    return offered


def write_learned(client: Any, table: str, offered: Mapping[Boot, Offered], now: datetime) -> None:
    """Write `offered`. Entries expire after half a year, so that no error lasts forever. Raises Transient."""
    expires = str(int((now + _KEPT).timestamp()))
    for boot in sorted(offered):
        item = {
            "pk": {"S": _learned(client)},
            "sk": {"S": f"{boot.instance_type}#{boot.image_id}"},
            "doc": {"S": json.dumps(offered_item(offered[boot]), separators=(",", ":"))},
            "ttl": {"N": expires},
        }
        with transient_errors("dynamodb:PutItem"):
            client.put_item(TableName=table, Item=item)


def _learned(client: Any) -> str:
    return learned_partition_key(client.meta.region_name)


_BUDGET_SK = "CREATEFLEET"
_BUDGET_ATTEMPTS = 5

_LIMITS, _SHARES = "LIMITS", "SHARES"
_MARK = {"#version": "version", "#changed": "changed", "#launches": "launches"}


class SharedItems:
    """The shared use of limits, as one cluster reads and writes it. `client` is a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._cluster = cluster
        self._partition = Partition(client, table, budget_partition_key(client.meta.region_name))

    def take_calls(self, requested: int, now: datetime) -> int:
        """Return how many of the `requested` calls the cluster may make now, and count them as made.

        The number is 0 if other clusters change the budget at every attempt. Raises Transient.
        """
        return self._change_budget(lambda budget: budget.take(self._cluster, requested, now))

    def record_scarcity(self, scarcity: Scarcity, now: datetime) -> None:
        """Record a scarcity of EC2, unless other clusters change the budget at every attempt. Raises Transient."""
        self._change_budget(lambda budget: (0, budget.with_scarcity(scarcity, now)))

    def _change_budget(self, change: Callable[[CallBudget], tuple[int, CallBudget]]) -> int:
        """Write the budget that `change` returns, and return the number before it; 0 if no attempt succeeds."""
        for _ in range(_BUDGET_ATTEMPTS):
            document, revision = self._partition.revised(_BUDGET_SK)
            number, budget = change(CallBudget.from_item(document))
            item = self._partition.item(_BUDGET_SK, budget.to_item(), revision=revision + 1)
            try:
                self._partition.put_revised(item, revision, "the budget of CreateFleet calls")
            except Conflict:
                continue
            return number
        return 0

    def with_mark(self, ledger: Partition) -> tuple[Attributes, Region]:
        """Return a ledger's metadata and the shared items, strongly consistent, in one call. Raises Transient."""
        items = self._read([ledger.key(META)])
        return items.get(META, {}), self._region(items)

    def region(self) -> Region:
        """Return the shared items, strongly consistent. Raises Transient."""
        return self._region(self._read([]))

    def _read(self, further: Iterable[Attributes]) -> dict[str, Attributes]:
        partition = self._partition
        keys = [partition.key(_LIMITS), partition.key(_SHARES), partition.key(_BUDGET_SK), *further]
        names = ", ".join(("pk", "sk", "doc", "revision", *_MARK))
        parameters = {
            "ProjectionExpression": names,
            "ExpressionAttributeNames": _MARK,
            "ConsistentRead": True,
        }
        return {
            item["sk"]["S"]: item for item in read_items(partition.client, partition.table, keys, parameters)
        }

    def _region(self, items: Mapping[str, Attributes]) -> Region:
        limits, shares, budget = (
            json.loads(items[sk]["doc"]["S"]) if sk in items else {} for sk in (_LIMITS, _SHARES, _BUDGET_SK)
        )
        revision = int(items[_SHARES]["revision"]["N"]) if _SHARES in items else 0
        region = region_of(self._cluster, limits, shares, revision)
        calls = CallBudget.from_item(budget)
        return replace(region, calls=calls, lost=calls.lost)

    def put(self, region: Region) -> Attributes:
        """Return the part of a transaction that writes shares and launches if no other cluster has done so."""
        revision = region.revision
        item = self._partition.item(_SHARES, region.document(), revision=revision + 1)
        return {"Put": {"TableName": self._partition.table, "Item": item, **written_once(revision)}}


class DynamoSharedLimits:
    """The SharedLimits of a region. `client` is a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._items = SharedItems(client, table, "")
        self._partition = Partition(client, table, budget_partition_key(client.meta.region_name))

    def region(self) -> Region:
        """Return the shared items, strongly consistent. Raises Transient."""
        return self._items.region()

    def save(self, limits: Sequence[SpendingLimit], clusters: Collection[str]) -> bool:
        """Write the limits and the registered clusters; return whether any of them changed. Raises Transient."""
        region = Region("", tuple(limits), tuple(sorted(clusters)))
        document = json.loads(json.dumps(region.limits_document()))
        if self._partition.document(_LIMITS) == document:
            return False
        self._partition.put(self._partition.item(_LIMITS, document))
        return True


_BOOK, _REPORTS = "COMMITMENTS", "COMMITTED"
_BOTH = "COMMIT"


class DynamoCommitments:
    """The commitments of a region. `client` is a boto3 DynamoDB client. Every call may raise Transient."""

    def __init__(self, client: Any, table: str) -> None:
        self._partition = Partition(client, table, budget_partition_key(client.meta.region_name))

    def load(self) -> Commitments:
        """Return the commitments and reports, strongly consistent; NO_COMMITMENTS if none have been read."""
        items: Mapping[str, Any] = {item["sk"]["S"]: item for item in self._partition.items(_BOTH)}
        if _BOOK not in items:
            return NO_COMMITMENTS
        book, reports = _book(items[_BOOK]["doc"]["S"]), items.get(_REPORTS)
        if reports is None:
            return Commitments(book)
        reported = read_reports(json.loads(reports["doc"]["S"]))
        return Commitments(book, reported, int(reports["revision"]["N"]))

    def report(self, commitments: Commitments) -> None:
        """Write the reports if their revision has not changed. Raises Conflict."""
        item = self._partition.item(_REPORTS, reports_item(commitments), revision=commitments.revision + 1)
        self._partition.put_revised(item, commitments.revision, "what clusters use of commitments")

    def keep(self, book: CommitmentBook) -> None:
        """Write the commitments that were read, replacing the previous book."""
        self._partition.put(self._partition.item(_BOOK, book_item(book)))


@lru_cache(maxsize=4)
def _book(text: str) -> CommitmentBook:
    """Read a book. Equal texts give the same object, and caches of decisions rely on that."""
    return read_book(json.loads(text))


# Each cluster's events of EC2 are in a separate partition, under EventBridge's event id, so that an event that is
# delivered twice is one item. Handled events are deleted. The TTL removes unhandled ones.
NOTICES_KEPT = timedelta(hours=4)


class DynamoNotices:
    """The Notices of one cluster. `client` is a boto3 DynamoDB client. Every call may raise Transient."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._partition = Partition(client, table, notices_partition_key(cluster))

    def pending(self) -> list[KeptEvent]:
        """Return all pending events, strongly consistent. An item without an event yields an unreadable event."""
        return [_event(item) for item in self._partition.items()]

    def done(self, ids: Collection[str]) -> None:
        """Delete the events with these ids, 25 per call. Missing events are ignored."""
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
        expires = int((self._clock() + NOTICES_KEPT).timestamp())
        partition.put(partition.item(id_, {"event": event, "account": account}, ttl=expires))


def _event(item: Attributes) -> KeptEvent:
    text = item.get("doc", {}).get("S", "")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    attributes = document if isinstance(document, dict) else {"event": text}
    event, account = (
        value if isinstance(value := attributes.get(name), str) else "" for name in ("event", "account")
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
            clusters = {cluster_of(item["pk"]["S"]) for page in pages for item in page["Items"]}
        return frozenset(clusters - {""})
