"""Whose an instance is, by the indexes of the ledgers' table."""

from __future__ import annotations

from typing import Any

from nodesmith.adapters.aws.errors import transient_errors
from nodesmith.settings import INDEXES, cluster_of

_INSTANCE, _RESERVATION = INDEXES


class DynamoRoutes:
    """The Routes of a region. `client` is a boto3 DynamoDB client.

    DynamoDB keeps the indexes itself, with every write of a claim, and a moment behind it: what is told of an instance
    sooner than that is found by the cluster's next sweep.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of_instance(self, instance_id: str) -> frozenset[str]:
        """Return the clusters with a claim that has this instance: one, or none. Raises Transient."""
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
