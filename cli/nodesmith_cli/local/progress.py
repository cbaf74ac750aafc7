"""How a run shows that it is alive: live bars on a terminal, a line per stage everywhere else."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from nodesmith_cli.local import timeline
from nodesmith_cli.local.timeline import BOUND, JOINED, LAUNCHED, PENDING, READY, REGISTERED, Entry

_STEPS = {
    ("NodeClaim", LAUNCHED): "nodes launched",
    ("Node", JOINED): "nodes joined",
    ("NodeClaim", REGISTERED): "nodes registered",
    ("Node", READY): "nodes ready",
    ("Pod", BOUND): "pods bound",
}
_PLANNED = re.compile(r"(\d+) nodes? at ")
"""As `explain.summary` says how many nodes a decision buys."""


class RunProgress:
    """Follows a run: `stage` for what is being started, `entry` for what happens in the cluster. Thread-safe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal
        self._lock = threading.Lock()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._planned = 0
        self._since: datetime | None = None
        self._latest: datetime | None = None
        self._complete: dict[tuple[str, str], int] = {}
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
        """Draw no more."""
        self._progress.stop()

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Show one stage of the start, and how long it took."""
        began = time.monotonic()
        bar = self._progress.add_task(what, total=1, note="")
        yield
        took = f"{time.monotonic() - began:.1f} s"
        self._progress.update(bar, completed=1, note=took)
        if not self._live:
            self._console.print(f"{what}: {took}")

    def entry(self, entry: Entry) -> None:
        """Count a milestone, and show what it completes."""
        kind = entry.object.partition("/")[0]
        with self._lock:
            match entry.what:
                case timeline.DECIDED:
                    self._decided(entry.detail)
                case timeline.NOT_READY:
                    self._progress.console.print(
                        f"{entry.object}: {entry.what}: {entry.detail}", style="yellow"
                    )
                case timeline.DELETED if kind == "NodeClaim":
                    self._planned -= 1  # EC2 had none; another decision has been made, or will be
                case _:
                    self._seen[kind, entry.what] += 1
            if entry.what == PENDING:
                self._since = self._since or entry.at
            self._latest = max(entry.at, self._latest or entry.at)
            self._show(self._latest)

    def _decided(self, detail: str) -> None:
        planned = _PLANNED.match(detail)
        if planned:
            self._planned += int(planned.group(1))
            self._progress.console.print(f"decided: {detail}")

    def _show(self, at: datetime) -> None:
        """Bring every step up to date: the decision may be told after what came of it."""
        for step, title in _STEPS.items():
            whole = self._planned if title.startswith("nodes") else self._seen["Pod", PENDING]
            done = min(self._seen[step], whole)
            if not (whole and self._planned and self._since):
                continue
            self._draw(step, title, done, whole)
            if done == whole != self._complete.get(step):
                self._complete[step] = whole
                self._finish(step, title, whole, f"{(at - self._since).total_seconds():.1f} s")

    def _draw(self, step: tuple[str, str], title: str, done: int, whole: int) -> None:
        if step not in self._bars:
            self._bars[step] = self._progress.add_task(title, total=whole, note="")
        self._progress.update(self._bars[step], completed=done, total=whole)

    def _finish(self, step: tuple[str, str], title: str, whole: int, after: str) -> None:
        self._progress.update(self._bars[step], note=after)
        if not self._live:
            self._console.print(f"{title}: {whole}, after {after} of the cluster's time")
