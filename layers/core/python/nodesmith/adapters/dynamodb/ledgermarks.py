"""DynamoDB: the mark in a ledger that says when it last changed.

It precedes the write: who dies between the write and the hint for it has left word that somebody has to look. Whose
turn it is says nothing about the cluster and is not marked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from nodesmith.adapters.dynamodb.partition import META, Partition, conflicts
from nodesmith.adapters.dynamodb.reading import read_moment
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.times import format_time

_EVERY = timedelta(seconds=30)
"""How often a process marks the ledger at the most: far less than what counts as lately."""
_ATTEMPTS = 3


class LedgerMark:
    """The mark of one ledger. `partition` is the ledger's partition."""

    def __init__(self, partition: Partition, clock: Callable[[], datetime]) -> None:
        self._partition, self._clock = partition, clock
        self._marked_at: datetime | None = None

    def before_write(self) -> None:
        """Write that the ledger changes, unless this process has lately done so. Raises Transient.

        A commit under way may be in the way for a moment.
        """
        now = self._clock()
        if self._marked_at is not None and now - self._marked_at < _EVERY:
            return
        partition = self._partition
        for _ in range(_ATTEMPTS):
            with suppress(Conflict), conflicts(f"{META} of {partition.pk} is being written"):
                partition.client.update_item(
                    TableName=partition.table,
                    Key=partition.key(META),
                    UpdateExpression="SET changed = :changed",
                    ExpressionAttributeValues={":changed": {"S": format_time(now)}},
                )
                self.is_written(now)
                return
        raise Transient(f"dynamodb:UpdateItem: {META} of {partition.pk} is written all the time")

    def is_written(self, now: datetime) -> None:
        """Take it that the mark has just been written, with a commit."""
        self._marked_at = now


def read_mark(partition: Partition) -> tuple[int, datetime | None]:
    """Read a ledger's version (0: none was committed) and when it last changed, strongly consistent."""
    found = partition.attributes(META, "version", "changed")
    version = int(found["version"]["N"]) if "version" in found else 0
    return version, read_moment(found, "changed")
