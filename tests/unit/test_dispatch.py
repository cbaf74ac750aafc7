from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from nodesmith.adapters.ticks import SqsTicks
from nodesmith.controllers.dispatch import Dispatch, due_concerns, send_ticks
from nodesmith.errors import Transient
from nodesmith.model.events import TICK_MINUTES, Concern, parse_message
from nodesmith.regionruntime import scheduled_at
from nodesmith.registration import Registration
from nodesmith.settings import TALKING
from nodesmith_cli.local.deployment import deploy
from tests.account import REGION, client, strict_aws

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
CLUSTERS = [Registration(name, "vpc-01234567", ("nodes",)) for name in ("east", "west")]


class Registered:
    def __init__(self, clusters: Sequence[Registration], **faults: str) -> None:
        self.clusters, self.faults = clusters, faults

    def get(self, cluster: str) -> Registration:
        return next(each for each in self.clusters if each.cluster == cluster)

    def all(self) -> tuple[Sequence[Registration], Mapping[str, str]]:
        return self.clusters, self.faults


class Sent:
    def __init__(self, *away: Concern) -> None:
        self.away = away
        self.ticks: list[tuple[Concern, list[str]]] = []

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        if concern in self.away:
            raise Transient("SQS is away")
        self.ticks.append((concern, [each.cluster for each in clusters]))


def test_each_concern_looks_as_often_as_it_should() -> None:
    hour = [concern for minute in range(60) for concern in due_concerns(NOON + timedelta(minutes=minute))]

    assert {concern: hour.count(concern) for concern in TICK_MINUTES} == {
        concern: 60 // minutes for concern, minutes in TICK_MINUTES.items()
    }


def test_every_cluster_that_can_be_read_is_ticked_and_the_others_are_told_of() -> None:
    sent = Sent()

    report = send_ticks(Dispatch(Registered(CLUSTERS, broken="no JSON"), sent), NOON)

    assert dict(sent.ticks) == {concern: ["east", "west"] for concern in TICK_MINUTES}
    assert report.faults == {"broken": "no JSON"}
    assert report.counts["ClustersServed"] == 2


def test_a_queue_that_is_away_does_not_keep_the_others_from_their_ticks() -> None:
    sent = Sent(Concern.PROVISIONING)

    with pytest.raises(Transient, match="SQS is away"):
        send_ticks(Dispatch(Registered(CLUSTERS), sent), NOON)

    assert {concern for concern, _ in sent.ticks} == TICK_MINUTES.keys() - {Concern.PROVISIONING}


def test_a_cluster_in_a_vpc_that_is_not_deployed_does_not_keep_the_others_from_their_ticks() -> None:
    with strict_aws():
        deployment = deploy(client, REGION)
        lost = Registration("lost", "vpc-01234567", ("nodes",), reached_from="nowhere")
        ticks = SqsTicks(client("sqs"), deployment.queues_url)

        report = send_ticks(Dispatch(Registered([lost, *CLUSTERS]), ticks), NOON)

        for concern in TICK_MINUTES:
            url = deployment.queue_urls[concern]
            found = client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
            told = {parse_message(message["Body"]).cluster for message in found}
            assert told - {"lost"} == {"east", "west"}
    assert len(report.rejected) == len(TALKING)
    assert all("-nowhere-" in why and "does not exist" in why for why in report.rejected)


def test_a_region_without_clusters_is_left_alone() -> None:
    sent = Sent()

    send_ticks(Dispatch(Registered([]), sent), NOON)

    assert sent.ticks == []


def test_the_minute_is_the_one_of_the_schedule_however_late_the_function_runs() -> None:
    assert scheduled_at({"at": "2026-11-25T12:00:00Z"}) == NOON


@pytest.mark.parametrize("event", [{}, {"at": "<aws.scheduler.scheduled-time>"}, {"at": 7}])
def test_an_invocation_by_hand_goes_by_the_clock(event: dict[str, object]) -> None:
    assert abs(scheduled_at(event) - datetime.now(UTC)) < timedelta(minutes=1)


def test_whoever_talks_to_an_api_server_is_ticked() -> None:
    assert set(TALKING) <= TICK_MINUTES.keys()
