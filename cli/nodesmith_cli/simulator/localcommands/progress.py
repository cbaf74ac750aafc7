"""Progress display of a run: live bars on a terminal, otherwise a line for each stage."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from nodesmith_local.runs.timeline import (
    BOUND,
    CLAIMED,
    DECIDED,
    DELETED,
    JOINED,
    LAUNCHED,
    NOT_READY,
    PENDING,
    READY,
    REGISTERED,
    Entry,
)

_STEPS = {
    ("NodeClaim", LAUNCHED): "nodes launched",
    ("Node", JOINED): "nodes joined",
    ("NodeClaim", REGISTERED): "nodes registered",
    ("Node", READY): "nodes ready",
    ("Pod", BOUND): "pods bound",
}
"""In their usual order."""


class RunProgress:
    """Follows a run: `stage` shows stages of the start, `entry` events in the cluster. Thread-safe."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        """With `is_quiet`, nothing is shown unless the console is a terminal."""
        self._console = console
        self._live = console.is_interactive
        self._is_quiet = is_quiet and not console.is_terminal
        self._lock = threading.Lock()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._since: datetime | None = None
        self._reached: dict[tuple[str, str], datetime] = {}
        self._printed: dict[tuple[str, str], int] = {}
        self._bars: dict[tuple[str, str], TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            disable=not self._live,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop drawing, and print what has not been printed yet."""
        self._progress.stop()
        with self._lock:
            self._print_steps(list(_STEPS))

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Show one stage of the start and its duration."""
        began = time.monotonic()
        bar = self._progress.add_task(what, total=1, note="")
        yield
        took = f"{time.monotonic() - began:.1f} s"
        self._progress.update(bar, completed=1, note=took)
        if not self._live and not self._is_quiet:
            self._console.print(f"{what}: {took}")

    def entry(self, entry: Entry) -> None:
        """Count a milestone and show its step's progress."""
        step = entry.object.partition("/")[0], entry.what
        if self._is_quiet:
            return
        with self._lock:
            self._seen[step] += 1
            if entry.what == PENDING:
                self._since = self._since or entry.at
            elif entry.what == DECIDED and " at " in entry.detail:
                self._progress.console.print(f"decided: {entry.detail}")
            elif entry.what == NOT_READY:
                self._progress.console.print(f"{entry.object}: {entry.what}: {entry.detail}", style="yellow")
            elif step in _STEPS:
                self._reached[step] = entry.at
                self._print_steps(list(_STEPS)[: list(_STEPS).index(step)])
                self._draw(step)

    def _print_steps(self, steps: list[tuple[str, str]]) -> None:
        """Without a terminal, print a line for each step that has advanced since its last line."""
        for step in steps:
            if not self._live and self._seen[step] and self._seen[step] != self._printed.get(step):
                self._printed[step] = self._seen[step]
                self._console.print(
                    f"{_STEPS[step]}: {self._seen[step]}, after {self._after(step)} of the cluster's time"
                )

    def _draw(self, step: tuple[str, str]) -> None:
        """On a terminal, draw the step's bar. Deleted claims do not count: EC2 had no nodes for them."""
        done, claims = self._seen[step], self._seen["NodeClaim", CLAIMED] - self._seen["NodeClaim", DELETED]
        whole = max(done, self._seen["Pod", PENDING] if step[0] == "Pod" else claims)
        if step not in self._bars:
            self._bars[step] = self._progress.add_task(_STEPS[step], total=whole, note="")
        note = self._after(step) if done == whole else ""
        self._progress.update(self._bars[step], completed=done, total=whole, note=note)

    def _after(self, step: tuple[str, str]) -> str:
        since = self._since or self._reached[step]
        return f"{(self._reached[step] - since).total_seconds():.1f} s"
