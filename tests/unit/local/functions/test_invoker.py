from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import boto3
import pytest

from nodesmith.model.apimachinery.times import parse_time
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_formats.shipped import shipped
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.deployment import Deployment, deploy
from nodesmith_local.functions.eventsource import EventSource
from nodesmith_local.functions.invoker import Invoker
from nodesmith_local.functions.lambdas import Lambdas
from nodesmith_local.functions.loading import Function, environment
from nodesmith_local.functions.queues import PolledQueues
from nodesmith_local.functions.sharedclients import SharedClients
from nodesmith_local.functions.sqsclock import queues_run_on
from nodesmith_local.functions.traceheaders import trace_headers_are_kept
from tests.aws.account import strict_aws
from tests.patience import eventually


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
def deployment(clock: LocalClock) -> Deployment:  # noqa: ARG001 - moto must start first
    return deploy(client, "us-east-1")


class Spy:
    """A function that records its batches, answers as configured and may raise."""

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


def source(deployment: Deployment, spy: Spy) -> EventSource:
    return EventSource(PolledQueues(deployment.region), deployment.queue_url, Function("dispatch", spy))


def send(deployment: Deployment, *bodies: str, delay: int = 0) -> None:
    for body in bodies:
        client("sqs").send_message(QueueUrl=deployment.queue_url, MessageBody=body, DelaySeconds=delay)


def waiting(url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def test_messages_that_a_function_handled_are_deleted(deployment: Deployment) -> None:
    spy = Spy()
    send(deployment, "a", "b")

    assert source(deployment, spy).poll() == 2

    assert sorted(spy.batches[0]) == ["a", "b"]
    assert waiting(deployment.queue_url) == 0


def test_only_the_failed_message_of_a_batch_is_redelivered_after_its_visibility_timeout(
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
    deployment: Deployment, recursive_loop: loopdetection.RecursiveLoop, runs: int
) -> None:
    url, batches = deployment.queue_url, list[str]()
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
            Function("dispatch", wake_itself),
            recursive_loop=recursive_loop,
        )
        send(deployment, "tick")
        for _ in range(30):
            feed.poll()

    assert len(batches) == runs
    assert waiting(deployment.dead_letters_url) == (0 if runs == 30 else 1)


