from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import boto3
import pytest

from nodesmith.model.times import parse_time
from nodesmith_cli.local import lineage
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud.queues import PolledQueues
from nodesmith_cli.local.cloud.traceheaders import trace_headers_are_kept
from nodesmith_cli.local.deployment import Deployment, deploy
from nodesmith_cli.local.eventsource import EventSource
from nodesmith_cli.local.functions import Function, environment, shipped
from nodesmith_cli.local.invoker import Invoker
from nodesmith_cli.local.queuetime import queues_run_on
from nodesmith_cli.local.sharedclients import SharedClients
from tests.account import strict_aws


@pytest.fixture
def clock() -> Iterator[LocalClock]:
    clock = LocalClock(1000)
    with strict_aws(), queues_run_on(clock):
        yield clock


def client(service: str) -> Any:
    return boto3.client(
        service, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )


@pytest.fixture
def deployment(clock: LocalClock) -> Deployment:  # noqa: ARG001 - moto must be there first
    return deploy(client, "us-east-1")


class Spy:
    """A function that remembers its batches, answers as told and may raise."""

    def __init__(self, fails: Sequence[str] = (), raises: bool = False) -> None:
        self.fails = fails
        self.raises = raises
        self.batches: list[list[str]] = []

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG002
        self.batches.append([record["body"] for record in event["Records"]])
        if self.raises:
            raise RuntimeError("a bug")
        bad = [r["messageId"] for r in event["Records"] if r["body"] in self.fails]
        return {"batchItemFailures": [{"itemIdentifier": message} for message in bad]}


def source(deployment: Deployment, spy: Spy, concern: str = "lifecycle") -> EventSource:
    return EventSource(
        PolledQueues(deployment.region), deployment.queue_urls[concern], Function(concern, spy)
    )


def send(deployment: Deployment, *bodies: str, concern: str = "lifecycle", delay: int = 0) -> None:
    for body in bodies:
        client("sqs").send_message(
            QueueUrl=deployment.queue_urls[concern], MessageBody=body, DelaySeconds=delay
        )


def waiting(url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def test_what_a_function_handled_is_deleted(deployment: Deployment) -> None:
    spy = Spy()
    send(deployment, "a", "b")

    assert source(deployment, spy).poll() == 2

    assert sorted(spy.batches[0]) == ["a", "b"]
    assert waiting(deployment.queue_urls["lifecycle"]) == 0


def test_only_the_failed_message_of_a_batch_comes_again_after_its_visibility_timeout(
    clock: LocalClock, deployment: Deployment
) -> None:
    spy = Spy(fails=["bad"])
    send(deployment, "good", "bad")
    feed = source(deployment, spy)
    feed.poll()

    assert feed.poll() == 0
    clock.sleep(361)
    assert feed.poll() == 1

    assert spy.batches[-1] == ["bad"]


@pytest.mark.parametrize(("recursive_loop", "runs"), [("Allow", 30), ("Terminate", 16)])
def test_a_local_function_that_wakes_itself_is_stopped_as_lambda_stops_it(
    deployment: Deployment, recursive_loop: lineage.RecursiveLoop, runs: int
) -> None:
    url, batches = deployment.queue_urls["lifecycle"], list[str]()
    with (
        environment({"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}),
        trace_headers_are_kept(),
    ):
        sqs = SharedClients().create_client("sqs", region_name=deployment.region, config=None)

        def wake_itself(event: Mapping[str, Any], context: Any) -> None:  # noqa: ARG001
            batches.append(event["Records"][0]["body"])
            sqs.send_message(QueueUrl=url, MessageBody="again")

        feed = EventSource(
            PolledQueues(deployment.region),
            url,
            Function("lifecycle", wake_itself),
            recursive_loop=recursive_loop,
        )
        send(deployment, "tick")
        for _ in range(30):
            feed.poll()

    assert len(batches) == runs
    assert waiting(deployment.dead_letter_urls["lifecycle"]) == (0 if runs == 30 else 1)


def test_a_function_that_gives_back_what_it_never_got_gets_its_whole_batch_again(
    clock: LocalClock, deployment: Deployment
) -> None:
    batches: list[int] = []

    def confused(event: Mapping[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001
        batches.append(len(event["Records"]))
        return {"batchItemFailures": [{"itemIdentifier": "another"}]}

    send(deployment, "a", "b")
    feed = EventSource(
        PolledQueues(deployment.region), deployment.queue_urls["lifecycle"], Function("lifecycle", confused)
    )

    feed.poll()
    clock.sleep(361)
    feed.poll()

    assert batches == [2, 2]


def test_a_function_that_raises_gets_its_whole_batch_again_and_the_invoker_lives(
    clock: LocalClock, deployment: Deployment
) -> None:
    spy = Spy(raises=True)
    send(deployment, "a", "b")
    feed = source(deployment, spy)

    feed.poll()
    clock.sleep(361)
    feed.poll()

    assert [sorted(batch) for batch in spy.batches] == [["a", "b"], ["a", "b"]]
    assert (feed.failures, feed.last_error) == (2, "RuntimeError: a bug")


def test_a_message_that_fails_ten_times_goes_to_the_dead_letters(
    clock: LocalClock, deployment: Deployment
) -> None:
    spy = Spy(fails=["poison"])
    send(deployment, "poison")
    feed = source(deployment, spy)

    for _ in range(11):
        feed.poll()
        clock.sleep(361)

    assert len(spy.batches) == 10
    assert waiting(deployment.queue_urls["lifecycle"]) == 0
    assert waiting(deployment.dead_letter_urls["lifecycle"]) == 1


def test_a_delayed_message_comes_when_its_delay_has_passed_on_the_clock(
    clock: LocalClock, deployment: Deployment
) -> None:
    send(deployment, "later", delay=900)
    feed = source(deployment, Spy())

    assert feed.poll() == 0
    clock.sleep(901)
    assert feed.poll() == 1


def test_news_of_an_instance_that_ends_are_routed_and_no_other(deployment: Deployment) -> None:
    detail = {"instance-id": "i-1", "state": "stopping"}
    entry = {
        "Source": "aws.ec2",
        "DetailType": "EC2 Instance State-change Notification",
        "Detail": json.dumps(detail),
    }
    spy = Spy()

    client("events").put_events(
        Entries=[entry, {**entry, "Detail": json.dumps({**detail, "state": "running"})}]
    )
    source(deployment, spy, "routing").poll()

    assert [[json.loads(body)["detail"] for body in batch] for batch in spy.batches] == [[detail]]


def test_dispatch_is_invoked_at_once_and_then_for_every_minute(
    clock: LocalClock, deployment: Deployment
) -> None:
    times: list[datetime] = []

    def dispatch(event: Mapping[str, Any], context: Any) -> None:  # noqa: ARG001
        times.append(parse_time(event["at"]))
        if len(times) == 2:
            raise RuntimeError("a bug")

    stopping = threading.Event()
    invoker = Invoker(deployment, {"dispatch": Function("dispatch", dispatch)}, clock, stopping)

    begun = clock.now()
    invoker.start()
    while len(times) < 5 and clock.now() - begun < timedelta(hours=5):
        clock.sleep(60)
    stopping.set()
    invoker.join()

    assert times[0] - begun < timedelta(minutes=1)
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=1)}


def test_the_examples_are_found() -> None:
    assert (shipped("_examples", "examples") / "express-test" / "nodepool.yaml").is_file()
