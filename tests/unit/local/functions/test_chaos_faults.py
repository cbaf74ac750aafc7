"""Faults of a local system: which there are, what can be asked for, when they end, and when all is well again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.errors import Rejected, Transient
from nodesmith_local.chaos.active import ActiveFaults
from nodesmith_local.chaos.faults import (
    DEFAULT_SECONDS,
    FAULTS,
    FORWARDER,
    HALVES,
    OF_ANY_SERVICE,
    SKEW,
    Fault,
    FaultKind,
    Service,
    faults_of,
)
from tests.clocks import Hand
from tests.patience import eventually

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
CALLS = Sequence[FaultKind]


@pytest.fixture
def hand() -> Hand:
    return Hand(NOON)


@pytest.fixture
def stopping() -> Any:
    stopping = threading.Event()
    yield stopping
    stopping.set()


def active(hand: Hand, stopping: threading.Event, activity: Callable[[], str] = str) -> ActiveFaults:
    return ActiveFaults(hand.clock, stopping, activity)


def the(faults: ActiveFaults, name: str) -> dict[str, Any]:
    (found,) = (each for each in faults.status() if each["name"] == name)
    return found


# The table


def test_every_fault_says_what_it_does_where_it_shows_and_what_it_can_hit() -> None:
    assert set(FAULTS) == set(FaultKind)
    assert all(each.does and each.shows and each.services for each in FAULTS.values())


def test_faults_of_any_service_can_hit_all_that_a_local_system_calls() -> None:
    can_hit = {frozenset(FAULTS[kind].services) for kind in OF_ANY_SERVICE}
    assert can_hit == {frozenset(Service) - {Service.STS, Service.PRICING}}


def test_a_partition_cuts_off_one_half_and_each_half_has_a_function_that_buys_nodes() -> None:
    assert not HALVES[0] & HALVES[1]
    assert {"provisioning", "disruption", FORWARDER} <= HALVES[0] | HALVES[1]


# What is asked for


def test_a_fault_lasts_half_a_minute_and_hits_all_services_and_functions_unless_told_otherwise() -> None:
    made = faults_of("errors")
    assert [each.service for each in made] == list(FAULTS[FaultKind.ERRORS].services)
    assert {(each.seconds, each.callers, each.share) for each in made} == {(DEFAULT_SECONDS, frozenset(), 1)}


def test_services_functions_duration_and_share_narrow_it() -> None:
    assert faults_of("slow", ["ec2", "s3", "ec2"], ["provisioning"], 300, 0.5) == tuple(
        Fault(service, FaultKind.SLOW, 300, frozenset({"provisioning"}), 0.5)
        for service in (Service.EC2, Service.S3)
    )


def test_a_throttled_service_answers_one_call_of_three() -> None:
    (made,) = faults_of("throttled", ["ec2"])
    assert math.isclose(made.share, 2 / 3)


def test_a_partition_without_named_functions_cuts_off_half_of_them() -> None:
    (half,) = faults_of("partitioned", ["s3"])
    (named,) = faults_of("partitioned", ["s3"], ["routing"])
    assert (half.callers, named.callers) == (HALVES[0], frozenset({"routing"}))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"kind": "trottled"}, "no fault is called 'trottled', did you mean 'throttled'?"),
        ({"kind": "zzz"}, "no fault is called 'zzz': there are slow, throttled, errors"),
        ({"services": ["dynamo"]}, "no service is called 'dynamo', did you mean 'dynamodb'?"),
        ({"functions": ["provision"]}, "no function is called 'provision', did you mean 'provisioning'?"),
        ({"services": ["sts"]}, "--service sts: the functions of a local system have no sessions"),
        ({"services": ["pricing"]}, "--service pricing: the catalog function does not run"),
        ({"kind": "stale", "services": ["ec2"]}, "--service ec2: stale is a fault of s3: leave out"),
        ({"kind": "poisoned", "share": 0.5}, "--share: does not narrow poisoned"),
        ({"kind": "interrupted", "functions": ["routing"]}, "--function: does not narrow interrupted"),
        ({"seconds": 3601.0}, "at most an hour"),
        ({"seconds": 0.0}, "more than 0 seconds and at most an hour, not 0 seconds"),
        ({"seconds": math.nan}, "at most an hour"),
        ({"share": 0.0}, "--share 0: must be more than 0"),
        ({"share": 1.1}, "--share 1.1: must be more than 0 and at most 1"),
        ({"share": math.nan}, "--share nan"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(Rejected) as error:
        faults_of(**{"kind": "slow", **asked})
    assert why in str(error.value)


# While it lasts


def test_a_fault_is_met_by_calls_of_its_service_until_its_time_is_up(
    hand: Hand, stopping: threading.Event
) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("errors", ["ec2"], seconds=60))

    def met(service: Service) -> CALLS:
        return faults.met(service, "provisioning", OF_ANY_SERVICE)

    assert (met(Service.EC2), met(Service.S3)) == ([FaultKind.ERRORS], [])
    hand.seconds = 59.9
    assert met(Service.EC2) == [FaultKind.ERRORS]
    hand.seconds = 60
    assert met(Service.EC2) == []
    assert the(faults, "ec2-errors")["hits"] == 2


def test_only_the_named_functions_meet_it_and_nobody_who_is_no_function(
    hand: Hand, stopping: threading.Event
) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("errors", ["s3"], [FORWARDER]))
    who = [each for each in (FORWARDER, "routing", "") if faults.met(Service.S3, each, OF_ANY_SERVICE)]
    assert who == [FORWARDER]


def test_without_faults_no_call_meets_one_and_no_thread_runs(hand: Hand, stopping: threading.Event) -> None:
    before = threading.active_count()
    faults = active(hand, stopping)
    assert faults.met(Service.EC2, "provisioning", OF_ANY_SERVICE) == []
    assert faults.deliveries(Service.EVENTS, "routing") == (0.0,)
    assert (faults.status(), threading.active_count()) == ([], before)


def test_a_share_of_calls_meets_it(hand: Hand, stopping: threading.Event) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("errors", ["ec2"], share=0.5))
    hits = sum(bool(faults.met(Service.EC2, "routing", OF_ANY_SERVICE)) for _ in range(2000))
    assert 800 < hits < 1200  # nine standard deviations around the mean


def test_two_faults_of_one_service_are_both_met(hand: Hand, stopping: threading.Event) -> None:
    faults = active(hand, stopping)
    faults.start([*faults_of("slow", ["ec2"]), *faults_of("late", ["ec2"])])
    assert faults.met(Service.EC2, "routing", OF_ANY_SERVICE) == [FaultKind.SLOW, FaultKind.LATE]


@pytest.mark.parametrize(
    ("kind", "deliveries"),
    [("slow", (60,)), ("throttled", (60,)), ("late", (0, 60)), ("errors", ()), ("partitioned", ())],
)
def test_events_of_an_unwell_service_come_later_twice_or_never(
    hand: Hand, stopping: threading.Event, kind: str, deliveries: Sequence[float]
) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of(kind, ["events"], ["routing"], share=1))
    assert faults.deliveries(Service.EVENTS, "routing") == deliveries


def test_clocks_of_one_half_are_ahead_and_of_the_other_behind(hand: Hand, stopping: threading.Event) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("skewed"))
    ahead, behind = (faults.skew(min(half)) for half in HALVES)
    assert (ahead, behind, faults.skew("")) == (SKEW, -SKEW, timedelta())
    hand.seconds = DEFAULT_SECONDS
    assert faults.skew(min(HALVES[0])) == timedelta()


# Starting and stopping


def test_a_fault_that_is_active_is_not_started_again_and_none_beside_it(
    hand: Hand, stopping: threading.Event
) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("errors", ["ec2"]))
    with pytest.raises(Rejected, match=r"ec2-errors is active already.*nodesmith chaos stop ec2-errors"):
        faults.start(faults_of("errors", ["s3", "ec2"]))
    assert [each["name"] for each in faults.status()] == ["ec2-errors"]
    hand.seconds = DEFAULT_SECONDS
    (again,) = faults.start(faults_of("errors", ["ec2"]))
    assert (again["state"], again["hits"], again["secondsLeft"]) == ("active", 0, DEFAULT_SECONDS)


def test_a_stopped_fault_is_met_no_more_and_the_others_are(hand: Hand, stopping: threading.Event) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("errors", ["ec2", "s3"]))
    assert [each["name"] for each in faults.stop("ec2-errors")] == ["ec2-errors"]
    met = [each for each in Service if faults.met(each, "routing", OF_ANY_SERVICE)]
    assert met == [Service.S3]


def test_all_are_stopped_at_once(hand: Hand, stopping: threading.Event) -> None:
    faults = active(hand, stopping)
    faults.start(faults_of("errors"))
    assert len(faults.stop()) == len(FAULTS[FaultKind.ERRORS].services)
    assert faults.stop() == []


def test_a_name_that_is_not_active_is_refused_with_those_that_are(
    hand: Hand, stopping: threading.Event
) -> None:
    faults = active(hand, stopping)
    with pytest.raises(Rejected, match=r"no fault 'ec2-errors' is active$"):
        faults.stop("ec2-errors")
    faults.start(faults_of("errors", ["ec2"]))
    with pytest.raises(Rejected, match="did you mean 'ec2-errors'"):
        faults.stop("ec2-error")


# Afterwards


def test_recovery_is_the_time_from_the_end_until_nothing_is_under_way(
    hand: Hand, stopping: threading.Event
) -> None:
    activity = ["Pod/default/web waits"]
    faults = active(hand, stopping, lambda: activity[0])
    faults.start(faults_of("errors", ["ec2"], seconds=10))
    assert (the(faults, "ec2-errors")["state"], the(faults, "ec2-errors")["secondsLeft"]) == ("active", 10)

    hand.seconds = 12
    assert the(faults, "ec2-errors")["state"] == "recovering"
    eventually(lambda: the(faults, "ec2-errors")["waitsFor"] == activity[0], "what it waits for is known")

    hand.seconds, activity[0] = 47, ""
    eventually(lambda: the(faults, "ec2-errors")["state"] == "recovered", "its recovery is noted")
    assert the(faults, "ec2-errors")["recoverySeconds"] == 37
    hand.seconds = 100
    assert the(faults, "ec2-errors")["recoverySeconds"] == 37


def test_recovery_is_noted_although_the_cluster_could_not_be_read_before(
    hand: Hand, stopping: threading.Event
) -> None:
    away = [Transient("GET pods: refused")]

    def activity() -> str:
        if away:
            raise away[0]
        return ""

    faults = active(hand, stopping, activity)
    faults.start(faults_of("errors", ["ec2"]))
    hand.seconds = DEFAULT_SECONDS
    eventually(lambda: the(faults, "ec2-errors")["waitsFor"] == "GET pods: refused", "it is told")
    away.clear()
    eventually(lambda: the(faults, "ec2-errors")["state"] == "recovered", "its recovery is noted")


def test_a_fault_that_acts_does_so_again_until_its_end_and_counts(
    hand: Hand, stopping: threading.Event
) -> None:
    faults, acted = active(hand, stopping), []
    faults.acts = {FaultKind.POISONED: lambda fault: acted.append(fault.name) or 3}  # type: ignore[func-returns-value]
    faults.start(faults_of("poisoned", seconds=20))
    eventually(lambda: len(acted) == 1, "it acts at once")
    hand.seconds = 5
    eventually(lambda: len(acted) == 2, "it acts again")
    hand.seconds = 20
    eventually(lambda: the(faults, "lambda-poisoned")["state"] == "recovered", "it is over")
    assert (the(faults, "lambda-poisoned")["hits"], acted) == (6, ["lambda-poisoned"] * 2)
