"""Events, queues and schedules as the template defines them, and faulty ones, with simulated functions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import boto3
import pytest

from nodesmith.settings import REGION_TICK_MINUTES, SCHEDULED
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions.asynchronous import Deliveries, once
from nodesmith_local.functions.eventsource import EventSource
from nodesmith_local.functions.invocable import Feed
from nodesmith_local.functions.invoker import LONGEST_POLL_SECONDS, Feeds
from nodesmith_local.functions.lambdas import Lambdas, send_to_dead_letters
from nodesmith_local.functions.queues import PolledQueues
from nodesmith_local.functions.sqsclock import queues_run_on
from nodesmith_local.functions.traceheaders import trace_headers_are_kept
from tests.aws.account import strict_aws
from tests.clocks import Hand
from tests.e2e.deployed import Faults, resources
from tests.e2e.deployed.assembled import QUEUE, REGION, Edit, changed, region_template, unchanged
from tests.e2e.deployed.assembly import Assembly
from tests.e2e.deployed.faults import faulty_deliveries, faulty_queues
from tests.e2e.deployed.invocations import invocations, permitted
from tests.e2e.deployed.mappings import event_sources, schedules
from tests.infra.templates import Template
from tests.patience import eventually

MAPPING, FUNCTION = "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Function"
CONFIG, PERMISSION = "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Permission"
RULE, ALIAS, VERSION = "AWS::Events::Rule", "AWS::Lambda::Alias", "AWS::Lambda::Version"
WAITING, DEAD = "nodesmith-waiting", "nodesmith-dead"
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


class Spy:
    """A function that records its events, or the bodies of its batches.

    It can return records as failed, fail, or be held up.
    """

    def __init__(
        self,
        concern: str = "dispatch",
        *,
        gives_back: str = "",
        fails: bool = False,
        is_held: bool = False,
    ) -> None:
        self.concern, self.gives_back, self.fails = concern, gives_back, fails
        self.released = threading.Event()
        if not is_held:
            self.released.set()
        self.batches: list[list[str]] = []
        self.events: list[Mapping[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        del trace
        with self._lock:
            records = event.get("Records", ())
            if records:
                self.batches.append([record["body"] for record in records])
            else:
                self.events.append(event)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.released.wait(120)
        with self._lock:
            self.at_once -= 1
        if self.fails:
            raise RuntimeError("a bug")
        failed = [record["messageId"] for record in records if record["body"] == self.gives_back]
        return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


class Caller(Spy):
    """A function that makes a call in each run, with the trace header of the invocation, as in Lambda."""

    def __init__(self, concern: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(concern)
        self._call, self._monkeypatch = call, monkeypatch

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        with self._monkeypatch.context() as environment:
            environment.setenv("AWS_LAMBDA_FUNCTION_NAME", self.concern)
            environment.setenv("_X_AMZN_TRACE_ID", trace)
            self._call()
        return super().__call__(event, trace)


def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION, aws_access_key_id="local", aws_secret_access_key="local")


def url(queue: str) -> str:
    return str(client("sqs").get_queue_url(QueueName=queue)["QueueUrl"])


def send(*bodies: str) -> None:
    for body in bodies:
        client("sqs").send_message(QueueUrl=url(WAITING), MessageBody=body)


def invoke(concern: str, event: Mapping[str, Any], qualifier: str = "live") -> None:
    client("lambda").invoke(
        FunctionName=f"nodesmith-{concern}",
        Qualifier=qualifier,
        InvocationType="Event",
        Payload=json.dumps(event),
    )


def waiting(queue: str = WAITING, kinds: tuple[str, ...] = ("", "NotVisible", "Delayed")) -> int:
    names = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
    found = client("sqs").get_queue_attributes(QueueUrl=url(queue), AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


class Played:
    """A template's queues and rules, with simulated functions."""

    def __init__(
        self,
        template: Template,
        clock: LocalClock,
        *spies: Spy,
        deliveries: Callable[[str], Deliveries] = lambda concern: once,  # noqa: ARG005
    ) -> None:
        resources.make("region", template, client, REGION)
        functions = {"dispatch": Spy(), **{spy.concern: spy for spy in spies}}
        self.events = invocations(template, REGION, functions, clock, self._bury, deliveries)
        sources = event_sources(
            template,
            functions,
            lambda _: PolledQueues(REGION),
            lambda arn: url(arn.rpartition(":")[2]),
            clock,
        )
        self.source: EventSource = sources[WAITING]
        self.lambdas = Lambdas()
        for each in self.events.values():
            self.lambdas.know(each)
        may = permitted(template)
        self.lambdas.may_pass_on = lambda rule, function: (rule, function) in may
        self.buried: list[str] = []

    def _bury(self, concern: str, arn: str, body: str) -> None:
        self.buried.append(concern)
        send_to_dead_letters(REGION, arn, body)

    def feeds(self, *names: str) -> dict[str, Feed]:
        """Return the feeds that invoke functions: the queue's, and those of the named concerns."""
        return {WAITING: self.source, **{name: self.events[name] for name in names}}


