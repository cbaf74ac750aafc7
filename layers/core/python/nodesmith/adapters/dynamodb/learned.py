"""DynamoDB: observed node capacity, in a partition that all clusters of a region share.

Items are `{pk, sk: type#image, doc}`. The last write wins. The next such node restores what a write has lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.aws.errors import transient_errors
from nodesmith.model.ledger.items import offered_item, read_offered
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.settings import learned_partition_key

_KEPT = timedelta(days=180)


def read_learned(client: Any, table: str) -> dict[Boot, Offered]:
    """Return all entries, eventually consistent. `client` is a boto3 DynamoDB client. Raises Transient."""
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": _partition(client)}},
    )
    found: dict[Boot, Offered] = {}
    with transient_errors("dynamodb:Query"):
        for page in pages:
            for item in page["Items"]:
                boot = Boot(*item["sk"]["S"].split("#"))
                found[boot] = read_offered(json.loads(item["doc"]["S"]))
    return found


def write_learned(client: Any, table: str, offered: Mapping[Boot, Offered], now: datetime) -> None:
    """Write `offered`. Entries expire after half a year, so that no error lasts forever. Raises Transient."""
    expires = str(int((now + _KEPT).timestamp()))
    for boot in sorted(offered):
        item = {
            "pk": {"S": _partition(client)},
            "sk": {"S": f"{boot.instance_type}#{boot.image_id}"},
            "doc": {"S": json.dumps(offered_item(offered[boot]), separators=(",", ":"))},
            "ttl": {"N": expires},
        }
        with transient_errors("dynamodb:PutItem"):
            client.put_item(TableName=table, Item=item)


def _partition(client: Any) -> str:
    return learned_partition_key(client.meta.region_name)
