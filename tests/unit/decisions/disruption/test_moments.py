"""When time alone lets a move continue, or lets a search find something else."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.moves import PROPOSED_WITHIN, READY_WITHIN, REMEMBERED
from nodesmith.decisions.disruption.search.search import next_change
from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.disruption import MOST_AN_HOUR
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.ledger.ledger import Departure
from nodesmith.model.ledger.moves import Move, MoveKind, Reason, Stage
from tests import builders
from tests.builders import NOW
from tests.objects.fleets import Worker, changed, fleet, pool, running, worker

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
QUIET = worker("a")


def last_pod_event(ago: timedelta, name: str = "a") -> Worker:
    return changed(worker(name), last_pod_event_at=NOW - ago)


def protected(value: str, **fields: Any) -> list[Any]:
    shape = replace(builders.shape(), annotations={DO_NOT_DISRUPT: value})
    return running(shape, {"a": 1}, started_at=NOW - MINUTE, **fields)


def with_ledger(inputs: Inputs, **fields: Any) -> Inputs:
    return replace(inputs, ledger=replace(inputs.ledger, **fields))


def test_there_is_no_next_change_if_nothing_is_due() -> None:
    assert next_change(fleet([QUIET], running(builders.shape(), {"a": 2}))) is None


def test_the_next_change_is_the_first_end_of_consolidate_after() -> None:
    workers = [last_pod_event(20 * SECOND), last_pod_event(10 * SECOND, "b"), worker("c")]
    assert next_change(fleet(workers, pools=[pool(after="30s")])) == NOW + 10 * SECOND


@pytest.mark.parametrize("of", [pool(after="Never"), pool(after="30s", replicas=1)])
def test_a_node_that_is_never_consolidated_has_no_next_change(of: dict[str, Any]) -> None:
    assert next_change(fleet([last_pod_event(20 * SECOND)], pools=[of])) is None


def test_the_end_of_a_pods_protection_is_a_change() -> None:
    assert next_change(fleet([QUIET], protected("5m"))) == NOW + 4 * MINUTE


def test_a_protection_that_is_over_or_unlimited_or_of_a_deleted_pod_is_no_change() -> None:
    pods = [*protected("1m"), *protected("true"), *protected("5m", deleting=True)]
    assert next_change(fleet([QUIET], pods)) is None


@pytest.mark.parametrize(
    ("schedule", "duration", "ends"),
    [
        ("0 9 * * *", "8h", 5 * HOUR),
        ("59 11 * * *", "1m", None),
        ("0 13 * * *", "1h", None),
        ("0 9-12 * * *", "90m", 90 * MINUTE),
        ("* * * * *", "2m", None),
    ],
    ids=["active", "just ended", "not begun yet", "one follows the other", "never ends"],
)
def test_a_budgets_window_ends_when_no_scheduled_duration_is_active(
    schedule: str, duration: str, ends: timedelta | None
) -> None:
    budgets = [{"nodes": "0", "schedule": schedule, "duration": duration}]
    assert next_change(fleet([QUIET], pools=[pool(budgets=budgets)])) == (ends and NOW + ends)


def departures(*minutes_ago: int) -> tuple[Departure, ...]:
    return tuple(Departure(f"gone-{ago}", "default", NOW - ago * MINUTE) for ago in minutes_ago)


def test_a_used_up_rate_allows_another_disruption_an_hour_after_the_oldest_one_counted() -> None:
    limited = pool()
    limited["metadata"]["annotations"] = {MOST_AN_HOUR: "2"}
    inputs = fleet([QUIET], pools=[limited])
    assert next_change(with_ledger(inputs, departures=departures(70, 50))) is None
    assert next_change(with_ledger(inputs, departures=departures(70, 50, 40))) == NOW + 10 * MINUTE
    assert next_change(with_ledger(inputs, departures=departures(50, 40, 30))) == NOW + 20 * MINUTE


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("unavailable", OfferingKey("spot", "m5.large", "us-east-1a")),
        ("nodepool_backoffs", "default"),
        ("move_backoffs", MoveKind("default", "Drifted")),
    ],
)
def test_the_end_of_a_back_off_is_a_change(kind: str, key: object) -> None:
    until: datetime = NOW + 2 * MINUTE
    assert next_change(with_ledger(fleet([QUIET]), **{kind: {key: Backoff(until, 1)}})) == until


@pytest.mark.parametrize(
    ("stage", "wait"),
    [
        (Stage.PROPOSED, PROPOSED_WITHIN),
        (Stage.REPLACING, READY_WITHIN),
        (Stage.ABANDONED, REMEMBERED),
        (Stage.ENDING, None),
    ],
)
def test_every_stage_with_a_deadline_has_a_next_change(stage: Stage, wait: timedelta | None) -> None:
    began = NOW - MINUTE
    move = Move("m", Reason.UNDERUTILIZED, (QUIET.claim.name,), stage, began, began)
    assert next_change(fleet([QUIET], moves=[move])) == (wait and began + wait)
