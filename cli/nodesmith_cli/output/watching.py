"""The option --watch: a command's output again after each change."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import count

from nodesmith.errors import Transient
from nodesmith_formats.wording import printable

EVERY_SECONDS = 5.0


def repeated(
    look: Callable[[], int],
    *,
    watch: bool,
    looks: int | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Run `look` once, or with `watch` until Ctrl-C, and print its output whenever it differs; return its status.

    A look that fails for a temporary reason is reported on standard error and tried again. `looks` limits their number.
    """
    if not watch:
        return look()
    status, before = 0, ""
    try:
        for number in count() if looks is None else range(looks):
            if number:
                pause(EVERY_SECONDS)
            status, before = _look(look, status, before)
    except KeyboardInterrupt:
        pass
    return status


def _look(look: Callable[[], int], status: int, before: str) -> tuple[int, str]:
    shown = io.StringIO()
    try:
        with redirect_stdout(shown):
            status = look()
    except Transient as error:
        print(f"nodesmith: {printable(str(error))}; trying again", file=sys.stderr)
        return status, before
    if shown.getvalue() != before:
        print(("\n" if before else "") + shown.getvalue(), end="", flush=True)
    return status, shown.getvalue()