def test_reporting_an_unknown_message_as_failed_redelivers_the_whole_batch(
    clock: LocalClock, deployment: Deployment
) -> None:
    batches: list[int] = []

    def confused(event: Mapping[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001
        batches.append(len(event["Records"]))
        return {"batchItemFailures": [{"itemIdentifier": "another"}]}

    send(deployment, "a", "b")
    feed = EventSource(PolledQueues(deployment.region), deployment.queue_url, Function("dispatch", confused))

    feed.poll()
    clock.sleep(361)
    feed.poll()

    assert batches == [2, 2]


def test_a_function_that_raises_gets_its_whole_batch_again_and_the_invoker_goes_on(
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
    assert waiting(deployment.queue_url) == 0
    assert waiting(deployment.dead_letters_url) == 1


def test_a_delayed_message_comes_when_its_delay_has_passed_on_the_clock(
    clock: LocalClock, deployment: Deployment
) -> None:
    send(deployment, "later", delay=900)
    feed = source(deployment, Spy())

    assert feed.poll() == 0
    clock.sleep(901)
    assert feed.poll() == 1


class Running:
    """The functions of a deployment, running. `run` is what each handler does."""

    def __init__(self, deployment: Deployment, clock: LocalClock) -> None:
        self._deployment, self._clock = deployment, clock
        self._stopping = threading.Event()
        self.events: dict[str, list[Mapping[str, Any]]] = {}
        self.lambdas = Lambdas()
        self.invoker: Invoker

    @contextmanager
    def functions(self, *concerns: str, fails: Callable[[int], bool] = lambda _: False) -> Iterator[None]:
        """Let functions record their events; those with a number for which `fails` is true raise."""

        def remembering(concern: str) -> Function:
            seen = self.events.setdefault(concern, [])

            def handle(event: Mapping[str, Any], context: Any) -> None:  # noqa: ARG001
                seen.append(event)
                if fails(len(seen)):
                    raise RuntimeError("a bug")

            return Function(concern, handle)

        made = {concern: remembering(concern) for concern in concerns}
        self.invoker = Invoker(self._deployment, made, self.lambdas, self._clock, self._stopping)
        with self.lambdas.answering():
            self.invoker.start()
            try:
                yield
            finally:
                self._stopping.set()
                self.invoker.join()


@pytest.fixture
def running(deployment: Deployment, clock: LocalClock) -> Running:
    return Running(deployment, clock)


def test_only_events_about_ending_instances_are_routed(running: Running) -> None:
    detail = {"instance-id": "i-1", "state": "stopping"}
    entry = {
        "Source": "aws.ec2",
        "DetailType": "EC2 Instance State-change Notification",
        "Detail": json.dumps(detail),
    }
    with running.functions("routing"):
        client("events").put_events(
            Entries=[{**entry, "Detail": json.dumps({**detail, "state": "running"})}, entry]
        )
        routed = running.events["routing"]
        eventually(lambda: any("detail" in event for event in routed))

    assert [event["detail"] for event in routed if event != {"reason": "tick"}] == [detail]


def test_a_function_is_invoked_by_its_name_and_alias(running: Running) -> None:
    hints = {"messages": [{"cluster": "prod", "reason": "pods are pending"}]}
    with running.functions("provisioning"):
        client("lambda").invoke(
            FunctionName="nodesmith-provisioning",
            Qualifier="live",
            InvocationType="Event",
            Payload=json.dumps(hints),
        )
        eventually(lambda: running.events["provisioning"] == [hints])


def test_messages_that_have_waited_go_to_dispatch(running: Running, deployment: Deployment) -> None:
    with running.functions("dispatch"):
        send(deployment, "later")
        reported = running.events["dispatch"]
        eventually(lambda: any("Records" in event for event in reported))

    (batch,) = [event["Records"] for event in reported if "Records" in event]
    assert [record["body"] for record in batch] == ["later"]


def test_an_event_that_always_fails_ends_in_the_dead_letters(
    running: Running, deployment: Deployment
) -> None:
    with running.functions("repair", fails=lambda _: True):
        client("lambda").invoke(
            FunctionName="nodesmith-repair", Qualifier="live", InvocationType="Event", Payload=b"{}"
        )
        eventually(lambda: waiting(deployment.dead_letters_url) == 1)
        assert running.invoker.failures_by_function() == [
            "function repair failed 3 times, last with RuntimeError: a bug"
        ]
    (message,) = client("sqs").receive_message(QueueUrl=deployment.dead_letters_url)["Messages"]
    context = json.loads(message["Body"])["requestContext"]
    assert context["functionArn"].endswith(":function:nodesmith-repair:live")
    assert context["condition"] == "RetriesExhausted"


def test_only_dispatch_and_the_catalogue_are_scheduled_dispatch_at_once_and_every_minute(
    running: Running, clock: LocalClock
) -> None:
    begun = clock.now()
    with running.functions("dispatch", "routing"):
        eventually(lambda: len(running.events["dispatch"]) >= 6)

    times = [parse_time(event["at"]) for event in running.events["dispatch"]]
    assert times[0] - begun < timedelta(minutes=1)
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=1)}
    assert running.events["routing"] == []


def test_lambda_retries_a_failed_tick_and_the_next_tick_still_comes(running: Running) -> None:
    with running.functions("dispatch", fails=lambda number: number == 2):
        eventually(lambda: len(running.events["dispatch"]) >= 6)

    times = [parse_time(event["at"]) for event in running.events["dispatch"]]
    assert times.count(times[1]) == 2
    assert len(set(times)) == len(times) - 1


def test_the_examples_are_found() -> None:
    assert (shipped("_examples", "examples") / "express-test" / "nodepool.yaml").is_file()
