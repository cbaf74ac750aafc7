"""With any marks and records, no concern waits for long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.dispatch import QUIET_AFTER, QUIET_TICK_MINUTES, due_concerns
from nodesmith.model.functions import TICK_MINUTES, Concern, Heartbeat, Marks, Record
from tests.samples import sampled

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
MINUTE, STALE = timedelta(minutes=1), timedelta(seconds=90)
SPAN = 2 * QUIET_TICK_MINUTES
CLUSTERS = st.text("abcdefgh-0123", min_size=2, max_size=8)
STARTS = st.integers(0, 10**6).map(lambda minutes: NOON + minutes * MINUTE)
LONG = settings(max_examples=sampled(15, whole=200))
"""Each example draws marks and records for forty minutes."""
TENTHS = st.integers(0, 10)
AGES = st.integers(-3, 60).map(lambda minutes: minutes * MINUTE)


MARKS = st.none() | st.tuples(st.none() | st.tuples(AGES, AGES), st.none() | AGES)
"""The ages of a heartbeat and of what it says, and of the ledger. Strategies made once take a third of the time."""
RECORDS = st.none() | st.dictionaries(st.sampled_from(list(TICK_MINUTES)), st.none() | AGES)
"""How long ago each concern was due, if known."""
Age = timedelta | None
Ages = tuple[tuple[timedelta, timedelta] | None, Age] | None


def marks(ages: Ages, at: datetime) -> Marks | None:
    """Return marks of these ages at a time."""
    if ages is None:
        return None
    heartbeat, ledger = ages
    said = heartbeat and Heartbeat(at - heartbeat[0], at - heartbeat[1])
    return Marks(said, None if ledger is None else at - ledger)


def records(known: Mapping[Concern, Age] | None, at: datetime) -> list[Record] | None:
    """Return records that were due so long before a time."""
    if known is None:
        return None
    return [
        Record("", concern, at, due=None if age is None else at - age)
        for concern, age in sorted(known.items())
    ]


@LONG
@given(CLUSTERS, STARTS, st.data())
def test_each_concern_is_woken_at_least_every_twenty_minutes(
    cluster: str, start: datetime, data: st.DataObject
) -> None:
    times = [start + minute * MINUTE for minute in range(SPAN)]
    woken = [
        due_concerns(cluster, marks(data.draw(MARKS), at), records(data.draw(RECORDS), at), STALE, at)
        for at in times
    ]

    for concern in TICK_MINUTES:
        assert _longest_gap(woken, concern) <= QUIET_TICK_MINUTES


@LONG
@given(CLUSTERS, STARTS, st.sampled_from(list(TICK_MINUTES)), st.data())
def test_a_concern_that_is_due_or_fails_is_woken_in_its_interval(
    cluster: str, start: datetime, concern: Concern, data: st.DataObject
) -> None:
    failing = [Record(cluster, concern, start, due=start)]
    times = [start + minute * MINUTE for minute in range(SPAN)]
    woken = [due_concerns(cluster, marks(data.draw(MARKS), at), failing, STALE, at) for at in times]

    assert _longest_gap(woken, concern) <= TICK_MINUTES[concern]


@LONG
@given(CLUSTERS, STARTS, st.booleans(), st.data())
def test_while_a_cluster_changes_each_concern_except_observation_is_woken_in_its_interval(
    cluster: str, start: datetime, in_ledger: bool, data: st.DataObject
) -> None:
    times = [start + minute * MINUTE for minute in range(SPAN)]
    woken = []
    for at in times:
        changed, long_ago = at - data.draw(TENTHS) * QUIET_AFTER / 10, at - timedelta(days=1)
        moments = (long_ago, changed) if in_ledger else (changed, long_ago)
        woken.append(
            due_concerns(
                cluster,
                Marks(Heartbeat(at, moments[0]), moments[1]),
                records(data.draw(RECORDS), at),
                STALE,
                at,
            )
        )

    for concern in TICK_MINUTES.keys() - {Concern.OBSERVATION}:
        assert _longest_gap(woken, concern) <= TICK_MINUTES[concern]


@LONG
@given(CLUSTERS, STARTS, st.data())
def test_while_the_forwarder_is_down_every_concern_is_woken_in_its_interval(
    cluster: str, start: datetime, data: st.DataObject
) -> None:
    last = data.draw(st.none() | st.just(Heartbeat(start - STALE, start - STALE)))
    times = [start + minute * MINUTE for minute in range(SPAN)]
    woken = [
        due_concerns(cluster, Marks(last, None), records(data.draw(RECORDS), at), STALE, at) for at in times
    ]

    for concern in TICK_MINUTES:
        assert _longest_gap(woken, concern) <= TICK_MINUTES[concern]


def _longest_gap(woken: Sequence[Sequence[Concern]], concern: Concern) -> int:
    """Return the longest wait of a concern in minutes, including the start and the end."""
    found = [minute for minute, concerns in enumerate(woken) if concern in concerns]
    edges = [-1, *found, len(woken)]
    return max(after - before for before, after in pairwise(edges))
