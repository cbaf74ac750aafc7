"""Which concerns of a cluster a tick wakes: all while the cluster changes, otherwise those that are due."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from nodesmith.decisions.dispatch import LOOK_MINUTES, QUIET_TICK_MINUTES, due_concerns, is_quiet
from nodesmith.model.functions import TICK_MINUTES, Concern, Heartbeat, Marks, Record

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
MINUTE, STALE = timedelta(minutes=1), timedelta(seconds=90)
ALL = set(TICK_MINUTES)
OTHERS = ALL - {Concern.OBSERVATION}
NEVER = datetime(2026, 1, 1, tzinfo=UTC)


def alive(at: datetime = NOON, changed: datetime = NEVER, ledger: datetime | None = NEVER) -> Marks:
    return Marks(Heartbeat(at, changed), ledger)


def rested(**due: datetime) -> list[Record]:
    """Return records of a cluster in which only the named concerns are due."""
    return [Record("east", concern, NOON, due=due.get(str(concern))) for concern in TICK_MINUTES]


def woken_concerns(
    marks: Marks | None, records: list[Record] | None, at: datetime = NOON, cluster: str = "east"
) -> set[Concern]:
    return set(due_concerns(cluster, marks, records, STALE, at))


def own_minute(cluster: str) -> int:
    """Return the minute after noon in which an unchanged cluster looks."""
    (minute,) = (
        m
        for m in range(QUIET_TICK_MINUTES)
        if woken_concerns(alive(NOON + m * MINUTE), rested(), NOON + m * MINUTE, cluster)
    )
    return minute


def test_noon_is_not_the_regular_minute_of_this_cluster() -> None:
    assert own_minute("east") != 0


@pytest.mark.parametrize(
    ("marks", "records", "expected"),
    [
        pytest.param(alive(), rested(), set(), id="nothing has changed and nothing is due"),
        pytest.param(
            alive(changed=NOON - 9 * MINUTE), rested(), OTHERS, id="the snapshot has lately changed"
        ),
        pytest.param(alive(ledger=NOON - 9 * MINUTE), rested(), OTHERS, id="the ledger has lately changed"),
        pytest.param(alive(changed=NOON - 11 * MINUTE), rested(), set(), id="it changed a while ago"),
        pytest.param(alive(changed=NOON + MINUTE), rested(), OTHERS, id="the forwarder's clock is ahead"),
        pytest.param(alive(ledger=None), rested(), set(), id="the ledger has never been written to"),
        pytest.param(alive(NOON - 89 * MINUTE / 60), rested(), set(), id="the heartbeat is not yet stale"),
        pytest.param(alive(NOON - 90 * MINUTE / 60), rested(), ALL, id="the heartbeat is stale"),
        pytest.param(alive(NOON + 2 * MINUTE), rested(), ALL, id="the heartbeat is of another time"),
        pytest.param(Marks(None, NEVER), rested(), ALL, id="there is no heartbeat"),
        pytest.param(Marks(), rested(), ALL, id="the cluster is new"),
        pytest.param(None, rested(), ALL, id="the marks cannot be read"),
        pytest.param(alive(), None, ALL, id="the records cannot be read"),
        pytest.param(alive(), [], ALL, id="nothing has run yet"),
        pytest.param(alive(), rested(repair=NOON), {Concern.REPAIR}, id="a concern is due"),
        pytest.param(alive(), rested(repair=NOON - MINUTE), {Concern.REPAIR}, id="it still is"),
        pytest.param(alive(), rested(repair=NOON + MINUTE), set(), id="it is not due yet"),
        pytest.param(alive(), rested(observation=NOON), {Concern.OBSERVATION}, id="observation fails"),
        pytest.param(alive(), rested()[1:], {next(iter(TICK_MINUTES))}, id="one has no record"),
    ],
)
def test_which_concerns_are_woken(
    marks: Marks | None, records: list[Record] | None, expected: set[Concern]
) -> None:
    assert woken_concerns(marks, records) == expected


def test_a_due_concern_is_woken_at_its_interval_and_not_each_minute() -> None:
    records = rested(readiness=NOON, lifecycle=NOON)
    hour = Counter(
        c for m in range(60) for c in woken_concerns(alive(NOON + m * MINUTE), records, NOON + m * MINUTE)
    )

    assert hour[Concern.LIFECYCLE] == 60
    assert hour[Concern.READINESS] in {12, 14}  # with the two regular looks of each concern
    assert hour[Concern.TERMINATION] == 2


def test_in_a_cluster_that_changes_each_concern_looks_at_its_interval() -> None:
    hour = Counter(
        c
        for at in (NOON + m * MINUTE for m in range(60))
        for c in woken_concerns(alive(at, changed=at), rested(), at)
        if c is not Concern.OBSERVATION
    )
    extra = {c: n - 60 // TICK_MINUTES[c] for c, n in hour.items()}

    assert hour.keys() == OTHERS
    assert all(0 <= n <= 3 for n in extra.values())


def test_clusters_that_do_not_change_look_in_different_minutes() -> None:
    clusters = Counter(own_minute(f"cluster-{n}") for n in range(100))

    assert set(clusters) == set(range(LOOK_MINUTES))
    assert max(clusters.values()) <= 30


def test_a_clusters_minute_is_the_same_in_every_process() -> None:
    assert [own_minute(name) for name in ("east", "west", "prod")] == [3, 4, 4]


def test_without_any_mark_a_cluster_does_not_count_as_quiet() -> None:
    assert not is_quiet(Marks(), NOON)
