"""What can be invoked, as all that invokes it knows it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol


class Invocable(Protocol):
    """A function: calling it invokes it once, and whatever it raises is its failure.

    `trace` is the trace header of the invocation, which what the function calls is sent along with.
    """

    @property
    def concern(self) -> str: ...

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any: ...


class Counted:
    """Counts invocations, from any thread."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self.invocations = 0
        self.failures = 0
        self.last_error = ""

    def count(self, error: BaseException | None) -> None:
        """Count an invocation that ended with this error, or with none."""
        with self._counting:
            self.invocations += 1
            if error is not None:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error}"


class Feed(Protocol):
    """What invokes one function for each event or message that comes, and counts how that went."""

    invocations: int
    failures: int
    last_error: str

    @property
    def concurrency(self) -> int: ...

    def poll(self, wait_seconds: int = 0) -> int: ...

    def close(self) -> None: ...
