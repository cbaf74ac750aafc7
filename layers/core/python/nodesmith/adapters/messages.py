"""Hints on SQS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.awserrors import error_code
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import Concern, Hint

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

LONGEST_DELAY_SECONDS = 900
_BATCH = 10
"""The most messages that SQS takes in a request"""
_MISSING = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


class SqsHints:
    """One queue a concern."""

    def __init__(self, client: SQSClient, urls: Mapping[Concern, str]) -> None:
        self._client = client
        self._urls = urls

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Send a hint; a delay beyond what SQS can hold (15 min) becomes that, for the hint only says "look".

        Raises Transient, or Rejected where the concern has no queue.
        """
        url = self._urls.get(concern)
        if not url:
            raise Rejected(f"hint for {concern}: no queue is known")
        delay = min(max(0, delay_seconds), LONGEST_DELAY_SECONDS)
        with sending(f"sending a hint for {concern}", f"hint for {concern}: the queue {url} does not exist"):
            self._client.send_message(QueueUrl=url, MessageBody=hint.to_json(), DelaySeconds=delay)


def send_batches(client: SQSClient, url: str, bodies: Sequence[str]) -> list[int]:
    """Send messages to a queue, ten in a request; give the numbers of those that SQS did not take.

    Raises Transient, or Rejected where the queue does not exist.
    """
    lost: list[int] = []
    for start in range(0, len(bodies), _BATCH):
        entries: list[SendMessageBatchRequestEntryTypeDef] = [
            {"Id": str(start + number), "MessageBody": body}
            for number, body in enumerate(bodies[start : start + _BATCH])
        ]
        with sending(f"sqs:SendMessage to {url}", f"the queue {url} does not exist"):
            answer = client.send_message_batch(QueueUrl=url, Entries=entries)
        lost += [int(failure["Id"]) for failure in answer.get("Failed", ())]
    return lost


@contextmanager
def sending(what: str, missing: str) -> Iterator[None]:
    """Raise Rejected with what is `missing` where a queue does not exist; Transient, naming `what`, for the rest."""
    try:
        yield
    except ClientError as error:
        code = error_code(error)
        if code in _MISSING:
            raise Rejected(missing) from error
        raise Transient(f"{what}: {error}", code) from error
    except BotoCoreError as error:
        raise Transient(f"{what}: {error}") from error
