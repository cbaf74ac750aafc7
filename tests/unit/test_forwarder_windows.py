"""Batching, minute by minute: when news is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nodesmith.model.events import Concern
from nodesmith_forwarder.windows import Pace, Windows

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
PODS, NODES = Concern.PROVISIONING, Concern.LIFECYCLE


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_no_window_is_due_when_there_is_no_news() -> None:
    windows = Windows(Pace())
    assert windows.next_due() is None
    assert windows.take(at(100)) == {}


def test_a_window_closes_a_second_after_the_last_new_thing() -> None:
    windows = Windows(Pace())
    windows.note(PODS, "a", at(0))
    windows.note(PODS, "b", at(0.9))
    assert windows.next_due() == at(1.9)
    assert windows.take(at(1.8)) == {}
    assert windows.take(at(1.9)) == {PODS: 2}
    assert windows.next_due() is None


def test_a_thing_that_is_in_the_window_already_does_not_hold_it_open() -> None:
    windows = Windows(Pace())
    windows.note(PODS, "a", at(0))
    windows.note(PODS, "a", at(0.9))
    assert windows.take(at(1)) == {PODS: 1}


def test_a_window_closes_after_ten_seconds_however_much_news_comes() -> None:
    windows = Windows(Pace())
    for tenth in range(100):
        windows.note(PODS, f"pod-{tenth}", at(tenth / 10))
    assert windows.next_due() == at(10)
    assert windows.take(at(10)) == {PODS: 100}


def test_news_for_one_does_not_keep_another_waiting() -> None:
    windows = Windows(Pace())
    windows.note(PODS, "a", at(0))
    for tenth in range(20):
        windows.note(NODES, f"node-{tenth}", at(tenth / 10))
    assert windows.take(at(1)) == {PODS: 1}
    assert windows.take(at(2.9)) == {NODES: 20}


def test_only_the_first_news_opens_a_window() -> None:
    windows = Windows(Pace())
    assert windows.note(None, "a", at(0))
    assert not windows.note(None, "b", at(0))
    assert windows.note(PODS, "b", at(0))


def test_the_pace_is_a_setting() -> None:
    windows = Windows(Pace(timedelta(seconds=3), timedelta(seconds=4)))
    windows.note(PODS, "a", at(0))
    assert windows.next_due() == at(3)
    windows.note(PODS, "b", at(2))
    assert windows.next_due() == at(4)
