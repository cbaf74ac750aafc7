"""What can be invoked, as all that invokes it knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Invocable(Protocol):
    """A function: calling it invokes it once, and whatever it raises is its failure.

    `trace` is the trace header of the invocation, which what the function calls is sent along with.
    """

    @property
    def concern(self) -> str: ...

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any: ...


class Feed(Protocol):
    """What invokes one function for each event or message that comes, and counts how that went."""

    invocations: int
    failures: int
    last_error: str

    @property
    def concurrency(self) -> int: ...

    def poll(self, wait_seconds: int = 0) -> int: ...

    def close(self) -> None: ...
