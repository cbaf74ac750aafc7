"""SQS as Lambda's pollers use it, called inside moto's process: nothing is signed, sent or parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.sqs import sqs_backends

from nodesmith_local.functions.loopdetection import ATTRIBUTE


class PolledQueues:
    """The queues of one region, with the calls that a poller makes. Messages have the form of boto3's client.

    `listening` is called after each call with the action and the queue's ARN.
    """

    def __init__(
        self,
        region: str,
        listening: Callable[[str, str], None] = lambda action, arn: None,  # noqa: ARG005
    ) -> None:
        self._region, self._listening = region, listening

    def receive(self, url: str, at_most: int, wait_seconds: int = 0) -> list[dict[str, Any]]:
        """Wait for messages and return them with all attributes.

        They stay hidden for the queue's visibility timeout.
        """
        queue = self._queue(url)
        messages = self._backend.receive_message(queue.name, at_most, wait_seconds, queue.visibility_timeout)
        self._listening("sqs:ReceiveMessage", queue.queue_arn)
        return [_shown(message) for message in messages]

    def delete(self, url: str, receipts: Iterable[str]) -> None:
        """Delete messages; like pollers, ignore receipts that are no longer valid."""
        queue = self._queue(url)
        entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
        self._backend.delete_message_batch(queue.name, entries)
        self._listening("sqs:DeleteMessage", queue.queue_arn)

    def give_up(self, url: str, receipts: Iterable[str]) -> None:
        """Move received messages to the dead-letter queue; without one, they are lost."""
        queue, given_up = self._queue(url), set(receipts)
        with queue._messages_lock:  # noqa: SLF001 - moto's own, which moves a message only when it is received
            messages = queue._messages  # noqa: SLF001
            received = [m for m in messages if given_up.intersection(m.all_receipt_handles)]
            for message in received:
                queue._messages.remove(message)  # noqa: SLF001
                if queue.dead_letter_queue is not None:
                    queue.dead_letter_queue.add_message(message)

    def _queue(self, url: str) -> Any:
        return self._backend.get_queue(url.rpartition("/")[2])

    @property
    def _backend(self) -> Any:
        return sqs_backends[DEFAULT_ACCOUNT_ID][self._region]


def _shown(message: Any) -> dict[str, Any]:
    trace = message.system_attributes.get(ATTRIBUTE)
    return {
        "MessageId": message.id,
        "ReceiptHandle": message.receipt_handle,
        "MD5OfBody": message.body_md5,
        "Body": message.body,
        "Attributes": {
            "SenderId": message.sender_id,
            "SentTimestamp": str(message.sent_timestamp),
            "ApproximateReceiveCount": str(message.approximate_receive_count),
            "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
            **({ATTRIBUTE: trace["StringValue"]} if trace else {}),
        },
    }
