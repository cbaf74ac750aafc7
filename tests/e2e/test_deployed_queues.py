"""Queues, mappings and schedules as the template has them, and faulty queues, with functions that are played."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import boto3
import pytest

from nodesmith.controllers.letters import Letter, Report
from nodesmith.errors import Transient
from nodesmith.handlers import noticing
from nodesmith.model.events import Concern, PassedEvent
from nodesmith.parts import Parts
from nodesmith.registration import Registration
from nodesmith.settings import function_name
from nodesmith_cli.local import lineage
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud.queues import PolledQueues
from nodesmith_cli.local.cloud.traceheaders import trace_headers_are_kept
from nodesmith_cli.local.deployment import CONCERNS, register
from nodesmith_cli.local.eventsource import EventSource
from nodesmith_cli.local.invoker import LONGEST_POLL_SECONDS, EventSources
from nodesmith_cli.local.queuetime import queues_run_on
from tests.account import strict_aws
from tests.e2e.assembled import NAME, QUEUE, REGION, Edit, changed, region_template, unchanged
from tests.e2e.deployed import Faults, resources
from tests.e2e.deployed.assembly import Assembly
from tests.e2e.deployed.faults import faulty_queues
from tests.e2e.deployed.functions import InvocationFailed
from tests.e2e.deployed.mappings import event_sources, schedules
from tests.infra.templates import Template
from tests.patience import eventually

MAPPING = "AWS::Lambda::EventSourceMapping"
FUNCTION = "AWS::Lambda::Function"
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


class Spy:
    """A function that remembers its batches, gives some messages back, and takes its time."""

    concern = "lifecycle"

    def __init__(self, gives_back: str = "", takes_seconds: float = 0) -> None:
        self.gives_back, self.takes_seconds = gives_back, takes_seconds
        self.batches: list[list[str]] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, event: Mapping[str, Any]) -> Any:
        with self._lock:
            self.batches.append([record["body"] for record in event["Records"]])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.takes_seconds)
        with self._lock:
            self.at_once -= 1
        failed = [r["messageId"] for r in event["Records"] if r["body"] == self.gives_back]
        return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


class SelfWaker(Spy):
    """A function that sends itself a message in each run, with the trace header of the invocation, as in Lambda."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch

    def __call__(self, event: Mapping[str, Any]) -> Any:
        url = client("sqs").get_queue_url(QueueName="nodesmith-lifecycle")["QueueUrl"]
        with self._monkeypatch.context() as environment:
            environment.setenv("AWS_LAMBDA_FUNCTION_NAME", self.concern)
            environment.setenv("_X_AMZN_TRACE_ID", lineage.of_event(event))
            client("sqs").send_message(QueueUrl=url, MessageBody="again")
        return super().__call__(event)


def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION, aws_access_key_id="local", aws_secret_access_key="local")


class Queues:
    """A template's queues, with a spy for one concern."""

    def __init__(self, template: Template, spy: Spy, clock: LocalClock) -> None:
        self.spy = spy
        self.name = function_name(spy.concern)
        resources.make("region", template, client, REGION)
        self.sqs = client("sqs")
        mappings = template.of_type("Lambda::EventSourceMapping")
        only = {id_: each for id_, each in mappings.items() if each["FunctionName"] == self.name}
        kept = {**{i: r for i, r in template.resources.items() if i not in mappings}}
        kept |= {id_: template.resources[id_] for id_ in only}
        functions: Any = {spy.concern: spy}
        sources = event_sources(
            replace(template, resources=kept), functions, lambda _: PolledQueues(REGION), self.url, clock
        )
        self.source: EventSource = sources[spy.concern]

    def url(self, arn: str) -> str:
        return str(self.sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"])

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url(self.name), MessageBody=body)

    def waiting(self, suffix: str = "", kinds: Sequence[str] = ("", "NotVisible", "Delayed")) -> int:
        names = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
        url = self.url(f"{self.name}{suffix}")
        found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@pytest.fixture
def clock() -> Iterator[LocalClock]:
    clock = LocalClock(1000)
    with strict_aws(), queues_run_on(clock):
        yield clock


