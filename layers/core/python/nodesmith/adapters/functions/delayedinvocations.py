"""SQS: invocations that wait. Lambda hands them to dispatch when their time has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodesmith.adapters.aws.errors import missing_errors
from nodesmith.model.functions.hints import DelayedInvocation

LONGEST_DELAY_SECONDS = 900
_MISSING = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


class SqsDelayedInvocations:
    """The region's queue. `client` gives boto3's client of a service, here of `sqs`."""

    def __init__(self, client: Callable[[str], Any], url: str) -> None:
        self._client, self._url = client, url

    def put(self, invocation: DelayedInvocation, delay_seconds: int) -> None:
        """Have a function invoked after a delay; one beyond what SQS can hold (15 min) becomes that.

        Raises Transient, or Rejected where the queue does not exist.
        """
        delay = min(max(0, delay_seconds), LONGEST_DELAY_SECONDS)
        missing = f"the queue {self._url} does not exist"
        with missing_errors(f"sqs:SendMessage to {self._url}", _MISSING, missing):
            self._client("sqs").send_message(
                QueueUrl=self._url, MessageBody=invocation.to_json(), DelaySeconds=delay
            )
