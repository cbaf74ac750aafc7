"""Messages to functions and subscribers: invocations through Lambda and SQS, and events on EventBridge.

Functions are invoked at once or later, by hints and by ticks. EventBridge's default bus gets notifications, and changes
of the health of the deployment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from nodesmith.adapters.aws.calls import all_errors, missing_errors
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions import Concern, DelayedInvocation, Hint, hints_payload
from nodesmith.registration import Registration
from nodesmith.settings import ALIAS, HEALTH_DETAIL_TYPE, HEALTH_SOURCE, function_name, function_vpc

if TYPE_CHECKING:
    from nodesmith.decisions.reporting.notifications import Notification


_MISSING = frozenset({"ResourceNotFoundException"})


class LambdaInvocations:
    """Invokes functions by their alias. `client` returns the boto3 client of a service, here `lambda`."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def invoke(self, concern: Concern, vpc: str, payload: Mapping[str, Any], alias: str = ALIAS) -> None:
        """Invoke a concern's function once with this event.

        `vpc` names the VPC that the function runs in, or is empty for the function outside any VPC.

        Lambda keeps the event until the function has run, and retries if the process dies. Raises Transient, or
        Rejected if the function or the alias does not exist.
        """
        name = function_name(concern, vpc)
        body = json.dumps(payload, separators=(",", ":")).encode()
        missing = f"the function {name} does not exist, or has no alias {alias}"
        with missing_errors(f"lambda:InvokeFunction of {name}", _MISSING, missing):
            self._client("lambda").invoke(
                FunctionName=name, Qualifier=alias, InvocationType="Event", Payload=body
            )


LONGEST_DELAY_SECONDS = 900
_QUEUE_MISSING = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


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
        with missing_errors(f"sqs:SendMessage to {self._url}", _QUEUE_MISSING, missing):
            self._client("sqs").send_message(
                QueueUrl=self._url, MessageBody=invocation.to_json(), DelaySeconds=delay
            )


class LambdaHints:
    """Sends hints to the concerns of clusters.

    `reached_from` names the VPC in which functions reach the clusters' API servers; it is empty if they need none.
    Without `delayed`, hints cannot have a delay.
    """

    def __init__(
        self,
        invocations: LambdaInvocations,
        delayed: SqsDelayedInvocations | None = None,
        reached_from: str = "",
    ) -> None:
        self._invocations, self._delayed = invocations, delayed
        self._reached_from = reached_from

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Send a hint, at once or after a delay of at most 15 minutes. A hint only asks the concern to look again.

        Raises Transient, or Rejected if the function or the queue does not exist.
        """
        vpc, payload = function_vpc(concern, self._reached_from), hints_payload([hint])
        if delay_seconds <= 0:
            self._invocations.invoke(concern, vpc, payload)
        elif self._delayed is None:
            raise Rejected(f"hint for {concern}: no queue is configured for delayed hints")
        else:
            self._delayed.put(DelayedInvocation(concern, vpc, payload), delay_seconds)


_AT_ONCE = 8


class LambdaTicks:
    """Sends ticks to the functions of all concerns, including those in VPCs."""

    def __init__(self, invocations: LambdaInvocations) -> None:
        self._invocations = invocations

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        """Send a hint for each of these clusters.

        After all have been tried, raises Transient if one could not be sent, or else Rejected if the functions of a VPC
        are not deployed.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            errors = [
                response
                for response in pool.map(lambda cluster: self._send(concern, cluster), clusters)
                if response
            ]
        errors.sort(key=lambda error: isinstance(error, Rejected))
        if errors:
            raise errors[0]

    def wake(self, concern: Concern) -> None:
        """Invoke a function of the region with a tick. Raises Transient, or Rejected if it is not deployed."""
        self._invocations.invoke(concern, "", {"reason": "tick"})

    def _send(self, concern: Concern, cluster: Registration) -> Transient | Rejected | None:
        vpc = function_vpc(concern, cluster.reached_from)
        try:
            self._invocations.invoke(concern, vpc, hints_payload([Hint(cluster.cluster, "tick")]))
        except (Transient, Rejected) as error:
            return error
        return None


EVENTS_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=2, read_timeout=3
)
"""Short, because a VPC without internet may have no endpoint for EventBridge, and runs must not wait for it."""
MOST_ENTRIES, MOST_BYTES = 10, 256 * 1024
"""The limits of one call."""
_OF_AN_ENTRY = 128
"""Bytes that EventBridge counts for an entry in addition to its texts: the time, and some room."""


class HealthEvents:
    """Sends new and resolved findings to subscribers."""

    def __init__(self, client: Any, region: str) -> None:
        self._client, self._region = client, region

    def publish(self, changes: Iterable[Mapping[str, str]]) -> None:
        """Send an event for each change. Raises Transient, also if EventBridge did not accept an event; Rejected."""
        entries = [
            {
                "Source": HEALTH_SOURCE,
                "DetailType": HEALTH_DETAIL_TYPE,
                "Detail": json.dumps({"region": self._region, **change}),
            }
            for change in changes
        ]
        for batch in batches(entries):
            refused = [code for code in _put(self._client, batch) if code]
            if refused:
                raise Transient(f"events:PutEvents: {len(refused)} events were not accepted")


class EventBridge:
    """Sends notifications. `client` returns the boto3 client, which is made when the first is sent."""

    def __init__(self, client: Callable[[], Any], region: str) -> None:
        self._client, self._region = client, region

    def put(self, notifications: Sequence[Notification]) -> Iterator[str]:
        """Send notifications, and yield the ids of those that EventBridge has accepted, batch by batch.

        Raises Transient or Rejected for the first call that fails.
        """
        sent = 0
        for batch in batches(map(self._entry, notifications)):
            codes = _put(self._client(), batch)
            batch_notifications = notifications[sent : sent + len(batch)]
            sent += len(batch)
            yield from [
                notification.id
                for notification, code in zip(batch_notifications, codes, strict=True)
                if not code
            ]

    def _entry(self, notification: Notification) -> dict[str, Any]:
        detail = notification.document(self._region)
        return {
            "Source": HEALTH_SOURCE,
            "DetailType": notification.kind,
            "Time": notification.at,
            "Detail": json.dumps(detail, separators=(",", ":")),
        }


def batches(entries: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield entries in order, in batches that one call may have."""
    batch: list[Mapping[str, Any]] = []
    size_so_far = 0
    for entry in entries:
        size = _OF_AN_ENTRY + sum(len(entry[name].encode()) for name in ("Source", "DetailType", "Detail"))
        if batch and (len(batch) == MOST_ENTRIES or size_so_far + size > MOST_BYTES):
            yield batch
            batch, size_so_far = [], 0
        batch.append(entry)
        size_so_far += size
    if batch:
        yield batch


def _put(client: Any, batch: Sequence[Mapping[str, Any]]) -> list[str]:
    """Send a batch; return the error code of each entry, empty for an accepted one. Raises Transient, Rejected."""
    with all_errors("events:PutEvents"):
        answer = client.put_events(Entries=list(batch))
    if not answer.get("FailedEntryCount"):
        return [""] * len(batch)
    codes = [str(entry.get("ErrorCode", "")) for entry in answer.get("Entries", ())]
    return codes if len(codes) == len(batch) else ["Unknown"] * len(batch)
