"""Notices derived from EC2's own state of instances, in case events are lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from nodesmith.adapters.ec2.instances import current_notices
from nodesmith.errors import Transient
from nodesmith.model.ec2.notices import InterruptionCause

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MARKED_AND_OURS = {
    "Filters": [
        {"Name": "state", "Values": ["active"]},
        {"Name": "status-code", "Values": ["marked-for-stop", "marked-for-termination"]},
        {"Name": "tag:nodesmith.dev/managed-by", "Values": ["express"]},
    ],
    "MaxResults": 1000,
}
OURS, OTHER = "i-0123456789abcdef0", "i-00000000000000001"


def asked(
    instances: list[Mapping[str, Any]] | None = None,
    requests: list[Mapping[str, Any]] | None = None,
    statuses: list[Mapping[str, Any]] | None = None,
    unwell: list[Mapping[str, Any]] | None = None,
    unwell_below: list[Mapping[str, Any]] | None = None,
) -> list[tuple[InterruptionCause, str, datetime | None]]:
    """Return the notices for these EC2 responses."""
    ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(ec2) as stub:
        stub.add_response("describe_instances", {"Reservations": [{"Instances": instances or []}]})
        found_requests = {"SpotInstanceRequests": requests or []}
        stub.add_response("describe_spot_instance_requests", found_requests, MARKED_AND_OURS)
        for answer in (statuses, unwell, unwell_below):
            stub.add_response("describe_instance_status", {"InstanceStatuses": answer or []})
        found = current_notices(ec2, "express", frozenset({OURS}), NOW)
        stub.assert_no_pending_responses()
    return [(notice.cause, notice.instance_id, notice.until) for notice in found]


def instance(state: str) -> dict[str, Any]:
    return {
        "InstanceId": OURS,
        "InstanceType": "m5.large",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "ImageId": "ami-1",
        "State": {"Name": state},
        "LaunchTime": NOW,
    }


def spot_request(code: str, of: str = OURS) -> dict[str, Any]:
    return {"InstanceId": of, "State": "active", "Status": {"Code": code, "UpdateTime": NOW}}


def event(description: str = "retires", ahead: timedelta | None = timedelta(days=2)) -> dict[str, Any]:
    known = {"Code": "instance-retirement", "Description": description}
    return {**known, "NotBefore": NOW + ahead} if ahead is not None else known


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("stopped", InterruptionCause.STOPPED),
        ("shutting-down", InterruptionCause.TERMINATED),
        ("terminated", InterruptionCause.TERMINATED),
    ],
)
def test_an_instance_that_is_not_running_is_reported(state: str, cause: InterruptionCause) -> None:
    assert asked([instance(state)]) == [(cause, OURS, NOW)]


def test_a_healthy_instance_yields_no_notice() -> None:
    assert asked([instance("running")], [], [{"InstanceId": OURS}]) == []


@pytest.mark.parametrize("code", ["marked-for-termination", "marked-for-stop"])
def test_a_marked_spot_request_is_a_two_minute_warning_for_our_instances_only(code: str) -> None:
    found = asked(requests=[spot_request(code), spot_request(code, OTHER)])
    assert found == [(InterruptionCause.SPOT, OURS, NOW + timedelta(minutes=2))]


def test_the_first_pending_scheduled_event_is_reported() -> None:
    events = [
        event("[Completed] reboot", timedelta(0)),
        event("[Canceled] reboot", timedelta(0)),
        event(ahead=timedelta(days=9)),
        event(),
    ]
    status = {"InstanceId": OURS, "Events": events}
    others = {"InstanceId": OTHER, "Events": [event()]}
    assert asked(statuses=[status, others]) == [(InterruptionCause.SCHEDULED, OURS, NOW + timedelta(days=2))]
    assert asked(statuses=[{"InstanceId": OURS, "Events": events[:2]}]) == []


def test_an_event_without_a_date_is_reported_without_one() -> None:
    found = asked(statuses=[{"InstanceId": OURS, "Events": [event(ahead=None)]}])
    assert found == [(InterruptionCause.SCHEDULED, OURS, None)]


def failing(part: str, minutes: float, status: str = "failed", of: str = OURS) -> dict[str, Any]:
    since = NOW - timedelta(minutes=minutes)
    details = [{"Name": "reachability", "Status": status, "ImpairedSince": since}]
    return {"InstanceId": of, part: {"Status": "impaired", "Details": details}}


def test_an_instance_that_has_failed_ec2s_checks_for_two_minutes_is_reported() -> None:
    warned = [(InterruptionCause.IMPAIRED, OURS, NOW + timedelta(minutes=2))]
    assert asked(unwell=[failing("InstanceStatus", 2), failing("InstanceStatus", 9, of=OTHER)]) == warned
    assert asked(unwell_below=[failing("SystemStatus", 30)]) == warned


def test_a_check_that_failed_just_now_or_has_recovered_is_not_reported() -> None:
    recovered = failing("SystemStatus", 30, status="passed")
    assert asked(unwell=[failing("InstanceStatus", 1.9)], unwell_below=[recovered]) == []


def test_an_unavailable_ec2_is_transient() -> None:
    ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_instances", "RequestLimitExceeded", http_status_code=503)
        with pytest.raises(Transient, match="ec2:DescribeInstances"):
            current_notices(ec2, "express", frozenset({OURS}), NOW)


def test_a_denied_call_keeps_no_notice_back_that_others_have_found() -> None:
    ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_instances", "UnauthorizedOperation", http_status_code=403)
        requests = {"SpotInstanceRequests": [spot_request("marked-for-termination")]}
        stub.add_response("describe_spot_instance_requests", requests)
        for _ in range(2):
            stub.add_client_error("describe_instance_status", "UnauthorizedOperation", http_status_code=403)
        (notice,) = current_notices(ec2, "express", frozenset({OURS}), NOW)
        stub.assert_no_pending_responses()
    assert (notice.cause, notice.instance_id) == (InterruptionCause.SPOT, OURS)


def test_a_call_that_is_throttled_is_followed_by_no_other() -> None:
    ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(ec2) as stub:
        stub.add_response("describe_instances", {"Reservations": [{"Instances": [instance("stopped")]}]})
        stub.add_client_error("describe_spot_instance_requests", "RequestLimitExceeded", http_status_code=503)
        (notice,) = current_notices(ec2, "express", frozenset({OURS}), NOW)
    assert notice.cause is InterruptionCause.STOPPED
