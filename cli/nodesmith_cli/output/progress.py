"""Progress of everything that takes more than a moment: on standard error, and only if that is a terminal.

The estimate comes from counted work, from a limit that is known, or from how long the same step took last time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nodesmith_cli.output.terminal import Messages
from nodesmith_formats.decisions.records import state_folder
from nodesmith_formats.wording import printable, span

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.progress_bar import ProgressBar
    from rich.text import Text

Advance = Callable[[float], None]
PATIENCE_SECONDS = 1.0
"""A step that takes no longer than this is not shown."""
_FILE = "durations.json"
_MOST_KEPT, _BAR = 200, 28


@contextmanager
def progress(
    what: str,
    *,
    total: float = 0.0,
    expected_seconds: float = 0.0,
    key: str = "",
    size: float = 1.0,
    to: Console | Messages | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Advance]:
    """Show a step once it takes longer than `patience_seconds`, with an estimate of what is left; then its duration.

    The function in the block is called with the work done since its last call, if `total` says how much there is.
    Without these, the estimate is the last duration of the step `key`, in proportion to `size`.
    """
    if not (to.file if to is not None else sys.stderr).isatty():
        yield lambda _: None
        return
    from nodesmith_cli.output.safeconsole import SafeConsole

    console = to.console if isinstance(to, Messages) else to or SafeConsole(stderr=True)
    expected = expected_seconds or (_last(key) * size if key else 0.0)
    display = _shown(console)
    began = time.monotonic()
    task = display.add_task(printable(what), total=total or None, expected=expected)
    timer = threading.Timer(patience_seconds, display.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done: display.advance(task, done)
    finally:
        timer.cancel()
        timer.join()
        display.stop()
    took = time.monotonic() - began
    if took > patience_seconds:
        console.print(f"{printable(what)}: {took:.1f} s", style="dim", markup=False, highlight=False)
        _keep(key, took / (size or 1.0))


def share(task: Task) -> float | None:
    """Return how much of a step is done, by count or by the expected duration; None if neither is known."""
    if task.total:
        return min(1.0, task.completed / task.total)
    expected = float(task.fields["expected"])
    return min(0.99, (task.elapsed or 0.0) / expected) if expected else None


def left_text(task: Task) -> str:
    """Return how long a step still takes; empty if that is unknown."""
    elapsed, expected = task.elapsed or 0.0, float(task.fields["expected"])
    if task.total and task.completed:
        left = elapsed * (task.total - task.completed) / task.completed
        return f"about {span(round(left))} left" if left >= 0.5 else ""
    if not expected:
        return ""
    return f"about {span(round(expected - elapsed))} left" if elapsed < expected else "longer than expected"


def _shown(console: Console) -> Progress:
    """Return the line that shows a step."""
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    class Bar(ProgressColumn):
        def render(self, task: Task) -> ProgressBar | Text:
            done = share(task)
            return ProgressBar(total=1.0, completed=done, width=_BAR) if done is not None else Text("")

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(left_text(task), style="dim")

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        Bar(),
        TimeElapsedColumn(),
        Left(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=True,  # lines that are printed meanwhile appear above it
        refresh_per_second=4,
    )


def _last(key: str) -> float:
    found = _durations().get(key)
    return found if found is not None else 0.0


def _durations() -> dict[str, float]:
    """Return seconds by step as they were kept; empty if the file is missing or damaged."""
    try:
        found = json.loads((state_folder() / _FILE).read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError):
        return {}
    return {
        str(key): float(value)
        for key, value in (found.items() if isinstance(found, dict) else ())
        if isinstance(value, int | float) and 0 < value < 1e6
    }


def _keep(key: str, seconds: float) -> None:
    """Remember a duration for the next estimate. A home that cannot be written to only costs the estimate."""
    if not key:
        return
    known = {name: value for name, value in _durations().items() if name != key}
    kept = dict([*known.items()][-_MOST_KEPT + 1 :]) | {key: round(seconds, 6)}
    try:
        folder: Path = state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_text(json.dumps(kept), encoding="utf-8")
    except (OSError, RuntimeError):
        return
