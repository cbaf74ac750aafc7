"""SQS as Lambda's pollers use it, in the process in which moto plays it: nothing to sign, to send and to parse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.sqs import sqs_backends


class PolledQueues:
    """One region's queues, by the calls that a poller makes, with the arguments and answers of boto3's client.

    `listening` is told of each call, as it is answered: the action, and the queue's ARN.
    """

    def __init__(
        self,
        region: str,
        listening: Callable[[str, str], None] = lambda action, arn: None,  # noqa: ARG005
    ) -> None:
        self._region, self._listening = region, listening

    def receive_message(
        self,
        *,
        QueueUrl: str,  # noqa: N803 boto3's
        MaxNumberOfMessages: int,  # noqa: N803
        WaitTimeSeconds: int = 0,  # noqa: N803
        AttributeNames: Sequence[str] = (),  # noqa: N803, ARG002 a poller asks for all
    ) -> dict[str, Any]:
        """Wait for messages, and give them with all their attributes; they stay hidden as long as the queue says."""
        queue = self._queue(QueueUrl)
        found = self._backend.receive_message(
            queue.name, MaxNumberOfMessages, WaitTimeSeconds, queue.visibility_timeout
        )
        self._listening("sqs:ReceiveMessage", queue.queue_arn)
        return {"Messages": [_shown(message) for message in found]}

    def delete_message_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        Entries: Sequence[Mapping[str, str]],  # noqa: N803
    ) -> dict[str, Any]:
        """Delete messages by their receipts."""
        queue = self._queue(QueueUrl)
        deleted, failed = self._backend.delete_message_batch(queue.name, list(Entries))
        self._listening("sqs:DeleteMessage", queue.queue_arn)
        return {"Successful": [{"Id": id_} for id_ in deleted], "Failed": failed}

    def _queue(self, url: str) -> Any:
        return self._backend.get_queue(url.rpartition("/")[2])

    @property
    def _backend(self) -> Any:
        return sqs_backends[DEFAULT_ACCOUNT_ID][self._region]


def _shown(message: Any) -> dict[str, Any]:
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
        },
    }
