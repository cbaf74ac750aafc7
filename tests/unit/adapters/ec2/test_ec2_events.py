"""EventBridge events: the notices that they give, and the validation of their content."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.notices import InterruptionCause, Notice, read_event
from tests.builders import ACCOUNT, NOW, ec2_event, spot_warning, state_change

INSTANCE = "i-0123456789abcdef0"
RETIREMENT = {
    "service": "EC2",
    "eventTypeCategory": "scheduledChange",
    "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
    "statusCode": "upcoming",
    "startTime": "Sat, 28 Nov 2026 15:10:09 GMT",
    "affectedEntities": [{"entityValue": INSTANCE}, {"entityValue": "i-00000001"}],
}


NO_DATES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
"""Stand for a date that is not known. Time can be neither subtracted from the first nor added to the last."""


def read(body: str, now: datetime = NOW) -> tuple[Notice, ...]:
    return read_event(body, ACCOUNT, now)


def health(**detail: Any) -> str:
    return ec2_event("AWS Health Event", {**RETIREMENT, **detail}, source="aws.health")


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("EC2 Spot Instance Interruption Warning", InterruptionCause.SPOT),
        ("EC2 Capacity Reservation Instance Interruption Warning", InterruptionCause.RESERVATION),
        (
            "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
            InterruptionCause.RESERVATION,
        ),
    ],
)
def test_a_warning_ends_the_instance_two_minutes_after_it_was_sent(
    kind: str, cause: InterruptionCause
) -> None:
    body = ec2_event(kind, {"instance-id": INSTANCE, "instance-action": "terminate"})
    (notice,) = read(body, NOW + timedelta(seconds=20))
    assert (notice.cause, notice.instance_id) == (cause, INSTANCE)
    assert notice.until == NOW + timedelta(minutes=2)
    assert notice.message == "EC2 reclaims the instance at 2026-11-21T12:02:00Z"


@pytest.mark.parametrize(
    ("reported", "seconds"),
    [(30, 30), (300, 120), (-10, 120), (None, 120)],
    ids=["sooner", "later", "past", "none"],
)
def test_a_warning_with_an_earlier_end_is_believed(reported: int | None, seconds: int) -> None:
    ends = format_time(NOW + timedelta(seconds=reported)) if reported is not None else None
    detail = {"instance-id": INSTANCE, "instance-termination-time": ends}
    (notice,) = read(
        ec2_event("EC2 Interruptible Capacity Reservation Instance Interruption Warning", detail)
    )
    assert notice.until == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "kind", ["Capacity Block Reservation Expiration Warning", "Capacity Block Expiration Warning"]
)
@pytest.mark.parametrize(
    ("end", "minutes"), [("2026-11-21T12:41:00Z", 11), ("2026-11-22T12:00:00Z", 23.5 * 60), ("soon", 10)]
)
def test_an_expiring_capacity_block_loses_its_instances_half_an_hour_earlier(
    kind: str, end: str, minutes: float
) -> None:
    detail = {"capacity-reservation-id": "cr-0123456789abcdef0", "end-date": end}
    (notice,) = read(ec2_event(kind, detail))
    assert (notice.cause, notice.instance_id) == (InterruptionCause.EXPIRING, "")
    assert notice.reservation_id == "cr-0123456789abcdef0"
    assert notice.until == NOW + timedelta(minutes=minutes)


def test_an_expiry_without_a_reservation_is_rejected_with_what_was_found() -> None:
    body = ec2_event("Capacity Block Expiration Warning", {"capacity-reservation-id": "i-1"})
    with pytest.raises(Rejected, match="capacity-reservation-id': expected cr-…, found 'i-1'"):
        read(body)


def test_a_warning_from_the_future_leaves_at_most_two_minutes() -> None:
    (notice,) = read(spot_warning(INSTANCE, NOW + timedelta(days=1)))
    assert notice.until == NOW + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("stopping", InterruptionCause.STOPPED),
        ("stopped", InterruptionCause.STOPPED),
        ("shutting-down", InterruptionCause.TERMINATED),
        ("terminated", InterruptionCause.TERMINATED),
        ("pending", None),
        ("running", None),
        (7, None),
        (None, None),
    ],
)
def test_only_a_state_in_which_nothing_runs_is_a_notice(state: Any, cause: InterruptionCause | None) -> None:
    assert [notice.cause for notice in read(state_change(INSTANCE, state))] == ([cause] if cause else [])


def test_a_rebalance_recommendation_has_no_end() -> None:
    (notice,) = read(ec2_event("EC2 Instance Rebalance Recommendation", {"instance-id": INSTANCE}))
    assert (notice.cause, notice.until) == (InterruptionCause.REBALANCE, None)


def test_a_scheduled_change_is_a_notice_for_each_instance_with_its_date() -> None:
    notices = read(health())
    assert [notice.instance_id for notice in notices] == [INSTANCE, "i-00000001"]
    assert {notice.until for notice in notices} == {datetime(2026, 11, 28, 15, 10, 9, tzinfo=UTC)}


@pytest.mark.parametrize(
    "detail",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "issue"},
        {"statusCode": "closed"},
        {"affectedEntities": []},
        {"affectedEntities": None},
        {"affectedEntities": [None, {}, {"entityValue": 7}, {"entityValue": "vol-1"}]},
    ],
)
def test_other_aws_health_events_give_no_notices(detail: dict[str, Any]) -> None:
    assert read(health(**detail)) == ()


@pytest.mark.parametrize("start", [None, 7, "soon", "Sat, 99 Nov 2026 15:10:09 GMT", "", *NO_DATES])
def test_a_scheduled_change_without_a_readable_date_has_no_end(start: Any) -> None:
    assert read(health(startTime=start))[0].until is None


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ("", "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ("[]", "expected an object with the object 'detail'"),
        ('{"detail": 7}', "expected an object with the object 'detail'"),
        (ec2_event("EC2 Spot Instance Interruption Warning", {}, account="999"), "field 'account'"),
        (ec2_event("EC2 Spot Instance Interruption Warning", {}, account=["1"]), "field 'account'"),
        (ec2_event("Something new", {"instance-id": INSTANCE}), "found 'Something new' of source 'aws.ec2'"),
        (ec2_event("AWS Health Event", {}), "field 'detail-type'"),
        (ec2_event("AWS Health Event", {}, source={}), "field 'detail-type'"),
        (spot_warning("i-1"), "field 'detail.instance-id': expected i-…, found 'i-1'"),
        (ec2_event("EC2 Spot Instance Interruption Warning", {}), "field 'detail.instance-id'"),
        (ec2_event("EC2 Spot Instance Interruption Warning", {"instance-id": INSTANCE}, time=7), "'time'"),
        (json.dumps({**json.loads(spot_warning(INSTANCE)), "time": "0000"}), "field 'time'"),
    ],
)
def test_an_invalid_event_is_rejected_with_what_was_found(body: str, reported: str) -> None:
    with pytest.raises(Rejected, match=re.escape(reported)) as error:
        read(body)
    assert len(str(error.value)) < 500
