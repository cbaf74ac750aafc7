"""Interfaces of functions and of the feeds that invoke them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol


class Invocable(Protocol):
    """A function: each call invokes it once, and any exception is its failure.

    `trace` is the invocation's trace header, which is sent along with the calls that the function makes.
    """

    @property
    def concern(self) -> str: ...

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any: ...


class Throttled(Exception):
    """Lambda has no concurrency for an invocation, so the function did not start."""


class Counted:
    """Counts invocations from any thread."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self.invocations = 0
        self.failures = 0
        self.last_error = ""

    def count(self, error: BaseException | None) -> None:
        """Count an invocation that ended with this error, or without one."""
        with self._counting:
            self.invocations += 1
            if error is not None:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error}"


class Feed(Protocol):
    """Invokes one function for each event or message, and counts the results."""

    invocations: int
    failures: int
    last_error: str

    @property
    def concurrency(self) -> int: ...

    def poll(self, wait_seconds: int = 0) -> int: ...

    def close(self) -> None: ...
