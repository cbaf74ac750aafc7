"""DynamoDB: a ledger's mark of its last change, the cache that relies on it, and locks for one run at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from nodesmith.adapters.dynamodb.partition import META, Attributes, Partition, conflicts, read_moment
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.spending import NO_LAUNCHES, Launches

# A mark precedes the write. If a run dies between a write and the hint for it, the mark shows that another run
# must look. Locks say nothing about the cluster and leave no mark.
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


MARK = ("version", "changed", "launches")
"""The attributes of a ledger's metadata that `read_mark` reads."""


def read_mark(attributes: Attributes) -> tuple[int, datetime | None, Launches]:
    """Read a ledger's version (0 before the first commit), when it last changed, and the launches of the last hour."""
    version = int(attributes["version"]["N"]) if "version" in attributes else 0
    launches = (
        Launches.from_item(json.loads(attributes["launches"]["S"]))
        if "launches" in attributes
        else NO_LAUNCHES
    )
    return version, read_moment(attributes, "changed"), launches


# A process may reuse a ledger while its mark shows that nothing has changed. Each writer marks the ledger first,
# unless the same process did so within the last half minute. If the mark was older than `SETTLED` when the ledger
# was read, and it has not changed since, nobody has written: a function runs for at most two minutes, and the
# clocks of functions differ by less than a minute.
SETTLED = timedelta(minutes=5)
"""Minimum age of a mark: half a minute, the longest run, and the clock skew, with a minute to spare."""
READ_AGAIN = timedelta(minutes=15)
"""How often a ledger is read completely in any case, because manual edits of the table leave no mark."""


@dataclass(slots=True)
class KeptLedger:
    """The ledger as last read, if its mark was settled at that time."""

    _ledger: Ledger | None = None
    _changed: datetime | None = None
    _read_at: datetime | None = None

    def keep(self, ledger: Ledger, changed: datetime | None, now: datetime) -> None:
        """Keep a ledger that was read completely. `changed` is its mark, which was read before."""
        self._ledger = None
        if changed is not None and now - changed >= SETTLED:
            self._ledger, self._changed, self._read_at = ledger, changed, now

    def at(self, version: int, changed: datetime | None, now: datetime) -> Ledger | None:
        """Return the ledger if its mark is unchanged, else None. Expired departures are omitted.

        The statuses of EC2NodeClasses may be outdated, since a resolution with the same outcome leaves no mark.
        """
        ledger = self._ledger
        if ledger is None or self._read_at is None or now - self._read_at >= READ_AGAIN:
            return None
        if changed is None or (version, changed) != (ledger.version, self._changed):
            return None
        lately = tuple(departure for departure in ledger.departures if now <= departure.kept_until)
        return ledger if lately == ledger.departures else replace(ledger, departures=lately)


# `TURN#concern` holds when the lock expires (`ends`), and whether other runs have tried to take it (`came`).
_LOCK_ATTEMPTS = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Locks:
    """The locks of one cluster, by concern. Every call may raise Transient."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def take(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Lock a concern until `until`. If another run holds the lock, record the attempt there and return False."""
        times = {":now": _number(now), ":until": _number(until)}
        free = "attribute_not_exists(pk) OR ends <= :now"
        for _ in range(_LOCK_ATTEMPTS):
            if self._write(concern, "SET ends = :until REMOVE came", free, times):
                return True
            values = {":now": times[":now"], ":came": {"BOOL": True}}
            if self._write(concern, "SET came = :came", "ends > :now", values):
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
