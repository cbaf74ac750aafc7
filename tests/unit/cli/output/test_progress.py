"""Progress is shown on a terminal alone, with an estimate."""

from __future__ import annotations

import io
import json
import os
import pty
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from nodesmith_cli.output.progress import left_text, progress, share
from tests.patience import eventually

WHAT = "deciding on 5 pods"


class Terminal:
    """A pseudo-terminal, and what was written to it."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self._seen = ""
        self.console = Console(file=os.fdopen(theirs, "w"), width=100, force_terminal=True)

    def seen(self) -> str:
        with suppress(BlockingIOError):
            self._seen += os.read(self._ours, 1 << 20).decode()
        return self._seen


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_pipe_stays_quiet() -> None:
    text = io.StringIO()

    with progress(WHAT, to=Console(file=text, force_terminal=True), patience_seconds=0.0):
        time.sleep(0.02)

    assert text.getvalue() == ""


def test_a_long_step_is_shown_on_a_terminal_and_then_its_duration() -> None:
    terminal = Terminal()

    with progress(WHAT, to=terminal.console, patience_seconds=0.01):
        eventually(lambda: WHAT in terminal.seen())

    eventually(
        lambda: f"{WHAT}: " in terminal.seen() and terminal.seen().rstrip("\x1b[0m\r\n").endswith(" s")
    )


def test_a_short_step_is_not_shown() -> None:
    terminal = Terminal()

    with progress(WHAT, to=terminal.console, patience_seconds=60):
        pass

    assert terminal.seen() == ""


def test_a_step_that_fails_shows_no_duration() -> None:
    terminal = Terminal()

    def fail() -> None:
        with progress(WHAT, to=terminal.console, patience_seconds=0.01):
            eventually(lambda: WHAT in terminal.seen())
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()

    assert f"{WHAT}: " not in terminal.seen()


def test_a_known_limit_gives_an_estimate() -> None:
    terminal = Terminal()

    with progress(WHAT, to=terminal.console, expected_seconds=90, patience_seconds=0.01):
        eventually(lambda: "about 90 s left" in terminal.seen() or "about 89 s left" in terminal.seen())


def test_the_last_duration_gives_an_estimate_in_proportion_to_the_size(tmp_path: Path) -> None:
    (tmp_path / "nodesmith").mkdir()
    (tmp_path / "nodesmith" / "durations.json").write_text('{"plan": 2.0, "broken": "x"}')
    terminal = Terminal()

    with progress(WHAT, to=terminal.console, key="plan", size=50, patience_seconds=0.01):
        eventually(lambda: "about 100 s left" in terminal.seen() or "about 99 s left" in terminal.seen())

    kept = json.loads((tmp_path / "nodesmith" / "durations.json").read_text())
    assert kept.keys() == {"plan"}
    assert kept["plan"] < 1


def test_counted_work_gives_an_estimate() -> None:
    at = [0.0]
    drawn = Progress(console=Console(file=io.StringIO()), get_time=lambda: at[0])
    drawn.add_task(WHAT, total=10, expected=0.0)
    (task,) = drawn.tasks
    at[0] = 30.0
    drawn.advance(task.id, 2)

    assert share(task) == 0.2
    assert left_text(task) == "about 2 min left"


def test_a_step_that_takes_longer_than_expected_says_so() -> None:
    at = [0.0]
    drawn = Progress(console=Console(file=io.StringIO()), get_time=lambda: at[0])
    drawn.add_task(WHAT, total=None, expected=5.0)
    (task,) = drawn.tasks
    at[0] = 6.0

    assert share(task) == 0.99
    assert left_text(task) == "longer than expected"
