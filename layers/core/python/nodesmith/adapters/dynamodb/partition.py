"""DynamoDB: reading and writing the items of one partition of the table.

Items are `{pk, sk, doc}`, where `doc` is a JSON document. Items with several writers also have a `revision`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import as_transient, transient_errors
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.times import parse_time

Attributes = dict[str, Any]


def read_plainly(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Parse a Query response as plain JSON.

    For strings and numbers, botocore's parser returns the same but takes five times as long: with 5,000 claims, most of
    a tick.
    """
    if response_dict["status_code"] != HTTPStatus.OK:
        return
    with suppress(ValueError):  # botocore reports what is not JSON
        customized_response_dict.update(json.loads(response_dict["body"]))
        response_dict["body"] = b"{}"


def read_moment(item: Attributes, name: str) -> datetime | None:
    """Return a time that an item holds as text, or None if it is missing or invalid."""
    try:
        return parse_time(item[name]["S"])
    except (KeyError, TypeError, ValueError):
        return None


META = "META"
"""The sort key of a ledger's metadata."""
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
"""Cancellation reasons of a transaction that may succeed later."""
_NEW = {"ConditionExpression": "attribute_not_exists(pk)"}


class Partition:
    """One partition. `client` is a boto3 DynamoDB client. Every call may raise Transient.

    `before_write` is called before each write of this class, and may raise what a write may.
    """

    def __init__(
        self, client: Any, table: str, pk: str, before_write: Callable[[], None] = lambda: None
    ) -> None:
        self.client, self.table, self.pk = client, table, pk
        self._before_write = before_write
        client.meta.events.register("before-parse.dynamodb.Query", read_plainly, unique_id="read-plainly")

    def key(self, sk: str) -> Attributes:
        """Return the key of an item."""
        return {"pk": {"S": self.pk}, "sk": {"S": sk}}

    def item(self, sk: str, document: object, **beside: int | str) -> Attributes:
        """Return an item with a document and further attributes (`beside`). Empty strings are omitted."""
        text = json.dumps(document, separators=(",", ":"))
        attributes = {
            name: {"N": str(value)} if isinstance(value, int) else {"S": value}
            for name, value in beside.items()
            if value != ""
        }
        return {**self.key(sk), "doc": {"S": text}, **attributes}

    def items(self, beginning: str = "", *, consistent: bool = True) -> Iterator[Attributes]:
        """Yield the partition's items page by page, with `sk`, `doc`, `revision` and `spent`.

        Only sort keys that start with `beginning` are read. Without `consistent`, reads cost half as much, and items
        may be a second old.
        """
        condition, values = "pk = :pk", {":pk": {"S": self.pk}}
        if beginning:
            condition += " AND begins_with(sk, :beginning)"
            values[":beginning"] = {"S": beginning}
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            ProjectionExpression="sk, doc, revision, spent",
            ConsistentRead=consistent,
        )
        with transient_errors("dynamodb:Query"):
            for page in pages:
                yield from page["Items"]

    def number(self, sk: str, name: str) -> int:
        """Return a number attribute of an item, strongly consistent, or 0 if it is missing."""
        attribute = self.attributes(sk, name).get(name)
        return int(attribute["N"]) if attribute else 0

    def document(self, sk: str) -> dict[str, Any]:
        """Return the document of an item, strongly consistent, or an empty one if there is none."""
        attribute = self.attributes(sk, "doc").get("doc")
        document = json.loads(attribute["S"]) if attribute else {}
        return document if isinstance(document, dict) else {}

    def revised(self, sk: str) -> tuple[dict[str, Any], int]:
        """Return an item's document and revision, strongly consistent; an empty one and 0 if there is none."""
        attributes = self.attributes(sk, "doc", "revision")
        return (
            (json.loads(attributes["doc"]["S"]), int(attributes["revision"]["N"])) if attributes else ({}, 0)
        )

    def attributes(self, sk: str, *names: str, consistent: bool = True) -> Attributes:
        """Return those of these attributes that an item has."""
        called = {f"#{number}": name for number, name in enumerate(names)}
        with transient_errors("dynamodb:Query"):
            answer = self.client.query(
                TableName=self.table,
                KeyConditionExpression="pk = :pk AND sk = :sk",
                ExpressionAttributeValues={":pk": {"S": self.pk}, ":sk": {"S": sk}},
                ExpressionAttributeNames=called,
                ProjectionExpression=", ".join(called),
                ConsistentRead=consistent,
            )
        return next(iter(answer["Items"]), {})

    def existing_sort_keys(self, sks: Collection[str]) -> set[str]:
        """Return those of these sort keys that exist, strongly consistent."""
        keys = [self.key(sk) for sk in sorted(sks)]
        parameters = {"ProjectionExpression": "sk", "ConsistentRead": True}
        return {item["sk"]["S"] for item in read_items(self.client, self.table, keys, parameters)}

    def put(self, item: Attributes) -> None:
        """Write an item, replacing any existing one."""
        self._before_write()
        with as_transient("dynamodb:PutItem"):
            self.client.put_item(TableName=self.table, Item=item)

    def put_revised(self, item: Attributes, revision: int, subject: str) -> None:
        """Write an item if its revision is still `revision`, which is 0 for a new item. Raises Conflict."""
        self._before_write()
        with conflicts(f"{subject} has moved on from revision {revision}"):
            self.client.put_item(TableName=self.table, Item=item, **written_once(revision))

    def delete(self, sk: str) -> None:
        """Delete an item. One that is already gone is ignored."""
        self._before_write()
        with as_transient("dynamodb:DeleteItem"):
            self.client.delete_item(TableName=self.table, Key=self.key(sk))

    def delete_revised(self, sk: str, revision: int, subject: str) -> None:
        """Delete an item if its revision is still `revision`. Raises Conflict.

        An item that is already gone is ignored.
        """
        self._before_write()
        with conflicts(f"{subject} has moved on from revision {revision}"):
            self.client.delete_item(
                TableName=self.table,
                Key=self.key(sk),
                ConditionExpression="attribute_not_exists(pk) OR revision = :read",
                ExpressionAttributeValues={":read": {"N": str(revision)}},
            )

    def delete_adding(self, sk: str, revision: int, subject: str, update: Attributes) -> None:
        """Delete an item, if its revision is still `revision`, together with an update of another one. Raises Conflict.

        Conflict is also raised if the item is already gone.
        """
        self._before_write()
        delete = {
            "TableName": self.table,
            "Key": self.key(sk),
            "ConditionExpression": "revision = :read",
            "ExpressionAttributeValues": {":read": {"N": str(revision)}},
        }
        with conflicts(f"{subject} has moved on from revision {revision}"):
            self.client.transact_write_items(
                TransactItems=[{"Delete": delete}, {"Update": {"TableName": self.table, **update}}]
            )

    def write(self, requests: list[Attributes]) -> None:
        """Put and delete items, 25 per call."""
        if requests:
            self._before_write()
        with as_transient("dynamodb:BatchWriteItem"):
            for start in range(0, len(requests), _BATCH):
                self._write_batch(requests[start : start + _BATCH])

    def delete_all(self, sks: Iterable[str]) -> None:
        """Delete items, 25 per call. Those that are already gone are ignored."""
        self.write([{"DeleteRequest": {"Key": self.key(sk)}} for sk in sks])

    def _write_batch(self, batch: list[Attributes]) -> None:
        waiting = {self.table: batch}
        for _ in range(_BATCH_ATTEMPTS):
            waiting = self.client.batch_write_item(RequestItems=waiting).get("UnprocessedItems") or {}
            if not waiting:
                return
        raise Transient(f"dynamodb:BatchWriteItem left {len(waiting[self.table])} items unwritten")