@pytest.fixture
def clock() -> Iterator[LocalClock]:
    clock = LocalClock(1000)
    with strict_aws(), queues_run_on(clock):
        yield clock


@pytest.fixture
def hand() -> Iterator[Hand]:
    hand = Hand()
    with strict_aws(), queues_run_on(hand.clock), trace_headers_are_kept():
        yield hand


@contextmanager
def awake(feeds: Mapping[str, Feed], clock: LocalClock) -> Iterator[None]:
    """Poll in threads for the duration of the block."""
    stopping = threading.Event()
    polling = Feeds(feeds, (), clock, stopping)
    polling.start()
    try:
        yield
    finally:
        stopping.set()
        polling.join()


# The queue


def test_batches_have_the_size_of_the_mapping(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    played = Played(region_template(assembly, changed(MAPPING, "dispatch", BatchSize=2)), clock, spy)
    send("a", "b", "c")

    played.source.poll()
    played.source.poll()

    assert sorted(map(len, spy.batches)) == [1, 2]


def test_a_batching_window_collects_the_messages_that_arrive_within_it(
    assembly: Assembly, hand: Hand
) -> None:
    spy = Spy()
    window = changed(MAPPING, "dispatch", MaximumBatchingWindowInSeconds=1000)
    hidden = changed(QUEUE, "Waiting", VisibilityTimeout=43_200)
    played = Played(region_template(assembly, lambda text: hidden(window(text))), hand.clock, spy)
    send("a")
    poll = threading.Thread(target=played.source.poll)
    poll.start()
    for later in ("b", "c"):
        eventually(lambda: waiting(kinds=("",)) == 0, "what was sent is received")
        send(later)
    eventually(lambda: waiting(kinds=("",)) == 0, "what was sent is received")
    hand.seconds += 1001
    poll.join()

    assert spy.batches == [["a", "b", "c"]]


def test_failed_records_are_redelivered_after_the_queues_visibility_timeout(
    assembly: Assembly, hand: Hand
) -> None:
    spy = Spy(gives_back="bad")
    played = Played(region_template(assembly), hand.clock, spy)
    send("good", "bad")

    played.source.poll()
    hand.seconds += 359
    assert played.source.poll() == 0
    hand.seconds += 2
    played.source.poll()

    assert [sorted(batch) for batch in spy.batches] == [["bad", "good"], ["bad"]]


def test_failed_records_are_lost_without_report_batch_item_failures(
    assembly: Assembly, clock: LocalClock
) -> None:
    edit = changed(MAPPING, "dispatch", FunctionResponseTypes=None)
    played = Played(region_template(assembly, edit), clock, Spy(gives_back="bad"))
    send("bad")

    played.source.poll()

    assert waiting() == 0


@pytest.mark.parametrize("receives", [10, 2])
def test_a_message_goes_to_the_dead_letter_queue_after_the_allowed_number_of_receives(
    assembly: Assembly, hand: Hand, receives: int
) -> None:
    policy = {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:123456789012:{DEAD}", "maxReceiveCount": receives}
    edit = unchanged if receives == 10 else changed(QUEUE, "Waiting", RedrivePolicy=policy)
    spy = Spy(gives_back="poison")
    played = Played(region_template(assembly, edit), hand.clock, spy)
    send("poison")

    for _ in range(receives + 1):
        played.source.poll()
        hand.seconds += 361

    assert len(spy.batches) == receives
    assert (waiting(), waiting(DEAD)) == (0, 1)


@pytest.mark.parametrize("allowed", [2, 3])
def test_no_more_batches_run_at_once_than_the_mapping_allows(
    assembly: Assembly, clock: LocalClock, allowed: int
) -> None:
    spy = Spy(is_held=True)
    edit = changed(MAPPING, "dispatch", BatchSize=1, ScalingConfig={"MaximumConcurrency": allowed})
    played = Played(region_template(assembly, edit), clock, spy)
    send(*"abcdefgh")
    with awake(played.feeds(), clock):
        eventually(lambda: spy.at_once == allowed)
        spy.released.set()
        eventually(lambda: {body for batch in spy.batches for body in batch} == {*"abcdefgh"})

    assert spy.most_at_once == allowed


def test_long_polling_stops_at_once(assembly: Assembly) -> None:
    clock, stopping = LocalClock(), threading.Event()
    with strict_aws(), queues_run_on(clock, stopping):
        spy = Spy()
        played = Played(region_template(assembly), clock, spy)
        polling = Feeds(played.feeds("dispatch"), (), clock, stopping)
        polling.start()
        send("a")
        eventually(lambda: len(spy.batches) == 1)
        began = time.monotonic()

        stopping.set()
        polling.join()

        assert time.monotonic() - began < LONGEST_POLL_SECONDS / 2


# Events of functions


def test_a_failing_function_is_retried_as_the_template_says_then_dead_lettered_by_its_own_role(
    assembly: Assembly, hand: Hand
) -> None:
    spy = Spy("lifecycle", fails=True)
    played = Played(region_template(assembly), hand.clock, spy)
    with played.lambdas.answering():
        invoke("lifecycle", {"messages": []})
        hand.live(played.events["lifecycle"], 300)

    assert len(spy.events) == 3
    assert played.buried == ["lifecycle"]
    (message,) = client("sqs").receive_message(QueueUrl=url(DEAD))["Messages"]
    record = json.loads(message["Body"])
    assert record["requestPayload"] == {"messages": []}
    assert record["requestContext"]["functionArn"] == (
        f"arn:aws:lambda:{REGION}:123456789012:function:nodesmith-lifecycle:live"
    )


@pytest.mark.parametrize(
    ("properties", "runs", "dead"),
    [
        ({"MaximumRetryAttempts": 0}, 1, 1),
        ({"MaximumEventAgeInSeconds": 100}, 2, 1),
        ({"DestinationConfig": None}, 3, 0),
    ],
)
def test_retries_event_age_and_destination_are_those_of_the_template(
    assembly: Assembly, hand: Hand, properties: dict[str, Any], runs: int, dead: int
) -> None:
    spy = Spy("lifecycle", fails=True)
    played = Played(region_template(assembly, changed(CONFIG, "lifecycle", **properties)), hand.clock, spy)
    played.events["lifecycle"].accept({})
    hand.live(played.events["lifecycle"], 300)

    assert len(spy.events) == runs
    assert waiting(DEAD) == dead


@pytest.mark.parametrize(("recursive_loop", "runs"), [("Allow", 40), (None, 16)])
def test_a_recursive_chain_continues_only_where_the_functions_allow_it(
    assembly: Assembly,
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
    recursive_loop: str | None,
    runs: int,
) -> None:
    look = Caller("lifecycle", partial(send, "again"), monkeypatch)
    hand_over = Caller("dispatch", partial(invoke, "lifecycle", {}), monkeypatch)
    edit = changed(FUNCTION, "lifecycle", RecursiveLoop=recursive_loop)
    played = Played(region_template(assembly, edit), hand.clock, look, hand_over)
    with played.lambdas.answering():
        invoke("lifecycle", {})
        for _ in range(40):
            played.events["lifecycle"].poll()
            played.source.poll()

    assert len(look.events) == runs
    assert played.buried == ([] if recursive_loop else ["lifecycle"])


def test_each_event_that_no_function_sent_starts_a_new_chain(
    assembly: Assembly, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Caller("lifecycle", partial(invoke, "lifecycle", {}), monkeypatch)
    edit = changed(FUNCTION, "lifecycle", RecursiveLoop=None)
    played = Played(region_template(assembly, edit), hand.clock, spy)
    with played.lambdas.answering():
        for _ in range(2):
            invoke("lifecycle", {})
            for _ in range(20):
                played.events["lifecycle"].poll()

    assert len(spy.events) == 32


def on_trial(text: str) -> str:
    """Add a second alias to lifecycle, as a canary deployment does."""
    template = json.loads(text)
    (alias,) = (
        each
        for id_, each in template["Resources"].items()
        if each["Type"] == ALIAS and id_.startswith("lifecycle")
    )
    template["Resources"]["Canary"] = {**alias, "Properties": {**alias["Properties"], "Name": "canary"}}
    return json.dumps(template)


def test_each_alias_of_a_function_has_its_own_events(assembly: Assembly, hand: Hand) -> None:
    live, canary = Spy("lifecycle"), Spy("lifecycle:canary")
    played = Played(region_template(assembly, on_trial), hand.clock, live, canary)
    with played.lambdas.answering():
        for qualifier in ("live", "canary", "canary"):
            invoke("lifecycle", {}, qualifier)
        for key in ("lifecycle", "lifecycle:canary"):
            hand.live(played.events[key], 1)

    assert (len(live.events), len(canary.events)) == (1, 2)


@pytest.mark.parametrize("permitted_", [True, False])
def test_a_rule_invokes_routing_where_the_template_permits_it(
    assembly: Assembly, clock: LocalClock, permitted_: bool
) -> None:
    edit = unchanged if permitted_ else changed(PERMISSION, "routing", SourceArn="another rule's")
    spy = Spy("routing")
    played = Played(region_template(assembly, edit), clock, spy)
    detail = {"instance-id": "i-1", "state": "stopping"}
    entry = {
        "Source": "aws.ec2",
        "DetailType": "EC2 Instance State-change Notification",
        "Detail": json.dumps(detail),
    }
    with played.lambdas.answering():
        client("events").put_events(Entries=[entry])
        played.events["routing"].poll()

    assert [event["detail"] for event in spy.events] == ([detail] if permitted_ else [])
    assert len(played.lambdas.undelivered) == (0 if permitted_ else 1)


# Faults


def received(played: Played, spy: Spy, faults: Faults, *bodies: str) -> list[str]:
    """Send to a faulty queue and return what it delivers, in order."""
    spy.batches.clear()
    with faulty_queues(faults, {WAITING}):
        send(*bodies)
    while waiting():
        played.source.poll()
    return [body for batch in spy.batches for body in batch]


def test_a_faulty_queue_delivers_everything_twice(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    played = Played(region_template(assembly), clock, spy)
    assert sorted(received(played, spy, Faults(duplicate=True), *"abc")) == list("aabbcc")


def test_a_shuffled_queue_delivers_in_the_order_of_its_seed(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    played = Played(region_template(assembly), clock, spy)
    orders = [received(played, spy, Faults(seed=seed, shuffle=True), *"abcdefg") for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list("abcdefg")


def ran(assembly: Assembly, faults: Faults) -> list[tuple[float, int]]:
    """Accept seven events under faults, and return when each ran."""
    spy, hand = Spy("lifecycle"), Hand()
    when: list[tuple[float, int]] = []
    found = invocations(
        region_template(assembly),
        REGION,
        {"lifecycle": spy},
        hand.clock,
        lambda *_: None,
        partial(faulty_deliveries, faults),
    )
    events = found["lifecycle"]
    for number in range(7):
        events.accept({"number": number})
    for _ in range(20):
        while events.poll():
            when.append((hand.seconds, spy.events[-1]["number"]))
        hand.seconds += 1
    return when


def test_duplicated_events_are_delivered_again_some_seconds_later(assembly: Assembly) -> None:
    when = ran(assembly, Faults(duplicate=True))

    assert [number for at, number in when if at == 0] == list(range(7))
    late = [(at, number) for at, number in when if at > 0]
    assert sorted(number for _, number in late) == list(range(7))
    assert max(at for at, _ in late) <= 10


def test_shuffled_events_are_delivered_in_the_order_of_their_seed(assembly: Assembly) -> None:
    orders = [ran(assembly, Faults(seed=seed, shuffle=True)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(number for _, number in orders[0]) == list(range(7))


# Schedules


def test_schedules_invoke_functions_with_the_templates_rate_and_input(assembly: Assembly) -> None:
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
    assert now == {concern.value: REGION_TICK_MINUTES[concern] * 60 for concern in SCHEDULED}
    assert rare == {**now, "dispatch": 7200}
    dispatch = f"arn:aws:lambda:{REGION}:123456789012:function:nodesmith-dispatch:live"
    assert invoked[dispatch] == {"reason": "tick", "at": "2026-11-25T12:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "named", "property_"),
    [
        (MAPPING, "dispatch", "FilterCriteria"),
        (QUEUE, "Waiting", "FifoQueue"),
        (RULE, "routing", "RoleArn"),
        (VERSION, "lifecycle", "ProvisionedConcurrencyConfig"),
        (ALIAS, "lifecycle", "RoutingConfig"),
        (CONFIG, "lifecycle", "Anything"),
        (PERMISSION, "routing", "EventSourceToken"),
    ],
)
def test_properties_that_would_be_ignored_are_refused(
    assembly: Assembly, clock: LocalClock, kind: str, named: str, property_: str
) -> None:
    template = region_template(assembly, changed(kind, named, **{property_: True}))
    with pytest.raises(ValueError, match=property_):
        Played(template, clock)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (changed(CONFIG, "lifecycle", DestinationConfig={"OnSuccess": {}}), "OnSuccess"),
        (changed(CONFIG, "lifecycle", Qualifier="next"), "has no alias"),
        (changed(PERMISSION, "routing", Principal="s3.amazonaws.com"), r"s3\.amazonaws\.com"),
        (changed(RULE, "routing", Targets=[{"Id": "1", "Arn": "arn", "Input": "{}"}]), "Input"),
    ],
    ids=["destination on success", "no such alias", "another service", "another input"],
)
def test_settings_that_are_not_simulated_are_refused(
    assembly: Assembly, clock: LocalClock, edit: Edit, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Played(region_template(assembly, edit), clock)


@pytest.mark.parametrize(
    "edit",
    [
        changed(QUEUE, "Waiting", VisibilityTimeout=1),
        changed(CONFIG, "lifecycle", MaximumRetryAttempts=0),
        lambda text: text.replace('"sqs:SendMessage"', '"sqs:*"'),
    ],
    ids=["a queue", "how events are kept", "rights"],
)
def test_an_update_with_changes_that_would_be_ignored_is_refused(assembly: Assembly, edit: Edit) -> None:
    before, after = region_template(assembly), region_template(assembly, edit)
    with pytest.raises(ValueError, match=r"changes of AWS::\S+ are not imitated"):
        resources.update(before, after, client)


def test_a_resource_of_an_unknown_type_is_refused(assembly: Assembly, clock: LocalClock) -> None:
    text = assembly.region_template().replace("AWS::CloudWatch::Alarm", "AWS::SNS::Topic")
    with pytest.raises(ValueError, match="AWS::SNS::Topic"):
        Played(region_template(assembly, lambda _: text), clock)
