"""Serialized requests, for parts of moto that are not thread-safe.

moto's DynamoDB transaction copies whole tables and fails if another thread writes meanwhile; its conditional write
reads first and writes later. AWS does both atomically, so here each request has the table to itself. In moto's S3, an
object cannot be read while another takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def in_turns(responses: type[Any], method: str = "call_action") -> Iterator[None]:
    """Run the requests of a moto response class one at a time during the block."""
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
