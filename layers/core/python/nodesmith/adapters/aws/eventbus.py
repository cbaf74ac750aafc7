"""EventBridge's default bus: nodesmith's notifications, and changes of the deployment's health."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from nodesmith.adapters.aws.calls import all_errors
from nodesmith.errors import Transient
from nodesmith.settings import HEALTH_DETAIL_TYPE, HEALTH_SOURCE

if TYPE_CHECKING:
    from nodesmith.model.notifications import Notification

EVENTS_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=2, read_timeout=3
)
"""Short, because a VPC without internet may have no endpoint for EventBridge, and runs must not wait for it."""
MOST_ENTRIES, MOST_BYTES = 10, 256 * 1024
"""The limits of one call."""
_OF_AN_ENTRY = 128
"""Bytes that EventBridge counts for an entry beside its texts: the time, and some room."""


class HealthEvents:
    """Sends new and resolved findings to subscribers."""

    def __init__(self, client: Any, region: str) -> None:
        self._client, self._region = client, region

    def tell(self, changes: Iterable[Mapping[str, str]]) -> None:
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
            these = notifications[sent : sent + len(batch)]
            sent += len(batch)
            yield from [each.id for each, code in zip(these, codes, strict=True) if not code]

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
    taken = 0
    for entry in entries:
        size = _OF_AN_ENTRY + sum(len(entry[name].encode()) for name in ("Source", "DetailType", "Detail"))
        if batch and (len(batch) == MOST_ENTRIES or taken + size > MOST_BYTES):
            yield batch
            batch, taken = [], 0
        batch.append(entry)
        taken += size
    if batch:
        yield batch


def _put(client: Any, batch: Sequence[Mapping[str, Any]]) -> list[str]:
    """Send a batch; return the error code of each entry, empty for an accepted one. Raises Transient, Rejected."""
    with all_errors("events:PutEvents"):
        answer = client.put_events(Entries=list(batch))
    if not answer.get("FailedEntryCount"):
        return [""] * len(batch)
    codes = [str(each.get("ErrorCode", "")) for each in answer.get("Entries", ())]
    return codes if len(codes) == len(batch) else ["Unknown"] * len(batch)
