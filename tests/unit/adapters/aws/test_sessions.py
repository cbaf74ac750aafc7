"""What a process asks of STS, so that it can work for each cluster under a session of its own."""

from __future__ import annotations

from datetime import timedelta

from tests.fakes.sts import ROLE, Process, asked_in, key_id

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
