"""Chains of a function's hints to itself never branch."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.controllers.runs import SelfHints
from nodesmith.model.functions import Concern, Hint
from tests import builders
from tests.fakes.hints import FakeHints

PROCESSES = 2
"""Lambda runs at least two processes."""
WAITS = (1, 2, 5, 10)
schedules = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, PROCESSES - 1), st.sampled_from(WAITS)), max_size=200
)


@given(schedules)
def test_no_more_hints_are_pending_than_there_are_waits_in_each_process(
    scheduled: list[tuple[int, int, int]],
) -> None:
    now = builders.NOW
    hints = FakeHints(clock=lambda: now)
    processes = [SelfHints() for _ in range(PROCESSES)]
    for passed, process, wait in scheduled:
        now += timedelta(seconds=passed)
        hints.receive(Concern.TERMINATION)
        processes[process].send(hints, Concern.TERMINATION, Hint("shop"), timedelta(seconds=wait), now)
        assert len(hints.waiting) <= PROCESSES * len(WAITS)


@given(st.integers(1, 100), st.sampled_from(WAITS), st.integers(1, 5))
def test_repeated_runs_with_the_same_wait_have_one_hint_pending(looks: int, wait: int, copies: int) -> None:
    now = builders.NOW
    hints, mine = FakeHints(clock=lambda: now), SelfHints()
    for _ in range(looks):
        for _ in range(copies):  # each message may be delivered several times
            mine.send(hints, Concern.TERMINATION, Hint("shop"), timedelta(seconds=wait), now)
        assert len(hints.waiting) == 1
        now += timedelta(seconds=wait)
        assert len(hints.receive(Concern.TERMINATION)) == 1


@given(schedules)
def test_a_requested_hint_is_always_pending_in_time(scheduled: list[tuple[int, int, int]]) -> None:
    now = builders.NOW
    hints, mine = FakeHints(clock=lambda: now), SelfHints()
    for passed, _, wait in scheduled:
        now += timedelta(seconds=passed)
        hints.receive(Concern.TERMINATION)
        mine.send(hints, Concern.TERMINATION, Hint("shop"), timedelta(seconds=wait), now)
        assert any(message.due_at <= now + timedelta(seconds=wait) for message in hints.waiting)
