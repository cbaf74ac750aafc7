"""Batching: when news is delivered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nodesmith.model.functions import Concern
from nodesmith_forwarder.windows import Pace, Windows

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
PODS, NODES, ENDS = Concern.PROVISIONING, Concern.LIFECYCLE, Concern.TERMINATION
LEAVING = Concern.DISRUPTION


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_no_window_is_due_when_there_is_no_news() -> None:
    windows = Windows(Pace())
    assert windows.next_due() is None
    assert windows.take(at(100)) == {}


def test_a_window_closes_a_second_after_the_last_new_item() -> None:
    windows = Windows(Pace())
    windows.note(PODS, "a", at(0))
    windows.note(PODS, "b", at(0.9))
    assert windows.next_due() == at(1.9)
    assert windows.take(at(1.8)) == {}
    assert windows.take(at(1.9)) == {PODS: 2}
    assert windows.next_due() is None


def test_an_item_already_in_the_window_does_not_hold_it_open() -> None:
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


def test_news_for_one_topic_does_not_delay_another() -> None:
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


def test_news_of_a_drain_is_delivered_within_half_a_second() -> None:
    windows = Windows(Pace())
    windows.note(ENDS, "a", at(0))
    assert windows.next_due() == at(0.2)
    for tenth in range(1, 5):
        windows.note(ENDS, f"pod-{tenth}", at(tenth / 10))
    assert windows.next_due() == at(0.5)
    assert windows.take(at(0.5)) == {ENDS: 5}


def test_news_of_a_node_is_delivered_within_two_seconds() -> None:
    windows = Windows(Pace())
    for tenth in range(20):
        windows.note(NODES, f"node-{tenth}", at(tenth / 10))
    assert windows.next_due() == at(2)
    assert windows.take(at(2)) == {NODES: 20}


def test_windows_for_disruption_are_at_least_five_seconds_apart() -> None:
    windows = Windows(Pace())
    windows.note(LEAVING, "a", at(0))
    assert windows.take(at(1)) == {LEAVING: 1}
    windows.note(LEAVING, "b", at(1.5))
    assert windows.next_due() == at(6)
    assert windows.take(at(6)) == {LEAVING: 1}
    windows.note(LEAVING, "c", at(20))
    assert windows.next_due() == at(21)


def test_a_pace_faster_than_a_drains_also_applies_to_drains() -> None:
    windows = Windows(Pace(timedelta(seconds=0.1), timedelta(seconds=0.2)))
    windows.note(ENDS, "a", at(0))
    assert windows.next_due() == at(0.1)


def test_news_for_the_snapshot_alone_goes_into_the_next_snapshot() -> None:
    windows = Windows(Pace())
    windows.note(PODS, "a", at(0))
    windows.note(None, "a", at(0.9))
    assert windows.take(at(1)) == {PODS: 1, None: 1}
    assert windows.next_due() is None


def test_what_is_announced_closes_a_window_early_although_news_keeps_coming() -> None:
    windows = Windows(Pace())
    windows.shorten(PODS, at(0))
    for tenth in range(5):
        windows.note(PODS, f"pod-{tenth}", at(tenth / 10))
    assert windows.next_due() == at(0.2)
    assert windows.take(at(0.4)) == {PODS: 5}


def test_announcements_close_windows_at_most_once_a_second() -> None:
    windows = Windows(Pace())
    windows.shorten(PODS, at(0))
    assert windows.take(at(0.2)) == {PODS: 0}
    windows.shorten(PODS, at(0.3))
    assert windows.next_due() == at(1.2)


def test_announcements_that_keep_coming_hold_a_window_open_for_a_second_at_most() -> None:
    windows = Windows(Pace())
    for tenth in range(30):
        windows.shorten(PODS, at(tenth / 10))
    assert windows.next_due() == at(1)
