"""The deployment's table in an in-process AWS account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.aws.account import client, strict_aws

TABLE = "nodesmith"
_KEYS = ("pk", "sk", "instance", "reservation")


@contextmanager
def table() -> Iterator[Any]:
    """Yield a DynamoDB client with the empty table and its deployed indexes."""
    with strict_aws():
        dynamodb = client("dynamodb")
        dynamodb.create_table(
            TableName=TABLE,
            KeySchema=_schema("pk", "sk"),
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in _KEYS],
            GlobalSecondaryIndexes=[_index(name) for name in ("instance", "reservation")],
            BillingMode="PAY_PER_REQUEST",
        )
        yield dynamodb


def items(dynamodb: Any) -> list[dict[str, Any]]:
    """Return all items of the table, sorted."""
    pages = dynamodb.get_paginator("scan").paginate(TableName=TABLE)
    found = [item for page in pages for item in page["Items"]]
    return sorted(found, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))


def _index(name: str) -> dict[str, Any]:
    return {"IndexName": name, "KeySchema": _schema(name), "Projection": {"ProjectionType": "KEYS_ONLY"}}


def _schema(hash_key: str, range_key: str = "") -> list[dict[str, str]]:
    keys = [(hash_key, "HASH"), *([(range_key, "RANGE")] if range_key else [])]
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys]