def read_items(
    client: Any, table: str, keys: list[Attributes], parameters: Attributes
) -> Iterator[Attributes]:
    """Yield items by key from any partitions, 100 per call. Raises Transient.

    `parameters` holds further options of BatchGetItem for the table.
    """
    for start in range(0, len(keys), _BATCH_READ):
        yield from _read_batch(client, table, keys[start : start + _BATCH_READ], parameters)


def _read_batch(
    client: Any, table: str, keys: list[Attributes], parameters: Attributes
) -> Iterator[Attributes]:
    for _ in range(_BATCH_ATTEMPTS):
        with transient_errors("dynamodb:BatchGetItem"):
            answer = client.batch_get_item(RequestItems={table: {"Keys": keys, **parameters}})
        yield from answer["Responses"].get(table) or ()
        unprocessed = (answer.get("UnprocessedKeys") or {}).get(table)
        if not unprocessed:
            return
        keys = unprocessed["Keys"]
    raise Transient(f"dynamodb:BatchGetItem left {len(keys)} items unread")


def written_once(revision: int) -> Attributes:
    """Return the condition that an item still has this revision, or that it does not exist if `revision` is 0."""
    if not revision:
        return _NEW
    read = {":read": {"N": str(revision)}}
    return {"ConditionExpression": "revision = :read", "ExpressionAttributeValues": read}


class LostShare(Conflict):
    """Only the item that clusters share stood in the way of a transaction."""


@contextmanager
def conflicts(message: str, shared: int | None = None) -> Iterator[None]:
    """Raise Conflict, with `message`, for a failed condition, and Transient for all other errors.

    `shared` is the number of a transaction's item that clusters share. If only that one failed, raise LostShare.
    """
    with as_transient("dynamodb:write"):
        try:
            yield
        except ClientError as error:
            _raise_for(error, message, shared)
            raise


def _raise_for(error: ClientError, message: str, shared: int | None) -> None:
    """Raise the error that the codes and cancellation reasons stand for; return if they stand for none."""
    reasons = [str(reason.get("Code")) for reason in error.response.get("CancellationReasons") or ()]
    codes = {str(error.response.get("Error", {}).get("Code")), *reasons}
    if codes & _LOST:
        lost_items = {number for number, code in enumerate(reasons) if code in _LOST}
        raise (LostShare if lost_items == {shared} else Conflict)(message) from error
    if codes & _BUSY:
        raise Transient(f"dynamodb:TransactWriteItems: {', '.join(sorted(codes & _BUSY))}") from error
