"""The seam that lets moto's SQS live by our clock: delays, visibility timeouts and long polls pass at its speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.sqs import models

from nodesmith_cli.local.clock import LocalClock

_GLANCE_SECONDS = 0.05
"""Of life. Moto looks once a second whether a delayed message has come due; at speed 10 that is too late."""


@contextmanager
def queues_run_on(clock: LocalClock) -> Iterator[None]:
    """Put moto's queues of this process on the clock until the end of the block."""

    def wait_for_messages(queue: Any, timeout: float) -> None:
        with queue._messages_lock:  # noqa: SLF001 - moto's own; its method with a shorter wait
            queue._messages_lock.wait_for(lambda: queue.messages, timeout=min(timeout, _GLANCE_SECONDS))  # noqa: SLF001

    delete = models.Queue.delete_message

    def delete_message(queue: Any, receipt_handle: str) -> None:
        with queue._messages_lock:  # noqa: SLF001 - without it a message that is sent meanwhile is lost
            delete(queue, receipt_handle)

    def seconds(_: Any = None) -> float:
        return clock.now().timestamp()

    with (
        patch.object(models, "unix_time", seconds),
        patch.object(models, "unix_time_millis", lambda _=None: seconds() * 1000),
        patch.object(models.Queue, "wait_for_messages", wait_for_messages),
        patch.object(models.Queue, "delete_message", delete_message),
    ):
        yield
