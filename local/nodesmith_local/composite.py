"""The base of context managers that consist of several parts: a system, a cluster, a deployment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Started(ABC):
    """A context manager whose parts `_start` enters. They end in reverse order, also if a later part fails."""

    _parts: ExitStack

    @abstractmethod
    def _start(self, stack: ExitStack) -> None:
        """Start the parts, those that others depend on first."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._parts = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.close()
