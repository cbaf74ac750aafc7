"""Asynchronous invocations as Lambda runs them: retried if the function fails, until they are given up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.asynchronous import AsyncInvocations, InvokeConfig
from nodesmith_local.functions.invocable import Throttled
from nodesmith_local.functions.invoker import Feeds
from tests.clocks import Hand
from tests.patience import eventually

ARN = "arn:aws:lambda:us-east-1:123456789012:function:nodesmith-lifecycle:live"
DEAD = "arn:aws:sqs:us-east-1:123456789012:nodesmith-dead"
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


class Spy:
    """A function that records its runs with their times, fails as often as configured, and can be held up."""

    concern = "lifecycle"

    def __init__(self, clock: LocalClock, *, failures: int = 0, is_held: bool = False) -> None:
        self._clock, self._failures = clock, failures
        self.released = threading.Event()
        if not is_held:
            self.released.set()
        self.ran: list[tuple[float, Any]] = []
        self.traces: list[str] = []
        self.ended = self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        with self._lock:
            self.ran.append(((self._clock.now() - NOON).total_seconds(), event))
            self.traces.append(trace)
            fails = len(self.ran) <= self._failures
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.released.wait(120)
        with self._lock:
            self.at_once -= 1
            self.ended += 1
        if fails:
            raise RuntimeError("a bug")


class Buried(list[dict[str, Any]]):
    """Messages to the destination on failure."""

    def __call__(self, arn: str, body: str) -> None:
        assert arn == DEAD
        self.append(json.loads(body))


@pytest.fixture
def hand() -> Hand:
    return Hand(NOON)


def made(spy: Any, clock: LocalClock, buried: Buried | None = None, **config: Any) -> AsyncInvocations:
    bury = Buried() if buried is None else buried
    return AsyncInvocations(ARN, spy, clock, InvokeConfig(on_failure=DEAD, **config), bury)


def test_an_event_runs_the_function_once_where_it_succeeds(hand: Hand) -> None:
    spy = Spy(hand.clock)
    invocations = made(spy, hand.clock)

    invocations.accept({"reason": "tick"})
    hand.live(invocations, 600)

    assert spy.ran == [(0, {"reason": "tick"})]
    assert (invocations.invocations, invocations.failures, invocations.pending) == (1, 0, 0)


def test_a_function_that_fails_runs_again_after_a_minute_and_after_two_more(hand: Hand) -> None:
    spy, buried = Spy(hand.clock, failures=2), Buried()
    invocations = made(spy, hand.clock, buried)

    invocations.accept("look")
    hand.live(invocations, 600)

    assert [at for at, _ in spy.ran] == [0, 60, 180]
    assert buried == []
    assert (invocations.failures, invocations.last_error) == (2, "RuntimeError: a bug")


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_an_event_that_keeps_failing_goes_to_the_destination_in_lambdas_format(
    hand: Hand, retries: int
) -> None:
    spy, buried = Spy(hand.clock, failures=9), Buried()
    invocations = made(spy, hand.clock, buried, retries=retries)

    id_ = invocations.accept({"messages": []})
    hand.live(invocations, 600)

    assert len(spy.ran) == retries + 1
    (record,) = buried
    assert record == {
        "version": "1.0",
        "timestamp": {0: "2026-11-25T12:00:00.000Z", 1: "2026-11-25T12:01:00.000Z"}.get(
            retries, "2026-11-25T12:03:00.000Z"
        ),
        "requestContext": {
            "requestId": id_,
            "functionArn": ARN,
            "condition": "RetriesExhausted",
            "approximateInvokeCount": retries + 1,
        },
        "requestPayload": {"messages": []},
        "responseContext": {"statusCode": 200, "executedVersion": "1", "functionError": "Unhandled"},
        "responsePayload": {"errorMessage": "a bug", "errorType": "RuntimeError"},
    }


def test_an_event_that_has_grown_too_old_is_not_run_again(hand: Hand) -> None:
    spy, buried = Spy(hand.clock, failures=9), Buried()
    invocations = made(spy, hand.clock, buried, longest_age_seconds=100)

    invocations.accept("look")
    hand.live(invocations, 600)

    assert [at for at, _ in spy.ran] == [0, 60]
    (record,) = buried
    assert record["requestContext"]["condition"] == "EventAgeExceeded"
    assert record["requestContext"]["approximateInvokeCount"] == 2


def test_without_a_destination_a_given_up_event_is_lost(hand: Hand) -> None:
    buried = Buried()
    invocations = AsyncInvocations(
        ARN, Spy(hand.clock, failures=9), hand.clock, InvokeConfig(retries=0), buried
    )

    invocations.accept("look")
    hand.live(invocations, 10)

    assert (buried, invocations.pending) == ([], 0)


class SelfInvoker(Spy):
    """A function that invokes itself in each run, with the invocation's trace header, as an SDK does in Lambda."""

    invocations: AsyncInvocations

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        super().__call__(event, trace)
        self.invocations.accept(event, trace)


