"""Errors, classified by how they are handled and not by what caused them.

NodesmithError
├── Rejected      the message or object is wrong and will stay wrong: count it, log why, acknowledge it
├── Transient     an external call failed for now: raise, be redelivered, continue from the committed intent
└── Conflict      another run decided first: look again

A lack of capacity is not an error but a result (`model.ec2.launches.NoCapacity`), recorded with a growing back-off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class NodesmithError(Exception):
    """Base class of all errors that nodesmith raises deliberately."""


class Rejected(NodesmithError):
    """Input that no retry can fix. The message names object, field, value and remedy."""


class Transient(NodesmithError):
    """A call that may succeed later: throttling, timeouts, 5xx. `code` is the provider's error code."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class RetryScheduled(Transient):
    """A failure for which a retry within seconds is already scheduled, so that the caller need not schedule one."""


class Conflict(NodesmithError):
    """A conditional write failed, because the state that the decision was based on is no longer current."""


class Failures:
    """Collects the errors of a loop until all items have been tried. Its `with` block then raises Transient."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    def __str__(self) -> str:
        return "; ".join(self._messages)

    def add(self, error: NodesmithError, about: str = "") -> None:
        """Add an error. `about` names the item that it belongs to."""
        self._messages.append(f"{about}: {error}" if about else str(error))

    @contextmanager
    def of(self, about: str = "") -> Iterator[None]:
        """Add the Transient or Rejected that the block raises, if any."""
        try:
            yield
        except (Transient, Rejected) as error:
            self.add(error, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._messages and error is None:
            raise Transient(str(self))
