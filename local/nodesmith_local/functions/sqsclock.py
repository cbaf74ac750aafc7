"""A patch that puts moto's SQS on our clock: delays, visibility timeouts and long polls follow its speed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.sqs import models

from nodesmith_formats.localsystem.clock import LocalClock

_GLANCE_SECONDS = 0.25
"""Real seconds: the longest time until a long poll notices that it must end."""
_MOMENT_SECONDS = 0.001
"""Real seconds. A message is due after its time, not at it."""


class _Stopped(Exception):
    """Ends a long poll early."""


@contextmanager
def queues_run_on(clock: LocalClock, stopping: threading.Event | None = None) -> Iterator[None]:
    """Put moto's queues in this process on the clock during the block.

    Once `stopping` is set, long polls end, so pollers can wait long and still stop at once.
    """

    def wait_for_messages(queue: Any, _: float) -> None:
        with queue._messages_lock:  # noqa: SLF001 - moto's own lock; its method would poll once a real second
            queue._messages_lock.wait_for(lambda: queue.messages, timeout=until_due(queue))  # noqa: SLF001
        if stopping is not None and stopping.is_set():
            raise _Stopped

    def until_due(queue: Any) -> float:
        messages = queue._messages  # noqa: SLF001
        due = min((max(m.visible_at, m.delayed_until) for m in messages), default=None)
        if due is None:
            return _GLANCE_SECONDS
        return min(_GLANCE_SECONDS, max(0.0, clock.wall_seconds(due / 1000 - seconds())) + _MOMENT_SECONDS)

    receive, delete = models.SQSBackend.receive_message, models.Queue.delete_message

    def receive_message(*arguments: Any) -> Any:
        try:
            return receive(*arguments)
        except _Stopped:
            return []

    def delete_message(queue: Any, receipt_handle: str) -> None:
        with queue._messages_lock:  # noqa: SLF001 - without the lock, a message that is sent meanwhile is lost
            delete(queue, receipt_handle)

    def seconds(_: Any = None) -> float:
        return clock.now().timestamp()

    with (
        patch.object(models, "unix_time", seconds),
        patch.object(models, "unix_time_millis", lambda _=None: seconds() * 1000),
        patch.object(models.SQSBackend, "receive_message", receive_message),
        patch.object(models.Queue, "wait_for_messages", wait_for_messages),
        patch.object(models.Queue, "delete_message", delete_message),
    ):
        yield
