"""DynamoDB: the ledger of one cluster, all of it in one partition.

Items are `{pk, sk, ...}`. `META` carries the version that commits are conditional on and what is known of the cluster;
`CLAIM#name`, `NODECLASS#name`, `OFFERING#capacityType#type#zone`, `BACKOFF#nodepool` and `HEALTH#nodepool` hold one
JSON document each in `doc`, claims and health with their `revision` beside it. Back-offs expire by the table's TTL a
day after they end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.awserrors import transient_errors
from nodesmith.adapters.lessons import read_learned, write_learned
from nodesmith.adapters.partition import Attributes, Found, read_plainly
from nodesmith.errors import Conflict, Transient
from nodesmith.model.launches import OfferingKey
from nodesmith.model.learned import Boot, Offered
from nodesmith.model.ledger import Backoff, Ledger
from nodesmith.model.ledgeritems import (
    backoff_item,
    cluster_item,
    health_item,
    nodeclass_item,
)
from nodesmith.model.nodeclaims import NodeClaim, to_item
from nodesmith.model.nodeclassstatus import ClusterInfo, NodeClassStatus
from nodesmith.model.registrationhealth import RegistrationHealth
from nodesmith.settings import partition_key

_META = "META"
_KEPT_AFTER_BACKOFF = timedelta(days=1)
_BATCH, _BATCH_READ = 25, 100
_BATCH_ATTEMPTS = 8
_LOST = frozenset(
    {
        "ConditionalCheckFailedException",
        "ConditionalCheckFailed",
        "TransactionConflictException",
        "TransactionConflict",
    }
)
_BUSY = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError"})
"""A transaction's own words for why it was cancelled, where asking again later helps."""


