"""EC2's news, as EventBridge hands them over: moto sends none, and writes times as numbers where AWS writes text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from moto.core import DEFAULT_ACCOUNT_ID
from moto.events.models import Rule

from nodesmith.model.ec2events import SPOT_WARNING, STATE_CHANGE
from nodesmith.model.times import format_time


@contextmanager
def written_times() -> Iterator[None]:
    """Let events have the time of their entry, or of now, as text."""
    send = Rule.send_to_targets

    def send_written(rule: Rule, event: Any, transform_input: bool = True) -> None:
        written: Any = {**event, "time": format_time(datetime.fromtimestamp(float(event["time"]), UTC))}
        send(rule, written, transform_input)

    with patch.object(Rule, "send_to_targets", send_written):
        yield


def announce_state(events: Any, region: str, instance: str, state: str, at: datetime) -> None:
    """Send what EC2 sends on every change of state. `events` is the boto3 client."""
    _send(events, region, STATE_CHANGE, {"instance-id": instance, "state": state}, at)


def announce_interruption(events: Any, region: str, instance: str, at: datetime) -> None:
    """Send EC2's warning that it takes a spot instance in two minutes."""
    _send(events, region, SPOT_WARNING, {"instance-id": instance, "instance-action": "terminate"}, at)


def _send(events: Any, region: str, kind: str, detail: dict[str, str], at: datetime) -> None:
    arn = f"arn:aws:ec2:{region}:{DEFAULT_ACCOUNT_ID}:instance/{detail['instance-id']}"
    entry = {
        "Source": "aws.ec2",
        "DetailType": kind,
        "Detail": json.dumps(detail),
        "Resources": [arn],
        "Time": at,
    }
    events.put_events(Entries=[entry])
