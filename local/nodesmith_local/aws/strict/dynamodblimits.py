"""DynamoDB's limits on items, keys, batches, transactions and expressions, and on what is written to a partition.

Sizes follow "DynamoDB item sizes and formats" in the developer guide: the UTF-8 bytes of names and values, plus some
bytes for each list, map and number. A partition takes 1,000 write units a second ("Burst and adaptive capacity"), one
for each KiB of an item and twice as many in a transaction. How much is read is not limited here: it depends on answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb import dynamodb_backends
from moto.dynamodb.exceptions import ItemSizeTooLarge
from moto.dynamodb.models.dynamo_type import DynamoType, LimitedSizeDict

from nodesmith_local.aws.ratelimits import TokenBucket
from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal, require

Item = Mapping[str, Any]
_CONTAINER_BYTES = 3
PARTITION_WRITES = 1000
"""write units that a partition takes in a second"""
TOO_MANY_WRITES = "ProvisionedThroughputExceededException"


def check_dynamodb(request: AwsRequest, region: str) -> None:
    """Raise Refusal for a DynamoDB request that exceeds a limit."""
    if request.service != "dynamodb":
        return
    parameters = request.parameters
    if request.operation == "TransactWriteItems":
        writes = [next(iter(item.values())) for item in parameters["TransactItems"]]
        require(limits.TRANSACTION_BYTES, sum(map(_written_bytes, writes)), "Size of the transaction")
        for write in writes:
            _check_write(write, region)
    elif request.operation == "BatchWriteItem":
        _check_batch_write(parameters["RequestItems"], region)
    elif request.operation == "BatchGetItem":
        keys_by_table = [
            (table, key) for table, keys in parameters["RequestItems"].items() for key in keys["Keys"]
        ]
        require(limits.BATCH_GET, len(keys_by_table), "Items requested")
        for table, key in keys_by_table:
            _check_keys(table, key, region)
    else:
        _check_write(parameters, region)


class PartitionWrites:
    """The write units that each partition of an account may still take. Threads may share it.

    A transaction that needs more than a second's units waits for a whole second's.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def check(self, request: AwsRequest) -> None:
        """Take the write units of a DynamoDB call. Raises Refusal if a partition can take no more now."""
        if request.service != "dynamodb":
            return
        for partition, units in sorted(write_units(request).items()):
            with self._lock:
                if partition not in self._buckets:
                    self._buckets[partition] = TokenBucket(PARTITION_WRITES, PARTITION_WRITES, self._now)
            if not self._buckets[partition].take(min(units, PARTITION_WRITES)):
                raise Refusal(TOO_MANY_WRITES, f"The partition {partition[1]} takes no more writes now.")


def write_units(request: AwsRequest) -> dict[tuple[str, str], int]:
    """Return the write units of a call by table and partition. An update counts by its values alone."""
    parameters = request.parameters
    match request.operation:
        case "PutItem" | "UpdateItem" | "DeleteItem":
            writes, units_per_write = [parameters], 1
        case "TransactWriteItems":
            writes, units_per_write = [next(iter(write.values())) for write in parameters["TransactItems"]], 2
        case "BatchWriteItem":
            listed = ((table, write) for table, of in parameters["RequestItems"].items() for write in of)
            writes, units_per_write = (
                [{"TableName": table, **next(iter(write.values()))} for table, write in listed],
                1,
            )
        case _:
            return {}
    units_by_partition: dict[tuple[str, str], int] = {}
    for write in writes:
        key = (write.get("Item") or write.get("Key") or {}).get("pk", {}).get("S", "")
        partition = str(write.get("TableName", "")), key
        units_by_partition[partition] = units_by_partition.get(partition, 0) + units_per_write * -(
            -_written_bytes(write) // limits.KIB
        )
    return units_by_partition


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
    writes = [(table, next(iter(request.values()))) for table, listed in tables.items() for request in listed]
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
    table_backend = dynamodb_backends[DEFAULT_ACCOUNT_ID][region].tables.get(table.rpartition("/")[2])
    for key in table_backend.schema if table_backend else ():
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
            return sum(len(item) for item in inner)
        case "L":
            return _CONTAINER_BYTES + sum(1 + _value_bytes(item) for item in inner)
        case "M":
            return _CONTAINER_BYTES + len(inner) + item_bytes(inner)
        case _:
            return 1
