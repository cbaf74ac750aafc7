"""DynamoDB: the CreateFleet calls that clusters of a region may make, in a partition that they share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nodesmith.adapters.dynamodb.partition import Partition
from nodesmith.errors import Conflict
from nodesmith.model.ec2.launches import CallBudget
from nodesmith.settings import budget_partition_key

_SK = "CREATEFLEET"
_ATTEMPTS = 5


def take_calls(client: Any, table: str, cluster: str, wanted: int, now: datetime) -> int:
    """Return how many of `wanted` calls a cluster may make now, and count them as made.

    `client` is a boto3 DynamoDB client. The answer is 0 if other clusters change the budget at every attempt.
    Raises Transient.
    """
    partition = Partition(client, table, budget_partition_key(client.meta.region_name))
    for _ in range(_ATTEMPTS):
        document, revision = partition.revised(_SK)
        granted, budget = CallBudget.from_item(document).take(cluster, wanted, now)
        item = partition.item(_SK, budget.to_item(), revision=revision + 1)
        try:
            partition.put_revised(item, revision, "the budget of CreateFleet calls")
        except Conflict:
            continue
        return granted
    return 0
