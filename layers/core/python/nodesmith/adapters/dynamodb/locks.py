"""DynamoDB: locks for work that one run does at a time.

`TURN#concern` holds when the lock expires (`ends`), and whether other runs have tried to take it (`came`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nodesmith.adapters.dynamodb.partition import Partition, conflicts
from nodesmith.adapters.dynamodb.reading import Attributes
from nodesmith.errors import Conflict
from nodesmith.model.functions.hints import Concern

_ATTEMPTS = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Locks:
    """The locks of one cluster, by concern. Every call may raise Transient."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def take(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Lock a concern until `until`. If another run holds the lock, record the attempt there and return False."""
        times = {":now": _number(now), ":until": _number(until)}
        free = "attribute_not_exists(pk) OR ends <= :now"
        for _ in range(_ATTEMPTS):
            if self._write(concern, "SET ends = :until REMOVE came", free, times):
                return True
            came = {":now": times[":now"], ":came": {"BOOL": True}}
            if self._write(concern, "SET came = :came", "ends > :now", came):
                return False
        # The lock was released and taken again between our writes. Its new holder sees the same state as we would.
        return False

    def end(self, concern: Concern, until: datetime) -> bool:
        """Release the lock that expires at `until`. Return True if another run tried to take it meanwhile."""
        partition = self._partition
        try:
            with conflicts("the lock has expired"):
                answer = partition.client.delete_item(
                    TableName=partition.table,
                    Key=partition.key(_sk(concern)),
                    ConditionExpression="ends = :until",
                    ExpressionAttributeValues={":until": _number(until)},
                    ReturnValues="ALL_OLD",
                )
        except Conflict:
            return False
        return "came" in answer["Attributes"]

    def _write(self, concern: Concern, update: str, condition: str, values: Attributes) -> bool:
        partition = self._partition
        try:
            with conflicts("another run holds the lock"):
                partition.client.update_item(
                    TableName=partition.table,
                    Key=partition.key(_sk(concern)),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeValues=values,
                )
        except Conflict:
            return False
        return True


def _sk(concern: Concern) -> str:
    return f"TURN#{concern}"


def _number(moment: datetime) -> Attributes:
    return {"N": str((moment - _EPOCH) // timedelta(microseconds=1))}
