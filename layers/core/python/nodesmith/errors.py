"""Errors by what we do about them, never by what caused them.

NodesmithError
├── Rejected      the message or object is wrong and will stay wrong: count it, say why, acknowledge it
├── Transient     the outside failed for now: raise, be redelivered, carry on from the committed intent
└── Conflict      somebody decided first: look again

No capacity is not here: it is knowledge (`model.launches.NoCapacity`), recorded with a growing back-off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class NodesmithError(Exception):
    """Base of all errors that nodesmith raises on purpose."""


class Rejected(NodesmithError):
    """Input that no retry can mend. The message names object, field, value and remedy."""


class Transient(NodesmithError):
    """A call that may succeed later: throttling, time-outs, 5xx. `code` is the provider's own word."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class PutOff(Transient):
    """What failed is tried again in seconds: whoever raises this has asked for it, and nobody else need."""


class Conflict(NodesmithError):
    """A conditional write lost: the state it was decided on is no longer the newest."""


class Failures:
    """What failed for some of many, kept until all have had their turn: then its `with` block ends in Transient."""

    def __init__(self) -> None:
        self._told: list[str] = []

    def __str__(self) -> str:
        return "; ".join(self._told)

    def add(self, error: NodesmithError, about: str = "") -> None:
        """Keep an error; `about` names whose it is."""
        self._told.append(f"{about}: {error}" if about else str(error))

    @contextmanager
    def of(self, about: str = "") -> Iterator[None]:
        """Keep the Transient or Rejected that ends the block."""
        try:
            yield
        except (Transient, Rejected) as error:
            self.add(error, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told and error is None:
            raise Transient(str(self))
