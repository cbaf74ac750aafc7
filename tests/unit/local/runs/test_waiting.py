"""The patience of a local run: it lasts while something happens, since a busy machine is slow at everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from nodesmith_local.runs import running
from nodesmith_local.runs.servedcluster import ServedCluster

BEGAN = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Run:
    """A system in which each check takes a second of its time. `changes` are the seconds with a change."""

    def __init__(self, *changes: int) -> None:
        self.now = BEGAN
        self._changes = [BEGAN + change * SECOND for change in changes]

    def looks(self, seconds: int) -> Iterator[str]:
        for _ in range(seconds):
            self.now += SECOND
            yield "a node is on its way"

    def waited(self, still: Callable[[], str], patience_seconds: float) -> tuple[str, float]:
        """Return what was still under way, and the seconds until the wait ended."""
        system = SimpleNamespace(
            clock=SimpleNamespace(now=lambda: self.now),
            decisions=SimpleNamespace(collect=lambda: None),
            until_recorded=lambda: None,
            last_change=lambda: max((each for each in self._changes if each <= self.now), default=BEGAN),
        )
        left = running.wait_for(cast(ServedCluster, system), patience_seconds, still)
        return left, (self.now - BEGAN).total_seconds()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_GLANCE_SECONDS", 0)


def outcome(run: Run, takes_seconds: int, patience_seconds: float) -> tuple[str, float]:
    looks = run.looks(takes_seconds)
    return run.waited(lambda: next(looks, ""), patience_seconds)


def test_a_slow_run_is_not_given_up_while_something_happens() -> None:
    assert outcome(Run(8, 16, 24), takes_seconds=30, patience_seconds=10) == ("", 30)


def test_a_run_in_which_nothing_happens_is_given_up_after_patience() -> None:
    assert outcome(Run(), takes_seconds=30, patience_seconds=10) == ("a node is on its way", 11)
    assert outcome(Run(8), takes_seconds=30, patience_seconds=10) == ("a node is on its way", 19)


def test_a_run_in_which_something_happens_forever_is_given_up_after_ten_patiences() -> None:
    assert outcome(Run(*range(300)), takes_seconds=300, patience_seconds=10) == ("a node is on its way", 101)
