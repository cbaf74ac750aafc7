"""DynamoDB: which cluster an instance belongs to, from the indexes of the ledger table."""

from __future__ import annotations

from typing import Any

from nodesmith.adapters.aws.errors import transient_errors
from nodesmith.settings import INDEXES, cluster_of

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
