"""What a process asks of STS, so that it can work for each cluster under a session of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.adapters.aws.calls import transient_errors
from nodesmith.adapters.ec2.fleetcalls import FleetCalls, Templates
from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import Deferred
from tests.builders import NOW
from tests.fakes.sts import ROLE, Process, asked_in, key_id
from tests.objects.launching import plan

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def test_a_session_is_begun_when_it_is_first_needed_with_the_clusters_name_and_tags() -> None:
    process = Process()
    session = process.session("express")
    assert process.sts.asked == []

    assert key_id(session) == "key-1"
    assert process.sts.asked == [
        {
            "RoleArn": ROLE,
            "RoleSessionName": "express",
            "Tags": [
                {"Key": "nodesmith-cluster", "Value": "express"},
                {"Key": "nodesmith-vpc", "Value": "vpc-express"},
            ],
        }
    ]


def test_a_warm_run_asks_nothing_of_sts() -> None:
    process = Process()
    session = process.session("express")
    keys = {key_id(session)}
    for _ in range(44):
        process.now += MINUTE
        keys.add(key_id(session))
    assert keys == {"key-1"}


def test_a_session_is_renewed_a_quarter_of_an_hour_before_it_ends() -> None:
    process = Process()
    session = process.session("express")
    key_id(session)
    process.now += 46 * MINUTE
    assert key_id(session) == "key-2"


def test_a_process_that_looks_every_minute_asks_at_most_three_times_in_two_hours() -> None:
    assert asked_in(DAY, every=MINUTE) <= 12 * 3


def test_each_cluster_has_its_own_session_in_a_process() -> None:
    assert asked_in(DAY, "express", "other", every=MINUTE) == 2 * asked_in(DAY, every=MINUTE)


def test_a_process_that_looks_seldom_asks_no_oftener_than_it_looks() -> None:
    assert asked_in(DAY, every=2 * timedelta(hours=1)) == 12


def test_a_session_that_cannot_be_renewed_in_time_is_used_until_it_has_to_be() -> None:
    process = Process()
    session = process.session("express")
    key_id(session)
    process.sts.is_away = True
    process.now += 46 * MINUTE
    assert key_id(session) == "key-1"
    process.sts.is_away = False
    assert key_id(session) == "key-2"


def test_a_call_for_which_there_is_no_session_says_so_and_may_be_made_again() -> None:
    process = Process()
    process.sts.denies = True
    ec2: Any = process.session("express").create_client("ec2", region_name="us-east-1")
    denied = f"ec2:DescribeVpcs: SessionFailed: sts:AssumeRole {ROLE}: AccessDenied: User is not authorized"
    with pytest.raises(Transient, match=denied), transient_errors("ec2:DescribeVpcs"):
        ec2.describe_vpcs()


def test_a_launch_for_which_there_is_no_session_is_no_refusal_of_what_it_asks_for() -> None:
    process = Process()
    process.sts.denies = True
    ec2: Any = process.session("express").create_client("ec2", region_name="us-east-1")
    templates = Templates(lambda _: ec2, lambda: NOW)
    calls = FleetCalls(lambda _: ec2, "express", templates, lambda: NOW, lambda _: ())
    request, _ = plan("m5.large")
    (outcome,) = calls.launch([request], lambda call, batches: [call(batch) for batch in batches])
    assert isinstance(outcome, Deferred)
    assert (outcome.reason, outcome.nothing_begun) == ("SessionFailed", True)
