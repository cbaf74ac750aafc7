"""Progress output for steps that take longer than a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

_PATIENCE_SECONDS = 1.0


@contextmanager
def told(to: Console, what: str, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Show `what` after `patience_seconds`, as a spinner on a terminal or else as a line, and then how long it took."""
    began = time.monotonic()
    spinner = to.status(what)
    timer = threading.Timer(
        patience_seconds, spinner.start if to.is_terminal else lambda: to.print(f"{what} …")
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        spinner.stop()
    took = time.monotonic() - began
    if took > patience_seconds:
        to.print(f"{what}: {took:.1f} s", style="dim")
