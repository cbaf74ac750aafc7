"""SQS: delayed invocations. Lambda passes them to the dispatch function when their delay has passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodesmith.adapters.aws.errors import missing_errors
from nodesmith.model.functions.hints import DelayedInvocation

LONGEST_DELAY_SECONDS = 900
_MISSING = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


class SqsDelayedInvocations:
    """The region's queue of delayed invocations. `client` returns the boto3 client of a service, here `sqs`."""

    def __init__(self, client: Callable[[str], Any], url: str) -> None:
        self._client, self._url = client, url

    def put(self, invocation: DelayedInvocation, delay_seconds: int) -> None:
        """Invoke a function after a delay, which is capped at 15 minutes, the longest that SQS supports.

        Raises Transient, or Rejected if the queue does not exist.
        """
        delay = min(max(0, delay_seconds), LONGEST_DELAY_SECONDS)
        missing = f"the queue {self._url} does not exist"
        with missing_errors(f"sqs:SendMessage to {self._url}", _MISSING, missing):
            self._client("sqs").send_message(
                QueueUrl=self._url, MessageBody=invocation.to_json(), DelaySeconds=delay
            )
