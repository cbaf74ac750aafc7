"""Which concerns of a cluster a tick wakes: all of them while the cluster changes, otherwise those that are due.

Hints wake the concerns that have something to do, and each function reports when time alone gives it something to do.
Ticks only make up for lost messages, which are next to none in a cluster that does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zlib import crc32

from nodesmith.model.functions.health import Heartbeat, Marks, Record
from nodesmith.model.functions.hints import TICK_MINUTES, Concern

QUIET_AFTER = timedelta(minutes=10)
"""How long nothing must have changed until only due concerns are woken.

This is twice the longest interval at which a process records when its concern must look again, so that the records come
from runs that have seen the last change. The ten ticks until then make up for a lost hint.
"""
QUIET_TICK_MINUTES = 30
"""How often each concern looks even if it is not due: the longest delay of anything that was not foreseen."""
LOOK_MINUTES = 5
"""Clusters look in the first five of every thirty minutes, each in one of them.

The looks are not all at once, and not spread evenly either: a function's process rarely lives for half an hour, and
starting one costs several times as much as a look. The first cluster's look starts it, and the others reuse it.
"""
_MINUTE_SECONDS = 60


def due_concerns(
    cluster: str,
    marks: Marks | None,
    records: Sequence[Record] | None,
    stale_after: timedelta,
    at: datetime,
) -> list[Concern]:
    """Return the concerns of a cluster that a tick wakes in the minute of `at`.

    `marks` and `records` are None if they could not be read; the cluster then counts as changing. A heartbeat older
    than `stale_after` means that the forwarder is away, so observation must run; otherwise changes do not wake it.
    """
    minute = int(at.timestamp()) // _MINUTE_SECONDS
    if minute % QUIET_TICK_MINUTES == own_minute(cluster):
        return list(TICK_MINUTES)
    ticked = [concern for concern, every in TICK_MINUTES.items() if minute % every == 0]
    if marks is None or records is None or is_away(marks.heartbeat, stale_after, at):
        return ticked
    known = {record.concern: record for record in records}
    waiting = {concern for concern in ticked if concern not in known or known[concern].is_due(at)}
    active = set() if is_quiet(marks, at) else set(ticked) - {Concern.OBSERVATION}
    return [concern for concern in ticked if concern in waiting | active]


def is_quiet(marks: Marks, at: datetime) -> bool:
    """Return whether neither a cluster's snapshot nor its ledger has changed lately.

    A ledger without a mark has not been written to since marks were introduced.
    """
    moments = [marks.heartbeat.changed if marks.heartbeat else at, marks.ledger_changed]
    return all(at - moment > QUIET_AFTER for moment in moments if moment is not None)


def is_away(heartbeat: Heartbeat | None, stale_after: timedelta, at: datetime) -> bool:
    """Return whether the forwarder sends no heartbeats, so that the observation function must replace it."""
    return heartbeat is None or not heartbeat.is_fresh(at, stale_after)


def own_minute(cluster: str) -> int:
    """Return the minute of thirty in which all of a cluster's concerns look, derived from the cluster's name."""
    return crc32(cluster.encode()) % LOOK_MINUTES