@pytest.mark.parametrize(("recursive_loop", "runs"), [("Allow", 40), ("Terminate", 16)])
def test_a_function_that_invokes_itself_is_stopped_as_lambda_stops_it(
    hand: Hand, recursive_loop: loopdetection.RecursiveLoop, runs: int
) -> None:
    spy, buried = SelfInvoker(hand.clock), Buried()
    spy.invocations = made(spy, hand.clock, buried, recursive_loop=recursive_loop)

    spy.invocations.accept("look")
    for _ in range(40):
        spy.invocations.poll()

    assert len(spy.ran) == runs
    assert [each["requestContext"]["condition"] for each in buried] == (
        [] if recursive_loop == "Allow" else ["RecursiveInvocation"]
    )


def test_a_retry_does_not_count_as_another_run_in_the_chain(hand: Hand) -> None:
    spy = Spy(hand.clock, failures=2)
    invocations = made(spy, hand.clock)

    invocations.accept("look", loopdetection.invoked([], "provisioning"))
    hand.live(invocations, 600)

    assert len(spy.traces) == 3
    assert len(set(spy.traces)) == 1
    assert sorted(loopdetection.runs(spy.traces[0]).values()) == [1, 1]


@pytest.mark.parametrize("allowed", [1, 3])
def test_parallel_invocations_stay_within_the_limit(allowed: int) -> None:
    clock, stopping = LocalClock(), threading.Event()
    spy = Spy(clock, is_held=True)
    invocations = made(spy, clock, concurrency=allowed)
    feeds = Feeds({"lifecycle": invocations}, (), clock, stopping)
    feeds.start()

    for number in range(9):
        invocations.accept(number)
    eventually(lambda: spy.at_once == allowed)
    spy.released.set()
    eventually(lambda: spy.ended == 9)
    stopping.set()
    feeds.join()

    assert spy.most_at_once == allowed


def test_closing_finishes_running_invocations_and_starts_none() -> None:
    clock, stopping = LocalClock(), threading.Event()
    spy = Spy(clock, is_held=True)
    invocations = made(spy, clock)
    feeds = Feeds({"lifecycle": invocations}, (), clock, stopping)
    feeds.start()
    for number in range(3):
        invocations.accept(number)
    eventually(lambda: spy.at_once == 1)

    stopping.set()
    spy.released.set()
    feeds.join()
    invocations.accept("too late")

    assert invocations.poll() == 0
    assert (len(spy.ran), spy.ended) == (1, 1)


def test_closing_wakes_a_waiting_poll_at_once() -> None:
    clock, stopping = LocalClock(), threading.Event()
    feeds = Feeds({"lifecycle": made(Spy(clock), clock, concurrency=2)}, (), clock, stopping)
    feeds.start()
    began = time.monotonic()

    stopping.set()
    feeds.join()

    assert time.monotonic() - began < 5


def test_a_waiting_poll_wakes_when_a_retry_is_due_on_a_faster_clock() -> None:
    clock, stopping = LocalClock(600), threading.Event()
    spy = Spy(clock, failures=1)
    invocations = made(spy, clock)
    feeds = Feeds({"lifecycle": invocations}, (), clock, stopping)
    feeds.start()

    invocations.accept("look")
    eventually(lambda: len(spy.ran) == 2)
    stopping.set()
    feeds.join()

    (first, _), (second, _) = spy.ran
    assert second - first >= 60


def test_an_event_may_come_more_than_once_and_out_of_order(hand: Hand) -> None:
    spy = Spy(hand.clock)
    invocations = AsyncInvocations(
        ARN,
        spy,
        hand.clock,
        deliveries=lambda number: [(0.0, -float(number)), (7.0, float(number))],
    )

    for name in "abc":
        invocations.accept(name)
    hand.live(invocations, 20)

    assert spy.ran == [(0, "c"), (0, "b"), (0, "a"), (7, "a"), (7, "b"), (7, "c")]


def test_a_throttled_event_comes_back_ever_later_and_loses_no_attempt(hand: Hand) -> None:
    spy, buried = Spy(hand.clock, failures=2), Buried()
    refused: list[float] = []

    class Full:
        concern = "lifecycle"

        def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
            if len(refused) < 5:
                refused.append((hand.clock.now() - NOON).total_seconds())
                raise Throttled("no concurrency")
            return spy(event, trace)

    invocations = made(Full(), hand.clock, buried)
    invocations.accept("look")
    hand.live(invocations, 600)

    assert refused == [0, 1, 3, 7, 15]
    assert [at for at, _ in spy.ran] == [31, 91, 211]
    assert (invocations.invocations, invocations.failures, buried) == (3, 2, [])
