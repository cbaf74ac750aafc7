"""One request after the other, for parts of moto that were not made for many threads.

A DynamoDB transaction there copies whole tables, and fails when another thread writes meanwhile; a conditional write
looks first and writes then. AWS does both as one, so here each request has the table for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def in_turns(responses: type[Any], method: str = "call_action") -> Iterator[None]:
    """Let the requests of a moto response class wait for each other during the block."""
    original = getattr(responses, method)
    lock = threading.RLock()

    def one_at_a_time(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return original(self, *args, **kwargs)

    setattr(responses, method, one_at_a_time)
    try:
        yield
    finally:
        setattr(responses, method, original)
