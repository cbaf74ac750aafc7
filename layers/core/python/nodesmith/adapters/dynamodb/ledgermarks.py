"""DynamoDB: the mark in a ledger that records when it last changed.

The mark precedes the write. If a run dies between a write and the hint for it, the mark shows that another run must
look. Locks say nothing about the cluster and leave no mark.
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
"""Minimum time between a process's marks, much shorter than the time for which a change counts as recent."""
_ATTEMPTS = 3


class LedgerMark:
    """The mark of one ledger. `partition` is the ledger's partition."""

    def __init__(self, partition: Partition, clock: Callable[[], datetime]) -> None:
        self._partition, self._clock = partition, clock
        self._marked_at: datetime | None = None

    def before_write(self) -> None:
        """Mark the ledger as changed, unless this process did so recently. Raises Transient.

        A concurrent commit may cause conflicts, which are retried.
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
        raise Transient(f"dynamodb:UpdateItem: {META} of {partition.pk} had {_ATTEMPTS} conflicts in a row")

    def is_written(self, now: datetime) -> None:
        """Note that the mark was written just now, for example by a commit."""
        self._marked_at = now


def read_mark(partition: Partition) -> tuple[int, datetime | None]:
    """Return a ledger's version (0 before the first commit) and when it last changed, strongly consistent."""
    found = partition.attributes(META, "version", "changed")
    version = int(found["version"]["N"]) if "version" in found else 0
    return version, read_moment(found, "changed")
