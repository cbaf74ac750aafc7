"""Hints on SQS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.awserrors import error_code
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import Concern, Hint

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

LONGEST_DELAY_SECONDS = 900
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
