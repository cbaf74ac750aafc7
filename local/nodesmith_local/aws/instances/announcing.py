"""EC2's events on the event bus, which moto does not send."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith.model.ec2.events import SPOT_WARNING, STATE_CHANGE


def announce_state(events: Any, region: str, instance: str, state: str, at: datetime) -> None:
    """Send EC2's event for a change of an instance's state. `events` is the boto3 client."""
    _send(events, region, STATE_CHANGE, {"instance-id": instance, "state": state}, at)


def announce_interruption(events: Any, region: str, instance: str, at: datetime) -> None:
    """Send EC2's warning that it reclaims a spot instance in two minutes."""
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
