"""DynamoDB's limits on items, keys, batches, transactions and expressions.

Sizes follow "DynamoDB item sizes and formats" in the developer guide: the UTF-8 bytes of names and values, plus some
bytes for each list, map and number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb import dynamodb_backends
from moto.dynamodb.exceptions import ItemSizeTooLarge
from moto.dynamodb.models.dynamo_type import DynamoType, LimitedSizeDict

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.refusals import AwsRequest, require

Item = Mapping[str, Any]
_CONTAINER_BYTES = 3


def check_dynamodb(request: AwsRequest, region: str) -> None:
    """Raise Refusal for a DynamoDB request that exceeds a limit."""
    if request.service != "dynamodb":
        return
    asked = request.parameters
    if request.operation == "TransactWriteItems":
        writes = [next(iter(each.values())) for each in asked["TransactItems"]]
        require(limits.TRANSACTION_BYTES, sum(map(_written_bytes, writes)), "Size of the transaction")
        for write in writes:
            _check_write(write, region)
    elif request.operation == "BatchWriteItem":
        _check_batch_write(asked["RequestItems"], region)
    elif request.operation == "BatchGetItem":
        found = [(table, key) for table, each in asked["RequestItems"].items() for key in each["Keys"]]
        require(limits.BATCH_GET, len(found), "Items requested")
        for table, key in found:
            _check_keys(table, key, region)
    else:
        _check_write(asked, region)


def item_bytes(item: Item) -> int:
    """Return the size in bytes of an item, given as attribute values."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def put_whole(item: LimitedSizeDict, name: str, value: Any) -> None:
    """Set an attribute of an item in moto's table, whose own limit would be 405,000 bytes.

    Raises ItemSizeTooLarge for an item beyond ITEM_BYTES.
    """
    old = dict.get(item, name)
    dict.__setitem__(item, name, value)
    if sum(map(_stored_bytes, item.items())) > limits.ITEM_BYTES.maximum:
        if old is None:
            del item[name]
        else:
            dict.__setitem__(item, name, old)
        raise ItemSizeTooLarge


def _stored_bytes(attribute: tuple[str, Any]) -> int:
    name, value = attribute
    return len(name.encode()) + (value.size() if isinstance(value, DynamoType) else len(str(value).encode()))


def _check_batch_write(tables: Mapping[str, Any], region: str) -> None:
    writes = [(table, next(iter(each.values()))) for table, listed in tables.items() for each in listed]
    require(limits.BATCH_WRITE, len(writes), "Items of the batch")
    for table, write in writes:
        _check_write({"TableName": table, **write}, region)


def _check_write(write: Mapping[str, Any], region: str) -> None:
    if "Item" in write:
        require(limits.ITEM_BYTES, item_bytes(write["Item"]), "Item size")
    _check_keys(str(write.get("TableName", "")), write.get("Item") or write.get("Key") or {}, region)
    for name, value in write.items():
        if name.endswith("Expression") and isinstance(value, str):
            require(limits.EXPRESSION, len(value.encode()), name)


def _check_keys(table: str, item: Item, region: str) -> None:
    for name, limit in _keys_of(table, region):
        if name in item:
            require(limit, _value_bytes(item[name]), f"Size of key {name}")


def _keys_of(table: str, region: str) -> Iterator[tuple[str, limits.Limit]]:
    found = dynamodb_backends[DEFAULT_ACCOUNT_ID][region].tables.get(table.rpartition("/")[2])
    for key in found.schema if found else ():
        yield key["AttributeName"], limits.PARTITION_KEY if key["KeyType"] == "HASH" else limits.SORT_KEY


def _written_bytes(write: Mapping[str, Any]) -> int:
    values = write.get("ExpressionAttributeValues") or {}
    return item_bytes(write.get("Item") or write.get("Key") or {}) + sum(map(_value_bytes, values.values()))


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(inner.encode())
        case "N":
            return len(inner) // 2 + 2
        case "B":
            return len(inner)
        case "SS" | "NS" | "BS":
            return sum(len(each) for each in inner)
        case "L":
            return _CONTAINER_BYTES + sum(1 + _value_bytes(each) for each in inner)
        case "M":
            return _CONTAINER_BYTES + len(inner) + item_bytes(inner)
        case _:
            return 1
