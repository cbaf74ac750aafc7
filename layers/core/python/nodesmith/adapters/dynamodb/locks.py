"""DynamoDB: whose turn it is, for what one run does at a time; `TURN#concern` says until when, and if others came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nodesmith.adapters.dynamodb.partition import Partition, conflicts
from nodesmith.adapters.dynamodb.reading import Attributes
from nodesmith.errors import Conflict
from nodesmith.model.functions.hints import Concern

_ATTEMPTS = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Locks:
    """The turns of one cluster. Every call may raise Transient."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def take(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Begin a turn; where another lasts, mark there that somebody came, and give False."""
        times = {":now": _number(now), ":until": _number(until)}
        free = "attribute_not_exists(pk) OR ends <= :now"
        for _ in range(_ATTEMPTS):
            if self._write(concern, "SET ends = :until REMOVE came", free, times):
                return True
            came = {":now": times[":now"], ":came": {"BOOL": True}}
            if self._write(concern, "SET came = :came", "ends > :now", came):
                return False
        # It ended and began between our questions: who has it now looks at what we would have seen.
        return False

    def end(self, concern: Concern, until: datetime) -> bool:
        """End the turn that was to last `until`; True where somebody came."""
        partition = self._partition
        try:
            with conflicts("the turn is over"):
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
            with conflicts("it is another's turn"):
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
