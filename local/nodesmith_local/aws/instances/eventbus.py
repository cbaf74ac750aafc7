"""The event bus: EC2's events, which moto does not send, and a record of nodesmith's own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unittest.mock import patch

from moto.core import DEFAULT_ACCOUNT_ID
from moto.events.models import EventsBackend

from nodesmith.model.ec2.notices import SPOT_WARNING, STATE_CHANGE
from nodesmith.settings import HEALTH_SOURCE

LOG = logging.getLogger(__name__)
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class BusEvent:
    """An event of nodesmith's on the bus."""

    kind: str
    detail: dict[str, Any]


class PublishedEvents:
    """The events that nodesmith has put on the bus, oldest first. Rules with targets get them as on AWS.

    Threads may read it.
    """

    def __init__(self) -> None:
        self.events: tuple[BusEvent, ...] = ()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the details of a kind."""
        return [event.detail for event in self.events if event.kind == kind]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record and log these events among all that are put on a bus."""
        put_events = EventsBackend.put_events

        def noting(backend: EventsBackend, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
            results = put_events(backend, events)
            for event in (e for e in events if e.get("Source") == HEALTH_SOURCE):
                LOG.info("event %s: %s", event["DetailType"], event["Detail"])
                event_sent = BusEvent(event["DetailType"], json.loads(event["Detail"]))
                self.events = (*self.events, event_sent)[-_MOST:]
            return results

        with patch.object(EventsBackend, "put_events", noting):
            yield


def announce_state(events: Any, region: str, instance: str, state: str, time: datetime) -> None:
    """Send EC2's event for a change of an instance's state. `events` is the boto3 client."""
    _send(events, region, STATE_CHANGE, {"instance-id": instance, "state": state}, time)


def announce_interruption(events: Any, region: str, instance: str, time: datetime) -> None:
    """Send EC2's warning that it reclaims a spot instance in two minutes."""
    _send(events, region, SPOT_WARNING, {"instance-id": instance, "instance-action": "terminate"}, time)


def _send(events: Any, region: str, kind: str, detail: dict[str, str], time: datetime) -> None:
    arn = f"arn:aws:ec2:{region}:{DEFAULT_ACCOUNT_ID}:instance/{detail['instance-id']}"
    entry = {
        "Source": "aws.ec2",
        "DetailType": kind,
        "Detail": json.dumps(detail),
        "Resources": [arn],
        "Time": time,
    }
    events.put_events(Entries=[entry])