class DynamoStore:
    """The Store of one cluster. `client` is a boto3 DynamoDB client."""

    def __init__(
        self, client: Any, table: str, cluster: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._table, self._pk = client, table, partition_key(cluster)
        self._clock = clock
        client.meta.events.register("before-parse.dynamodb.Query", read_plainly, unique_id="read-plainly")
        self._claims: dict[str, tuple[str, NodeClaim]] = {}
        """Claims as last read, with their text: of thousands hardly any differs at the next look."""

    def load(self) -> Ledger:
        """Read the whole partition, strongly consistent. Raises Transient.

        The version is read first, by itself: a query is no snapshot, and a commit that lands while it runs must
        leave its reader with a version too old to commit on, never with the new version and the old claims.
        """
        found = Found(self._version(), self._claims)
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": self._pk}},
            ProjectionExpression="sk, doc, revision",
            ConsistentRead=True,
        )
        with transient_errors("dynamodb:Query"):
            for page in pages:
                for item in page["Items"]:
                    found.take(item)
        self._claims = found.texts
        return found.ledger()

    def _version(self) -> int:
        with transient_errors("dynamodb:Query"):
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND sk = :meta",
                ExpressionAttributeValues={":pk": {"S": self._pk}, ":meta": {"S": _META}},
                ProjectionExpression="version",
                ConsistentRead=True,
            )
        return next((int(item["version"]["N"]) for item in answer["Items"] if "version" in item), 0)

    def commit(self, version: int, claims: Sequence[NodeClaim], decision: str) -> None:
        """Write new claims and move the version on, in one transaction. Raises Conflict, Transient."""
        moved = {
            "Update": {
                "TableName": self._table,
                "Key": self._key(_META),
                "UpdateExpression": "SET version = :next, decision = :decision",
                "ConditionExpression": "version = :read"
                if version
                else "attribute_not_exists(version) OR version = :read",
                "ExpressionAttributeValues": {
                    ":next": {"N": str(version + 1)},
                    ":read": {"N": str(version)},
                    ":decision": {"S": decision},
                },
            }
        }
        puts = [
            {
                "Put": {
                    "TableName": self._table,
                    "Item": self._claim(replace(claim, revision=1)),
                    "ConditionExpression": "attribute_not_exists(pk)",
                }
            }
            for claim in claims
        ]
        with _conflicts(f"version {version} of {self._pk} is no longer the newest"):
            self._client.transact_write_items(TransactItems=[moved, *puts])

    def save(self, claim: NodeClaim) -> NodeClaim:
        """Write a claim's progress on condition of its revision. Raises Conflict, Transient."""
        saved = replace(claim, revision=claim.revision + 1)
        with _conflicts(f"NodeClaim {claim.name} has moved on from revision {claim.revision}"):
            self._client.put_item(
                TableName=self._table,
                Item=self._claim(saved),
                ConditionExpression="revision = :read",
                ExpressionAttributeValues={":read": {"N": str(claim.revision)}},
            )
        return saved

    def forget(self, claim: NodeClaim) -> None:
        """Delete a claim on condition of its revision; gone already is fine. Raises Conflict, Transient."""
        with _conflicts(f"NodeClaim {claim.name} has moved on from revision {claim.revision}"):
            self._client.delete_item(
                TableName=self._table,
                Key=self._key(f"CLAIM#{claim.name}"),
                ConditionExpression="attribute_not_exists(pk) OR revision = :read",
                ExpressionAttributeValues={":read": {"N": str(claim.revision)}},
            )

    def known(self, claims: Collection[str]) -> Collection[str]:
        """Give those of these claims that are there, strongly consistent. Raises Transient."""
        keys = [self._key(f"CLAIM#{name}") for name in sorted(claims)]
        found: set[str] = set()
        with transient_errors("dynamodb:BatchGetItem"):
            for start in range(0, len(keys), _BATCH_READ):
                found |= self._known(keys[start : start + _BATCH_READ])
        return found

    def _known(self, keys: list[Attributes]) -> set[str]:
        found: set[str] = set()
        for _ in range(_BATCH_ATTEMPTS):
            asked = {"Keys": keys, "ProjectionExpression": "sk", "ConsistentRead": True}
            answer = self._client.batch_get_item(RequestItems={self._table: asked})
            there = answer["Responses"].get(self._table) or ()
            found |= {item["sk"]["S"].removeprefix("CLAIM#") for item in there}
            left = (answer.get("UnprocessedKeys") or {}).get(self._table)
            if not left:
                return found
            keys = left["Keys"]
        raise Transient(f"dynamodb:BatchGetItem left {len(keys)} claims unread")

    def save_nodeclass(self, status: NodeClassStatus) -> None:
        """Write what an EC2NodeClass resolved to. Raises Transient."""
        self._put(f"NODECLASS#{status.name}", nodeclass_item(status))

    def forget_nodeclass(self, name: str) -> None:
        """Delete an EC2NodeClass's resolution. Raises Transient."""
        with transient_errors("dynamodb:DeleteItem"):
            self._client.delete_item(TableName=self._table, Key=self._key(f"NODECLASS#{name}"))

    def save_cluster(self, cluster: ClusterInfo) -> None:
        """Write what is known of the cluster, beside the version. Raises Transient."""
        with transient_errors("dynamodb:UpdateItem"):
            self._client.update_item(
                TableName=self._table,
                Key=self._key(_META),
                UpdateExpression="SET doc = :doc",
                ExpressionAttributeValues={":doc": {"S": json.dumps(cluster_item(cluster))}},
            )

    def save_unavailable(self, offerings: Mapping[OfferingKey, Backoff]) -> None:
        """Write back-offs of offerings, 25 to a call. Raises Transient."""
        self._write([{"PutRequest": {"Item": self._backoff(_offering(k), b)}} for k, b in offerings.items()])

    def clear_unavailable(self, offerings: Collection[OfferingKey]) -> None:
        """Delete back-offs of offerings, 25 to a call. Raises Transient."""
        self._write([{"DeleteRequest": {"Key": self._key(_offering(key))}} for key in offerings])

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        """Write or, with None, delete a NodePool's back-off. Raises Transient."""
        key = f"BACKOFF#{nodepool}"
        if backoff is None:
            self._write([{"DeleteRequest": {"Key": self._key(key)}}])
        else:
            self._write([{"PutRequest": {"Item": self._backoff(key, backoff)}}])

    def save_health(self, nodepool: str, health: RegistrationHealth) -> None:
        """Write whether a NodePool's nodes join, on condition of its revision. Raises Conflict, Transient."""
        saved = replace(health, revision=health.revision + 1)
        item = self._item(f"HEALTH#{nodepool}", health_item(saved))
        with _conflicts(f"what is known of NodePool {nodepool} has moved on from revision {health.revision}"):
            self._client.put_item(
                TableName=self._table,
                Item={**item, "revision": {"N": str(saved.revision)}},
                ConditionExpression="revision = :read"
                if health.revision
                else "attribute_not_exists(pk) OR revision = :read",
                ExpressionAttributeValues={":read": {"N": str(health.revision)}},
            )

    def learned(self) -> dict[Boot, Offered]:
        """Read what nodes have been seen to offer in the region, eventually consistent. Raises Transient."""
        return read_learned(self._client, self._table)

    def learn(self, offered: Mapping[Boot, Offered]) -> None:
        """Write what nodes have been seen to offer; it expires half a year later. Raises Transient."""
        write_learned(self._client, self._table, offered, self._clock())

    def forget_health(self, nodepool: str) -> None:
        """Delete what is known of a NodePool. Raises Transient."""
        with transient_errors("dynamodb:DeleteItem"):
            self._client.delete_item(TableName=self._table, Key=self._key(f"HEALTH#{nodepool}"))

    def _key(self, sk: str) -> Attributes:
        return {"pk": {"S": self._pk}, "sk": {"S": sk}}

    def _item(self, sk: str, document: object) -> Attributes:
        return {**self._key(sk), "doc": {"S": json.dumps(document, separators=(",", ":"))}}

    def _claim(self, claim: NodeClaim) -> Attributes:
        item = self._item(f"CLAIM#{claim.name}", to_item(claim))
        return {**item, "revision": {"N": str(claim.revision)}}

    def _backoff(self, sk: str, backoff: Backoff) -> Attributes:
        expires = int((backoff.until + _KEPT_AFTER_BACKOFF).timestamp())
        return {**self._item(sk, backoff_item(backoff)), "ttl": {"N": str(expires)}}

    def _put(self, sk: str, document: object) -> None:
        with transient_errors("dynamodb:PutItem"):
            self._client.put_item(TableName=self._table, Item=self._item(sk, document))

    def _write(self, requests: list[Attributes]) -> None:
        with transient_errors("dynamodb:BatchWriteItem"):
            for start in range(0, len(requests), _BATCH):
                self._write_batch(requests[start : start + _BATCH])

    def _write_batch(self, batch: list[Attributes]) -> None:
        waiting = {self._table: batch}
        for _ in range(_BATCH_ATTEMPTS):
            waiting = self._client.batch_write_item(RequestItems=waiting).get("UnprocessedItems") or {}
            if not waiting:
                return
        raise Transient(f"dynamodb:BatchWriteItem left {len(waiting[self._table])} back-offs unwritten")


def _offering(key: OfferingKey) -> str:
    return f"OFFERING#{key.capacity_type}#{key.instance_type}#{key.zone}"


@contextmanager
def _conflicts(what: str) -> Iterator[None]:
    """Turn a lost condition into Conflict, passing trouble into Transient."""
    try:
        with transient_errors("dynamodb:write"):
            yield
    except ClientError as error:
        codes = {str(error.response.get("Error", {}).get("Code"))}
        codes |= {str(reason.get("Code")) for reason in error.response.get("CancellationReasons") or ()}
        if codes & _LOST:
            raise Conflict(what) from error
        if codes & _BUSY:
            raise Transient(f"dynamodb:TransactWriteItems: {', '.join(sorted(codes & _BUSY))}") from error
        raise
