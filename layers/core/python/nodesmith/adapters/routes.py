"""Whose an instance is, by the indexes of the ledgers' table, and the way to that cluster's queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from nodesmith.adapters.awserrors import transient_errors
from nodesmith.adapters.messages import sending
from nodesmith.model.events import Concern
from nodesmith.settings import INDEXES, cluster_of, physical_name

_INSTANCE, _RESERVATION = INDEXES
_BATCH = 10


class DynamoRoutes:
    """The Routes of a region. `client` is a boto3 DynamoDB client.

    DynamoDB keeps the indexes itself, with every write of a claim, and a moment behind it: what is told of an instance
    sooner than that is found by the cluster's next sweep.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of_instance(self, instance_id: str) -> frozenset[str]:
        """Give the clusters with a claim that has this instance: one, or none. Raises Transient."""
        return self._clusters(_INSTANCE, instance_id)

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        """Give the clusters with instances in this capacity reservation. Raises Transient."""
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


class SqsPost:
    """The clusters' queues of interruption, beside `own_queue_url`: in the same account and region."""

    def __init__(self, client: Any, own_queue_url: str) -> None:
        self._client = client
        self._beside = own_queue_url.rpartition("/")[0]

    def deliver(self, cluster: str, bodies: Sequence[str]) -> Collection[int]:
        """Put messages into a cluster's queue; give the numbers of those that SQS did not take.

        Raises Transient, or Rejected where the cluster has no queue: its stack is gone, its ledger is not.
        """
        url = f"{self._beside}/{physical_name(cluster, Concern.INTERRUPTION)}"
        lost: list[int] = []
        for start in range(0, len(bodies), _BATCH):
            entries = [
                {"Id": str(start + number), "MessageBody": body}
                for number, body in enumerate(bodies[start : start + _BATCH])
            ]
            lost += self._send(url, entries)
        return lost

    def _send(self, url: str, entries: list[dict[str, str]]) -> list[int]:
        gone = f"the queue {url} does not exist: is the cluster's stack gone?"
        with sending(f"sqs:SendMessage to {url}", gone):
            answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
        return [int(failure["Id"]) for failure in answer.get("Failed", ())]
