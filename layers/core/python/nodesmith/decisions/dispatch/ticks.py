"""Which concerns of a cluster are to look in a minute: all of them while it changes, else what is due.

Hints wake who has something to do, and a function says when time alone gives it something to do. What is left to ticks
is what got lost, and in a cluster that does not change that is next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zlib import crc32

from nodesmith.model.functions.health import Record
from nodesmith.model.functions.hints import TICK_MINUTES, Concern
from nodesmith.model.functions.marks import Heartbeat, Marks

QUIET_AFTER = timedelta(minutes=10)
"""How long nothing must have changed until only what is due is woken.

Twice as long as a process goes without recording when its concern has to look again, so that what is recorded by then
comes from runs that have seen the last change. A hint that got lost meanwhile is made up for by ten ticks.
"""
QUIET_TICK_MINUTES = 30
"""How often each concern looks although nothing is due: what nobody has foreseen waits no longer than that."""
LOOK_MINUTES = 5
"""In the first so many minutes of thirty clusters look, each in one of them.

Not all at once, and not spread evenly either: by then a function's process is mostly gone, and while it starts costs
several times what a look does. The first cluster's look starts it, and the others find it there.
"""
_MINUTE_SECONDS = 60


def due_concerns(
    cluster: str,
    marks: Marks | None,
    records: Sequence[Record] | None,
    stale_after: timedelta,
    at: datetime,
) -> list[Concern]:
    """Return the concerns of a cluster that are to look in the minute of `at`.

    `marks` and `records` are None where they could not be read: then nothing is taken to be quiet. A heartbeat older
    than `stale_after` means that the forwarder is away, and observation stands in: what changes does not concern it.
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
    """Return whether a cluster has not changed lately, as its forwarder and its ledger say.

    A ledger without a mark has not been written to since ledgers are marked.
    """
    moments = [marks.heartbeat.changed if marks.heartbeat else at, marks.ledger_changed]
    return all(at - moment > QUIET_AFTER for moment in moments if moment is not None)


def is_away(heartbeat: Heartbeat | None, stale_after: timedelta, at: datetime) -> bool:
    """Return whether the forwarder gives no sign of life, so that the observation function has to stand in."""
    return heartbeat is None or not heartbeat.is_fresh(at, stale_after)


def own_minute(cluster: str) -> int:
    """Return the minute of thirty in which all of a cluster's concerns look; another one for other clusters."""
    return crc32(cluster.encode()) % LOOK_MINUTES