class Hand:
    """Moves a clock that stands still otherwise."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = LocalClock(monotonic=lambda: self.seconds)


@pytest.fixture
def hand() -> Iterator[Hand]:
    hand = Hand()
    with strict_aws(), queues_run_on(hand.clock), trace_headers_are_kept():
        yield hand


def test_a_batch_is_as_large_as_the_mapping_says(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    queues = Queues(region_template(assembly, changed(MAPPING, "lifecycle", BatchSize=2)), spy, clock)
    queues.send("a", "b", "c")

    queues.source.poll()
    queues.source.poll()

    assert sorted(map(len, spy.batches)) == [1, 2]


def test_a_batching_window_collects_what_comes_within_it(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    window = changed(MAPPING, "lifecycle", MaximumBatchingWindowInSeconds=1000)
    hidden = changed(QUEUE, "lifecycleQueue", VisibilityTimeout=43_200)
    queues = Queues(region_template(assembly, lambda text: hidden(window(text))), spy, clock)
    queues.send("a")
    poll = threading.Thread(target=queues.source.poll)
    poll.start()
    eventually(lambda: queues.waiting(kinds=("",)) == 0)
    queues.send("b")
    poll.join()

    assert spy.batches == [["a", "b"]]


def test_what_a_function_gives_back_comes_again_when_the_queue_says_so(
    assembly: Assembly, hand: Hand
) -> None:
    spy = Spy(gives_back="bad")
    queues = Queues(region_template(assembly), spy, hand.clock)
    queues.send("good", "bad")

    queues.source.poll()
    hand.seconds += 359
    assert queues.source.poll() == 0
    hand.seconds += 2
    queues.source.poll()

    assert [sorted(batch) for batch in spy.batches] == [["bad", "good"], ["bad"]]


def test_without_report_batch_item_failures_what_is_given_back_is_lost(
    assembly: Assembly, clock: LocalClock
) -> None:
    spy = Spy(gives_back="bad")
    edit = changed(MAPPING, "lifecycle", FunctionResponseTypes=None)
    queues = Queues(region_template(assembly, edit), spy, clock)
    queues.send("bad")

    queues.source.poll()

    assert queues.waiting() == 0


class Failing(Spy):
    """Interruption in the frame of all functions; its first runs fail, each at the time-out where it `hangs`."""

    concern = "interruption"

    def __init__(self, hand: Hand, fails: Fails, times: int = 3) -> None:
        super().__init__()
        self._hand, self._fails, self._left = hand, fails, times
        self.served: list[float] = []
        self._handle = noticing(Parts(Concern.INTERRUPTION), lambda own: self._run)  # noqa: ARG005

    def __call__(self, event: Mapping[str, Any]) -> Any:
        if self._left and self._fails == "hangs":
            self._left -= 1
            self._hand.seconds += next(c.timeout_seconds for c in CONCERNS if c.name == self.concern)
            raise InvocationFailed("Sandbox.Timedout")
        return self._handle(event, None)

    def _run(self, letters: Sequence[Letter]) -> Report:
        if not self._left:
            self.served.append(self._hand.seconds)
            return Report()
        self._left -= 1
        if self._fails == "raises":
            raise Transient("DynamoDB is away")
        return Report(failed=[letter.id for letter in letters])


Fails = Literal["raises", "gives back", "hangs"]


@pytest.mark.parametrize(("fails", "within_seconds"), [("raises", 30), ("gives back", 30), ("hangs", 100)])
def test_a_notice_whose_first_three_attempts_fail_is_served_before_ec2_takes_the_instance(
    assembly: Assembly,
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
    fails: Fails,
    within_seconds: float,
) -> None:
    for name, value in {
        "AWS_REGION": REGION,
        "TABLE_NAME": "nodesmith",
        "BUCKET_NAME": "nodesmith",
        "QUEUES_URL": f"https://sqs.{REGION}.amazonaws.com/123456789012",
    }.items():
        monkeypatch.setenv(name, value)
    register(client, Registration(NAME, "vpc-01234567", ("nodes",)))
    failing = Failing(hand, fails)
    queues = Queues(
        region_template(assembly, changed(MAPPING, "interruption", ScalingConfig=None)), failing, hand.clock
    )
    queues.source.mapped = replace(
        queues.source.mapped, window_seconds=0
    )  # the clock stands still while it waits
    queues.send(PassedEvent(NAME, "notice").to_json())
    while not failing.served and hand.seconds < 600:
        queues.source.poll()
        hand.seconds += 1

    assert failing.served[0] <= within_seconds
    assert (queues.waiting(), queues.waiting("-again"), queues.waiting("-dead")) == (0, 0, 0)


@pytest.mark.parametrize("receives", [10, 2])
def test_a_message_goes_to_the_dead_letters_after_as_many_receives_as_the_queue_allows(
    assembly: Assembly, hand: Hand, receives: int
) -> None:
    dead = f"arn:aws:sqs:{REGION}:123456789012:nodesmith-lifecycle-dead"
    policy = {"deadLetterTargetArn": dead, "maxReceiveCount": receives}
    edit = unchanged if receives == 10 else changed(QUEUE, "lifecycleQueue", RedrivePolicy=policy)
    spy = Spy(gives_back="poison")
    queues = Queues(region_template(assembly, edit), spy, hand.clock)
    queues.send("poison")

    for _ in range(receives + 1):
        queues.source.poll()
        hand.seconds += 361

    assert len(spy.batches) == receives
    assert (queues.waiting(), queues.waiting("-dead")) == (0, 1)


def test_a_function_that_says_so_may_wake_itself_as_often_as_it_likes(
    assembly: Assembly, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = Queues(region_template(assembly), SelfWaker(monkeypatch), hand.clock)
    queues.send("tick")
    for _ in range(40):
        queues.source.poll()

    assert len(queues.spy.batches) == 40
    assert (queues.waiting(), queues.waiting("-dead")) == (1, 0)


def test_a_chain_of_16_runs_ends_among_the_dead_letters_where_a_function_says_nothing(
    assembly: Assembly, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = changed(FUNCTION, "lifecycle", RecursiveLoop=None)
    queues = Queues(region_template(assembly, silent), SelfWaker(monkeypatch), hand.clock)
    queues.send("tick")
    for _ in range(40):
        queues.source.poll()

    assert len(queues.spy.batches) == 16
    assert (queues.waiting(), queues.waiting("-dead")) == (0, 1)


def test_a_chain_of_its_own_begins_with_each_message_that_no_function_has_sent(
    assembly: Assembly, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = changed(FUNCTION, "lifecycle", RecursiveLoop=None)
    queues = Queues(region_template(assembly, silent), SelfWaker(monkeypatch), hand.clock)
    for _ in range(2):
        queues.send("tick")
        for _ in range(20):
            queues.source.poll()

    assert len(queues.spy.batches) == 32


@pytest.mark.parametrize("allowed", [2, 3])
def test_no_more_invocations_are_under_way_than_the_mapping_allows(
    assembly: Assembly, clock: LocalClock, allowed: int
) -> None:
    spy = Spy(takes_seconds=0.3)
    edit = changed(MAPPING, "lifecycle", BatchSize=1, ScalingConfig={"MaximumConcurrency": allowed})
    queues = Queues(region_template(assembly, edit), spy, clock)
    queues.send(*"abcdefgh")
    stopping = threading.Event()
    polling = EventSources({"lifecycle": queues.source}, (), clock, stopping)

    polling.start()
    eventually(lambda: len(spy.batches) == 8)
    stopping.set()
    polling.join()

    assert spy.most_at_once == allowed


def test_whoever_waits_for_messages_hears_at_once_that_it_is_to_stop(assembly: Assembly) -> None:
    clock, stopping = LocalClock(), threading.Event()
    with strict_aws(), queues_run_on(clock, stopping):
        spy = Spy()
        queues = Queues(region_template(assembly), spy, clock)
        polling = EventSources({"lifecycle": queues.source}, (), clock, stopping)
        polling.start()
        queues.send("a")
        eventually(lambda: len(spy.batches) == 1)
        began = time.monotonic()

        stopping.set()
        polling.join()

        assert time.monotonic() - began < LONGEST_POLL_SECONDS / 2


def received(queues: Queues, faults: Faults, *bodies: str) -> list[str]:
    """Send to a faulty queue and give what comes out of it, in order."""
    queues.spy.batches.clear()
    with faulty_queues(faults, {"nodesmith-lifecycle"}):
        queues.send(*bodies)
    while queues.waiting():
        queues.source.poll()
    return [body for batch in queues.spy.batches for body in batch]


def test_a_faulty_queue_delivers_everything_twice(assembly: Assembly, clock: LocalClock) -> None:
    queues = Queues(region_template(assembly), Spy(), clock)
    assert sorted(received(queues, Faults(duplicate=True), *"abc")) == list("aabbcc")


def test_a_shuffled_queue_delivers_in_the_order_of_its_seed(assembly: Assembly, clock: LocalClock) -> None:
    queues = Queues(region_template(assembly), Spy(), clock)
    orders = [received(queues, Faults(seed=seed, shuffle=True), *"abcdefg") for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list("abcdefg")


def test_schedules_invoke_functions_as_often_and_with_what_the_template_says(assembly: Assembly) -> None:
    invoked: dict[str, Mapping[str, Any]] = {}

    def every_seconds(edit: Edit) -> dict[str, float]:
        found = list(schedules(region_template(assembly, edit), invoked.__setitem__))
        for schedule in found:
            schedule.invoke(NOON)
        return {schedule.name: schedule.every_seconds for schedule in found}

    now = every_seconds(unchanged)
    rare = every_seconds(
        changed("AWS::Scheduler::Schedule", "Tickerdispatch", ScheduleExpression="rate(2 hours)")
    )
    assert now == {"dispatch": 60, "catalog": 3600, "routing": 300}
    assert rare == {**now, "dispatch": 7200}
    assert invoked["dispatch"] == {"why": "tick", "at": "2026-11-25T12:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "named", "property_"),
    [(MAPPING, "lifecycle", "FilterCriteria"), (QUEUE, "lifecycleQueue", "FifoQueue")],
)
def test_what_would_be_passed_over_is_refused(
    assembly: Assembly, clock: LocalClock, kind: str, named: str, property_: str
) -> None:
    template = region_template(assembly, changed(kind, named, **{property_: True}))
    with pytest.raises(ValueError, match=property_):
        Queues(template, Spy(), clock)


def test_a_resource_of_a_type_that_is_not_known_here_is_refused(
    assembly: Assembly, clock: LocalClock
) -> None:
    text = assembly.region_template().replace("AWS::CloudWatch::Alarm", "AWS::SNS::Topic")
    with pytest.raises(ValueError, match="AWS::SNS::Topic"):
        Queues(region_template(assembly, lambda _: text), Spy(), clock)
