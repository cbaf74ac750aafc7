"""Lambda's event source mappings for SQS: they poll, invoke, and delete messages that were handled.

Messages that a function reports as failed, and the whole batch if it raises, stay in the queue. They are hidden until
the visibility timeout and move to the dead letters after the queue's maximum number of receives, as in AWS. A message
that would extend a recursive loop beyond Lambda's limit moves there at once, unless the function allows such loops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.deployment import BATCH_SIZE
from nodesmith_local.functions.invocable import Counted, Invocable, Throttled
from nodesmith_local.functions.queues import PolledQueues

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueMapping:
    """How a queue is mapped to a function.

    A batch is invoked when it is full, or `window_seconds` of the queue's clock after its first message.
    `partial_answers` means that the function may report part of a batch as failed (ReportBatchItemFailures).
    """

    batch_size: int = BATCH_SIZE
    window_seconds: float = 0
    concurrency: int = 1
    partial_answers: bool = True


class EventSource(Counted):
    """Feeds one queue to one function, batch by batch.

    As many threads may call `poll` as the mapping's concurrency allows invocations. Only one of them waits for
    messages, so a second invocation starts only while the first is running. `recursive_loop` is the function's setting
    for recursive loops.
    """

    def __init__(
        self,
        queues: PolledQueues,
        queue_url: str,
        function: Invocable,
        arn: str = "",
        mapped: QueueMapping = QueueMapping(),
        clock: LocalClock | None = None,
        recursive_loop: loopdetection.RecursiveLoop = "Terminate",
    ) -> None:
        super().__init__()
        self._recursive_loop = recursive_loop
        self._queues = queues
        self._queue_url = queue_url
        self._function = function
        self.arn = arn
        self.mapped = mapped
        self._clock = clock or LocalClock()
        self._lambda = ThreadPoolExecutor(mapped.concurrency, f"function-{function.concern}")
        self._receiving = threading.Lock()

    @property
    def concurrency(self) -> int:
        """The maximum number of parallel invocations."""
        return self.mapped.concurrency

    def close(self) -> None:
        """Do nothing: the queue itself ends long polls (`queues_run_on`)."""

    def poll(self, wait_seconds: int = 0) -> int:
        """Receive a batch, invoke the function, and delete the handled messages; return the number received."""
        with self._receiving:
            messages = self._receive(wait_seconds)
        going_on = self._without_loops(messages)
        if going_on:
            self._delete(going_on, failed=self._invoke(going_on))
        return len(messages)

    def _without_loops(self, messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Move messages of loops that Lambda stops to the dead-letter queue, and return the others."""
        if self._recursive_loop == "Allow":
            return messages
        looping = [
            message for message in messages if loopdetection.is_over(_trace(message), self._function.concern)
        ]
        if looping:
            self._queues.give_up(self._queue_url, [message["ReceiptHandle"] for message in looping])
        return [message for message in messages if message not in looping]

    def _receive(self, wait_seconds: int) -> list[dict[str, Any]]:
        """Wait for the first message, then for more until the batch is full or its window ends."""
        messages = self._receive_at_most(self.mapped.batch_size, wait_seconds)
        if not messages or not self.mapped.window_seconds:
            return messages
        end = self._clock.now() + timedelta(seconds=self.mapped.window_seconds)
        while len(messages) < self.mapped.batch_size and self._clock.now() < end:
            messages += self._receive_at_most(self.mapped.batch_size - len(messages), 1)
        return messages

    def _receive_at_most(self, count: int, wait_seconds: int) -> list[dict[str, Any]]:
        at_once = min(count, BATCH_SIZE)  # SQS's maximum
        return self._queues.receive(self._queue_url, at_once, wait_seconds)

    def _invoke(self, messages: Sequence[Mapping[str, Any]]) -> set[str]:
        """Return the ids of the messages that must be redelivered: all of them after an error."""
        trace = loopdetection.invoked(map(_trace, messages), self._function.concern)
        event = {"Records": [self._record(message) for message in messages]}
        message_ids = {str(message["MessageId"]) for message in messages}
        invocation = self._lambda.submit(self._function, event, trace)
        error = invocation.exception()
        if isinstance(error, Throttled):
            return message_ids
        self.count(error)
        if error is not None:
            _log.error("function %s failed", self._function.concern, exc_info=error)
            return message_ids
        if not self.mapped.partial_answers:
            return set()
        failures = (invocation.result() or {}).get("batchItemFailures") or ()
        failed = {str(failure["itemIdentifier"]) for failure in failures}
        return (
            failed if failed <= message_ids else message_ids
        )  # Lambda treats an unknown id as a failure of the whole batch

    def _record(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": dict(message.get("Attributes", {})),
            "messageAttributes": {},
            "md5OfBody": message.get("MD5OfBody", ""),
            "eventSource": "aws:sqs",
            "eventSourceARN": self.arn,
            "awsRegion": self.arn.split(":")[3] if self.arn else "",
        }

    def _delete(self, messages: Sequence[Mapping[str, Any]], failed: set[str]) -> None:
        handled = [message["ReceiptHandle"] for message in messages if message["MessageId"] not in failed]
        if handled:
            self._queues.delete(self._queue_url, handled)


def _trace(message: Mapping[str, Any]) -> str:
    return str(message.get("Attributes", {}).get(loopdetection.ATTRIBUTE, ""))
