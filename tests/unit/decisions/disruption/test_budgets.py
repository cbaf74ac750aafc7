"""How many of a NodePool's nodes may be disrupted now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.budgets import allowed, holds_until, is_active, remaining
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.apimachinery.problems import Parsed
from nodesmith.model.apimachinery.times import last_hit, next_hit, parse_cron
from nodesmith.model.karpenter.disruption import Budget, Window, read_budget, write_budget
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool
from nodesmith.model.ledger.items import ledger_item, read_ledger
from nodesmith.model.ledger.ledger import Departure, Ledger, Pause
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.snapshot import Snapshot
from tests import builders
from tests.builders import NOW

MONDAY = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
HOUR = 3600


@pytest.mark.parametrize(
    ("nodes", "of", "expected"),
    [
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("10%", 1, 1),
        ("10%", 0, 0),
        ("100%", 7, 7),
        ("0", 9, 0),
        ("3", 2, 3),
        ("0%", 9, 0),
    ],
)
def test_a_percentage_is_rounded_up_and_a_count_is_a_count(nodes: str, of: int, expected: int) -> None:
    assert allowed([Budget(nodes)], "Expired", of, 0, MONDAY) == expected


def test_the_lowest_budget_that_names_the_reason_counts() -> None:
    budgets = [
        Budget("5"),
        Budget("1", reasons=("Drifted",)),
        Budget("0", reasons=("Empty",)),
        Budget("0", reasons=()),
    ]
    assert allowed(budgets, "Drifted", 100, 0, MONDAY) == 1
    assert allowed(budgets, "Expired", 100, 0, MONDAY) == 5


def test_nodes_that_are_disrupted_already_are_subtracted_down_to_zero() -> None:
    assert allowed([Budget("2")], "Expired", 100, 1, MONDAY) == 1
    assert allowed([Budget("2")], "Expired", 100, 5, MONDAY) == 0


def test_without_an_applicable_budget_all_may_go() -> None:
    assert allowed([], "Expired", 100, 50, MONDAY) is None
    sleeping = Budget("0", schedule="0 0 1 1 *", duration_seconds=HOUR)
    assert allowed([sleeping], "Expired", 100, 0, MONDAY) is None


@pytest.mark.parametrize(
    ("schedule", "hours", "active"),
    [
        ("0 9 * * mon-fri", 8, True),
        ("0 9 * * mon-fri", 0.5, False),
        ("30 9 * * *", 1, True),
        ("31 9 * * *", 24, True),
        ("31 9 * * *", 23, False),
        ("0 22 * * *", 12, True),
        ("@weekly", 34, True),
        ("@weekly", 33, False),
        ("0 0 1 * 1", 10, True),
        ("0 0 1 * 2", 10, False),
        ("0 0 29 2 *", 24 * 365 * 3, True),
        ("0 0 29 2 *", 24 * 365, False),
    ],
)
def test_a_budget_is_active_for_its_duration_after_each_moment_of_its_schedule(
    schedule: str, hours: float, active: bool
) -> None:
    assert is_active(Budget("0", schedule=schedule, duration_seconds=int(hours * HOUR)), MONDAY) is active


def test_a_schedule_that_cannot_be_parsed_is_always_active_and_allows_nothing() -> None:
    unread = Budget("5", schedule="at noon", duration_seconds=60)
    assert is_active(unread, MONDAY)
    assert allowed([unread], "Drifted", 100, 0, MONDAY) == 0
    assert allowed([replace(unread, reasons=("Empty",))], "Drifted", 100, 0, MONDAY) is None


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("now", "in_berlin", "in_utc"),
    [
        (datetime(2026, 11, 23, 8, 0, tzinfo=UTC), True, False),  # 9:00 in winter
        (datetime(2026, 11, 23, 7, 59, tzinfo=UTC), False, False),
        (datetime(2026, 7, 20, 7, 0, tzinfo=UTC), True, False),  # 9:00 in summer
        (datetime(2026, 7, 20, 9, 30, tzinfo=UTC), False, True),
    ],
)
def test_a_schedule_uses_the_clock_of_its_time_zone(now: datetime, in_berlin: bool, in_utc: bool) -> None:
    nine = Budget("0", schedule="0 9 * * mon-fri", duration_seconds=2 * HOUR)
    assert is_active(replace(nine, timezone=BERLIN), now) is in_berlin
    assert is_active(nine, now) is in_utc


@pytest.mark.parametrize(
    ("schedule", "until", "hit"),
    [
        ("30 2 * * *", datetime(2026, 3, 29, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        ("30 2 * * *", datetime(2026, 10, 25, 12, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        ("45 2 * * *", datetime(2026, 10, 25, 1, 40, tzinfo=UTC), datetime(2026, 10, 25, 0, 45, tzinfo=UTC)),
        ("0 0 * * *", datetime(2026, 11, 22, 23, 30, tzinfo=UTC), datetime(2026, 11, 22, 23, tzinfo=UTC)),
    ],
    ids=[
        "the skipped hour",
        "the repeated hour",
        "within the second of them",
        "a day that has already begun there",
    ],
)
def test_a_time_that_daylight_saving_skips_comes_later_and_one_that_it_repeats_comes_once(
    schedule: str, until: datetime, hit: datetime
) -> None:
    after = until - timedelta(days=1)
    assert last_hit(parse_cron(schedule), after, until, ZoneInfo(BERLIN)) == hit


@pytest.mark.parametrize(
    ("schedule", "minutes"),
    [("0 * * * *", 60), ("@hourly", 60), ("*/30 * * * *", 30), ("0 */2 * * *", 120), ("15 0-23 * * *", 60)],
)
@pytest.mark.parametrize("day", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
def test_windows_without_a_gap_have_none_when_clocks_change(
    schedule: str, minutes: int, day: datetime
) -> None:
    always = Window(schedule, minutes * 60, BERLIN)
    moments = [day - timedelta(hours=2) + timedelta(minutes=5 * index) for index in range(12 * 8)]
    assert [moment for moment in moments if not is_active(always, moment)] == []


def test_both_hours_of_a_repeated_time_begin_windows_of_a_schedule_for_every_hour() -> None:
    hourly, at = parse_cron("10 * * * *"), datetime(2026, 10, 24, 23, 30, tzinfo=UTC)
    found = []
    for _ in range(3):
        at = next_hit(hourly, at, ZoneInfo(BERLIN)) or at
        found.append(at.hour)
    assert found == [0, 1, 2]


def nodepool(annotations: Mapping[str, str], **disruption: Any) -> Parsed[NodePool]:
    manifest = builders.nodepool_manifest()
    manifest["metadata"]["annotations"] = dict(annotations)
    manifest["spec"]["disruption"] = {"consolidateAfter": "0s", **disruption}
    return parse_nodepool(manifest)


ALL = [{"nodes": "100%"}]
CLAIMS = tuple(
    builders.claim(f"default-{n}", phase=Phase.INITIALIZED, provider_id=f"aws:///a/i-{n}") for n in range(10)
)
SNAPSHOT = builders.snapshot(
    nodes=tuple(builders.node(c.name, provider_id=c.provider_id) for c in CLAIMS),
)


def left(
    found: Parsed[NodePool],
    ledger: Ledger,
    going: Sequence[NodeClaim] = (),
    snapshot: Snapshot = SNAPSHOT,
) -> int | None:
    assert found.value is not None, found.problems
    return remaining(found.value, "Drifted", ledger, going, snapshot, NOW)


def test_without_a_rate_as_many_may_go_as_the_budgets_allow() -> None:
    assert left(nodepool({}, budgets=ALL), Ledger(claims=CLAIMS)) == 10


def test_the_rate_per_hour_counts_forgotten_claims_as_well() -> None:
    pool = nodepool({"nodesmith.dev/max-disruptions-per-hour": "5"}, budgets=ALL)
    ends = [NOW - timedelta(minutes=m) for m in (10, 59, 61)]
    ending = tuple(c.terminating("Drifted", "", at) for c, at in zip(CLAIMS, ends, strict=False))
    ledger = Ledger(claims=(*ending, *CLAIMS[3:]))
    assert left(pool, ledger) == 3
    gone = (Departure("default-a", "default", NOW - timedelta(minutes=30)),)
    assert left(pool, replace(ledger, departures=gone)) == 2
    assert left(pool, replace(ledger, departures=gone), CLAIMS[5:6]) == 1
    others = (Departure("other-a", "other", NOW), Departure("default-b", "default", NOW - timedelta(hours=1)))
    assert left(pool, replace(ledger, departures=others)) == 3


def test_a_departure_that_is_recorded_before_its_claim_is_forgotten_counts_once() -> None:
    pool = nodepool({"nodesmith.dev/max-disruptions-per-hour": "2"}, budgets=ALL)
    ending = CLAIMS[0].terminating("Drifted", "", NOW)
    ledger = Ledger(claims=(ending, *CLAIMS[1:]), departures=(Departure(ending.name, "default", NOW),))
    assert left(pool, ledger) == 1


def test_the_rate_applies_without_an_applicable_budget() -> None:
    pool = nodepool({"nodesmith.dev/max-disruptions-per-hour": "4"}, budgets=[])
    assert left(pool, Ledger(claims=CLAIMS)) == 4


def test_no_node_may_be_disrupted_while_disruption_is_paused() -> None:
    assert left(nodepool({}, budgets=[]), Ledger(claims=CLAIMS, paused=Pause(NOW, "a release"))) == 0


@pytest.mark.parametrize(
    ("annotations", "disruption", "reported"),
    [
        ({"nodesmith.dev/budget-timezone": "Europe/Berlln"}, {}, "did you mean 'Europe/Berlin'?"),
        ({"nodesmith.dev/budget-timezone": "Europe"}, {}, "must be the name of a time zone"),
        ({"nodesmith.dev/budget-timezone": "../../etc/passwd"}, {}, "must be the name of a time zone"),
        ({"nodesmith.dev/max-disruptions-per-hour": "ten"}, {}, "must be a number of nodes"),
        ({}, {"budgets": [{"schedule": "0 25 * * *", "duration": "1h"}]}, "the hour '25' must be a number"),
    ],
)
def test_an_invalid_limit_is_reported_and_stops_disruption_but_not_purchases(
    annotations: Mapping[str, str], disruption: Mapping[str, Any], reported: str
) -> None:
    found = nodepool(annotations, **disruption)
    (problem,) = found.problems
    assert reported in str(problem)
    assert "until this is fixed, none of its nodes is disrupted" in str(problem)
    assert not problem.fatal
    assert left(found, Ledger(claims=CLAIMS)) == 0


@pytest.mark.parametrize(
    ("disruption", "reported"),
    [
        (
            {"budgets": [{"nodes": "0"}, {"nodes": "20%"}]},
            "budgets[1].nodes is '20%': has no effect together with",
        ),
        ({"budgets": [{"nodes": "1", "reasons": []}]}, "budgets[0].reasons is []: limits nothing"),
        (
            {"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"},
            "keeps even empty nodes forever",
        ),
    ],
)
def test_an_implausible_limit_is_reported_and_applies_as_written(
    disruption: Mapping[str, Any], reported: str
) -> None:
    found = nodepool({}, **disruption)
    (problem,) = found.problems
    assert reported in str(problem)
    assert found.value is not None
    assert found.value.disruption.fault == ""


def test_budgets_that_allow_none_for_some_reasons_or_times_cause_no_problem() -> None:
    budgets = [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "0", "schedule": "@daily", "duration": "8h"}]
    assert nodepool({}, budgets=[*budgets, {"nodes": "20%"}]).problems == ()


def test_a_budget_keeps_its_time_zone_in_the_ledger() -> None:
    found = nodepool({"nodesmith.dev/budget-timezone": BERLIN}).value
    assert found is not None
    (budget,) = found.disruption.budgets
    assert budget.timezone == BERLIN
    assert read_budget(json.loads(json.dumps(write_budget(budget)))) == budget


def test_a_ledger_keeps_its_pause_and_its_departures() -> None:
    attempted = Departure("b", "default", NOW, NOW, NOW, FrozenMap({"a-b": 2}), ("a-b",))
    lately = (Departure("a", "default", NOW), attempted)
    ledger = Ledger(paused=Pause(NOW, "a release"), departures=lately)
    assert read_ledger(json.loads(json.dumps(ledger_item(ledger)))) == ledger


@given(
    st.sampled_from(
        ["*/7 * * * *", "15 3 * * *", "0 12 1,15 * *", "5 4 * * sun", "0 0 13 * 5", "59 23 31 12 ?"]
    ),
    st.integers(0, 3 * 365 * 24 * 60),
    st.integers(1, 3 * 24 * 60),
)
def test_the_computed_end_equals_the_one_found_by_trying_every_minute(
    schedule: str, before: int, minutes: int
) -> None:
    until, cron = MONDAY - timedelta(minutes=before, seconds=30), parse_cron(schedule)
    after = until - timedelta(minutes=minutes)
    moment = until.replace(second=0, microsecond=0)
    tried = None
    while moment > after and tried is None:
        day = moment.day in cron.days, moment.isoweekday() % 7 in cron.weekdays
        on = all(day) if cron.any_day or cron.any_weekday else any(day)
        if moment.month in cron.months and on and moment.hour in cron.hours and moment.minute in cron.minutes:
            tried = moment
        moment -= timedelta(minutes=1)
    assert last_hit(cron, after, until) == tried


TWO = nodepool({}, budgets=[{"nodes": "2"}])
GONE = replace(
    CLAIMS[0].terminating("Empty", "", NOW),
    phase=Phase.TERMINATED,
    instance_gone_at=NOW - timedelta(minutes=5),
)


@pytest.mark.parametrize("instance_gone_at", [None, NOW])
def test_a_node_counts_as_terminating_until_its_node_object_is_gone(
    instance_gone_at: datetime | None,
) -> None:
    ended = replace(GONE, instance_gone_at=instance_gone_at)
    assert left(TWO, Ledger(claims=(ended, *CLAIMS[1:]))) == 1
    assert left(TWO, Ledger(claims=CLAIMS[1:])) == 2


def test_a_percentage_ignores_instances_that_are_being_terminated() -> None:
    """Half of nine nodes are five, and two of the nine are ending."""
    ended = replace(GONE, name="default-a"), replace(GONE, name="default-b")
    half = nodepool({}, budgets=[{"nodes": "50%"}])
    assert left(half, Ledger(claims=(*ended, *CLAIMS[1:]))) == 3


def test_nodes_count_as_disrupted_once_they_are_tainted_or_deleted_by_anyone() -> None:
    nodes = list(SNAPSHOT.nodes)
    nodes[0] = replace(nodes[0], taints=(DISRUPTED,))
    nodes[1] = replace(nodes[1], deleting=True)
    deleted = {"metadata": {"name": CLAIMS[2].name, "deletionTimestamp": "2026-11-21T12:00:00Z"}}
    shown = builders.snapshot(nodes=nodes, nodeclaims=(deleted, {"metadata": {"name": CLAIMS[3].name}}))
    all_but_three = nodepool({}, budgets=[{"nodes": "10"}])
    assert left(all_but_three, Ledger(claims=CLAIMS), snapshot=shown) == 7


def test_nodes_that_have_never_joined_do_not_count_as_disrupted() -> None:
    young = replace(CLAIMS[0], phase=Phase.LAUNCHED, provider_id="aws:///a/i-new", initialized_at=None)
    ending = young.terminating("Deleted", "", NOW)
    assert left(TWO, Ledger(claims=(young, *CLAIMS[1:]))) == 2
    assert left(TWO, Ledger(claims=(ending, *CLAIMS[1:]))) == 2
    joined = replace(ending, registered_at=NOW)
    assert left(TWO, Ledger(claims=(joined, *CLAIMS[1:]))) == 1


def test_a_percentage_counts_a_node_and_its_replacement_once() -> None:
    """Of nine nodes, 11 % are one, and not two, even while a tenth node is ready to replace one of them."""
    pool = nodepool({}, budgets=[{"nodes": "11%"}])
    *others, new = CLAIMS
    move = Move("m", Reason.DRIFTED, (others[0].name,), Stage.REPLACING, NOW, NOW, replacements=(new.name,))
    assert left(pool, Ledger(claims=CLAIMS, moves=(move,)), others[:1]) == 0
    ending = others[0].terminating("Drifted", "", NOW)
    assert left(pool, Ledger(claims=(ending, *others[1:], new))) == 0


@pytest.mark.parametrize("cause", ["Drifted", "Underutilized", "Expired", "Unhealthy", "Deleted"])
def test_a_percentage_counts_a_terminating_node_and_its_replacement_once(cause: str) -> None:
    pool = nodepool({}, budgets=[{"nodes": "11%"}])
    *others, new = CLAIMS
    old = replace(others[0], initialized_at=NOW - timedelta(days=1))
    ending = old.terminating(cause, "", NOW - timedelta(minutes=5))
    if cause in ("Drifted", "Underutilized"):
        ending = replace(ending, replaced_by=(new.name,))
    else:
        new = replace(new, created_at=NOW - timedelta(minutes=4))
    assert left(pool, Ledger(claims=(ending, *others[1:], new))) == 0


def test_a_node_that_was_bought_for_other_pods_is_no_replacement_of_an_empty_one() -> None:
    pool = nodepool({}, budgets=[{"nodes": "20%"}])
    later = builders.claim("default-10", phase=Phase.INITIALIZED, provider_id="aws:///a/i-10", created_at=NOW)
    node = builders.node(later.name, provider_id=later.provider_id)
    seen = replace(SNAPSHOT, nodes=(*SNAPSHOT.nodes, node))
    for cause, expected in (("Empty", 2), ("Expired", 1)):
        old = replace(CLAIMS[0], initialized_at=NOW - timedelta(days=1))
        ending = old.terminating(cause, "", NOW - timedelta(minutes=5))
        assert left(pool, Ledger(claims=(ending, *CLAIMS[1:], later)), snapshot=seen) == expected


@pytest.mark.parametrize("duration", ["99999999h", "1000000h"])
def test_a_budget_for_longer_than_its_schedule_ever_pauses_does_not_end(duration: str) -> None:
    found = nodepool({}, budgets=[{"nodes": "1", "schedule": "@daily", "duration": duration}])
    assert found.value is not None
    (budget,) = found.value.disruption.budgets
    assert is_active(budget, MONDAY)
    assert holds_until(budget, MONDAY) is None
