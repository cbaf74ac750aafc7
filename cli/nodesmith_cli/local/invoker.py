"""Lambda's event source mappings and EventBridge Scheduler, for a local system: they poll, invoke, delete, and tick.

What a function reports as failed, and the whole batch where it raises, stays in the queue, is hidden until its
visibility timeout, and moves to the dead letters after five receives, as in AWS.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.deployment import BATCH_SIZE, CONCERNS, Deployment
from nodesmith_cli.local.functions import Function

LONGEST_POLL_SECONDS = 20
_LONGEST_POLL_OF_LIFE_SECONDS = 0.5  # how late a stop may be noticed
_log = logging.getLogger(__name__)


class EventSource:
    """Feeds one queue to one function, batch by batch, one at a time."""

    def __init__(self, sqs: Any, queue_url: str, function: Function, arn: str = "") -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._function = function
        self._arn = arn
        self._lambda = ThreadPoolExecutor(1, f"function-{function.concern}")
        self.invocations = 0
        self.failures = 0
        self.last_error = ""

    def poll(self, wait_seconds: int = 0) -> int:
        """Receive a batch, invoke the function, delete what it handled; gives how many messages came."""
        messages = self._sqs.receive_message(
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=BATCH_SIZE,
            WaitTimeSeconds=wait_seconds,
            AttributeNames=["All"],
        ).get("Messages", [])
        if messages:
            self._delete(messages, failed=self._invoke(messages))
        return len(messages)

    def _invoke(self, messages: Sequence[Mapping[str, Any]]) -> set[str]:
        """Give the ids of the messages that must come again: none, some, or after an error all."""
        self.invocations += 1
        event = {"Records": [self._record(message) for message in messages]}
        invocation = self._lambda.submit(self._function, event)
        error = invocation.exception()
        if error is not None:
            self.failures += 1
            self.last_error = f"{type(error).__name__}: {error}"
            _log.error("function %s failed", self._function.concern, exc_info=error)
            return {message["MessageId"] for message in messages}
        failed = (invocation.result() or {}).get("batchItemFailures") or ()
        return {str(failure["itemIdentifier"]) for failure in failed}

    def _record(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {},
            "md5OfBody": message.get("MD5OfBody", ""),
            "eventSource": "aws:sqs",
            "eventSourceARN": self._arn,
            "awsRegion": self._arn.split(":")[3] if self._arn else "",
        }

    def _delete(self, messages: Sequence[Mapping[str, Any]], failed: set[str]) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(messages)
            if message["MessageId"] not in failed
        ]
        if entries:
            self._sqs.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)


class Invoker:
    """All event sources and ticks of a deployment, each in a thread of its own from `start` until `stopping` is set."""

    def __init__(
        self,
        sqs: Any,
        deployment: Deployment,
        functions: Mapping[str, Function],
        clock: LocalClock,
        stopping: threading.Event,
    ) -> None:
        self._sqs = sqs
        self._deployment = deployment
        self._clock = clock
        self._stopping = stopping
        self._threads: list[threading.Thread] = []
        self.sources = {
            concern: EventSource(sqs, deployment.queue_urls[concern], function)
            for concern, function in functions.items()
        }

    def complaints(self) -> list[str]:
        """Say which functions failed, how often, and with what the last time."""
        return [
            f"function {concern} failed {source.failures} times, last with {source.last_error}"
            for concern, source in self.sources.items()
            if source.failures
        ]

    def start(self) -> None:
        """Begin to poll and to tick. The first tick comes at once, as a rate schedule's does."""
        for concern, source in self.sources.items():
            self._run(f"poll-{concern}", partial(self._poll, source))
        for each in CONCERNS:
            self._run(f"tick-{each.name}", partial(self._tick, each.name, each.tick_minutes * 60))

    def _run(self, name: str, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait for what is being worked on when `stopping` is set."""
        for thread in self._threads:
            thread.join(timeout=10)

    def _poll(self, source: EventSource) -> None:
        wait = min(LONGEST_POLL_SECONDS, max(1, int(_LONGEST_POLL_OF_LIFE_SECONDS * self._clock.speed)))
        while not self._stopping.is_set():
            source.poll(wait)

    def _tick(self, concern: str, every_seconds: float) -> None:
        body = json.dumps({"cluster": self._deployment.cluster, "why": "tick"}, separators=(",", ":"))
        while True:
            self._sqs.send_message(QueueUrl=self._deployment.queue_urls[concern], MessageBody=body)
            if self._clock.wait(self._stopping, every_seconds):
                return
