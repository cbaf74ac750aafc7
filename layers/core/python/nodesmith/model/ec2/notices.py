"""Notices from EC2 and AWS Health about instances that have ended or will end soon, and how events are read as notices.

Events are untrusted input, so every field is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time, parse_time

WARNING = timedelta(minutes=2)
"""Time from a warning to the end of the instance, as EC2 documents it. It may be shorter, but not longer."""
BLOCK_WARNING = timedelta(minutes=40)
"""Time from the expiration warning of a Capacity Block to its end."""
BLOCK_LEAD = timedelta(minutes=30)
"""Time from when EC2 starts to terminate the instances of a Capacity Block to its end."""


class InterruptionCause(StrEnum):
    """What happens to an instance, most certain and soonest first. The value is the cause of its claim's end."""

    TERMINATED = "InstanceTerminated"
    """it is shutting down or has shut down, and nodesmith did not request it"""
    STOPPED = "InstanceStopped"
    SPOT = "SpotInterrupted"
    RESERVATION = "ReservationInterrupted"
    """the owner of its interruptible capacity reservation reclaims the capacity"""
    IMPAIRED = "InstanceImpaired"
    """the instance or its host fails EC2's status checks"""
    EXPIRING = "ReservationExpires"
    """the Capacity Block that it runs in ends"""
    SCHEDULED = "ScheduledChange"
    """AWS will reboot, move or retire it at a scheduled time"""
    REBALANCE = "RebalanceRecommended"
    """it is at elevated risk of interruption, which is not certain"""

    @property
    def is_over(self) -> bool:
        """Return whether the instance no longer runs, so that pods cannot have their grace period."""
        return self in {InterruptionCause.TERMINATED, InterruptionCause.STOPPED}

    @property
    def is_certain(self) -> bool:
        """Return whether EC2 takes the instance within minutes, or has taken it, regardless of budgets."""
        return self not in {InterruptionCause.SCHEDULED, InterruptionCause.REBALANCE}


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about one instance, or about all instances in a capacity reservation if `instance_id` is empty.

    `until` is when the instance ends, None if that is not stated. `message` is a sentence for users.
    """

    cause: InterruptionCause
    instance_id: str
    until: datetime | None
    message: str
    reservation_id: str = ""
    occurred_at: datetime | None = field(default=None, compare=False)
    """When the event occurred; None if the notice comes from a query to EC2."""
    check: str = field(default="", compare=False)
    """The EC2 status check that failed, by its name in EC2; empty for other notices"""


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event from EC2 or AWS Health that is kept for a cluster until it has been fully handled.

    `event` is its JSON as EventBridge sent it, and `account` is the account that received it. `id` is EventBridge's id:
    an event that is delivered twice has the same id both times.
    """

    id: str
    event: str
    account: str


SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
RESERVATION_WARNINGS = (
    "EC2 Capacity Reservation Instance Interruption Warning",
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
)
BLOCK_WARNINGS = ("Capacity Block Reservation Expiration Warning", "Capacity Block Expiration Warning")
"""AWS's documentation has two names for each warning."""
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
HEALTH = "AWS Health Event"
ZONAL_SHIFTS = "aws.arc-zonal-shift"
"""The source of events about autoshifts and practice runs, which are about zones and no notices of instances."""
STATES: Mapping[str, InterruptionCause] = {
    "stopping": InterruptionCause.STOPPED,
    "stopped": InterruptionCause.STOPPED,
    "shutting-down": InterruptionCause.TERMINATED,
    "terminated": InterruptionCause.TERMINATED,
}
"""State of an instance that does not run → its fate. Other states give no notice."""
PATTERNS: Mapping[str, Mapping[str, Any]] = {
    "Warnings": {
        "source": ["aws.ec2"],
        "detail-type": [SPOT_WARNING, *RESERVATION_WARNINGS, *BLOCK_WARNINGS, REBALANCE],
    },
    "InstanceStopped": {
        "source": ["aws.ec2"],
        "detail-type": [STATE_CHANGE],
        "detail": {"state": list(STATES)},
    },
    "ScheduledChanges": {
        "source": ["aws.health"],
        "detail-type": [HEALTH],
        "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    },
    "ZonalShifts": {"source": [ZONAL_SHIFTS]},
}
"""Name of an EventBridge rule → its event pattern. These rules deliver all the events that nodesmith reads."""
_INSTANCE = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})", re.ASCII)
_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}", re.ASCII)
_ID = re.compile(r"[\w-]{1,100}", re.ASCII)
"""EventBridge's event ids, which are UUIDs"""
_MOST_INSTANCES = 1000
"""maximum number of instances read from one event; AWS Health names at most a hundred"""

Detail = Mapping[str, Any]


def read_event(body: str, account: str, now: datetime) -> tuple[Notice, ...]:
    """Return the notices of an event, which must belong to `account`; empty for an event of no interest.

    Raises Rejected with what was found and what would be right.
    """
    event = _parsed(body)
    if event.get("account") != account:
        raise Rejected(f"event field 'account': expected {account}, found {_field_text(event, 'account')}")
    kind = event.get("source"), event.get("detail-type")
    reader = _READERS.get(kind) if all(isinstance(part, str) for part in kind) else None
    if reader is None:
        actual = f"{_field_text(event, 'detail-type')} of source {_field_text(event, 'source')}"
        raise Rejected(
            f"event field 'detail-type': expected one of {sorted(str(kind) for _, kind in _READERS)}, found {actual}"
        )
    at = min(_time(event), now)
    return tuple(replace(notice, occurred_at=at) for notice in reader(event["detail"], at))


def event_id(body: str) -> str:
    """Return the id that EventBridge assigned to an event. A repeated delivery has the same id. Raises Rejected."""
    event = _parsed(body)
    id_ = event.get("id")
    if not isinstance(id_, str) or not _ID.fullmatch(id_):
        raise Rejected(f"event field 'id': expected a UUID, found {_field_text(event, 'id')}")
    return id_


def _parsed(body: str) -> Mapping[str, Any]:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"event: expected a JSON object, found {body[:80]!r} ({error})") from None
    if not isinstance(event, dict) or not isinstance(event.get("detail"), dict):
        raise Rejected(f"event: expected an object with the object 'detail', found {body[:80]!r}")
    return event


def _warning(cause: InterruptionCause) -> Callable[[Detail, datetime], tuple[Notice, ...]]:
    def read(detail: Detail, at: datetime) -> tuple[Notice, ...]:
        until = at + WARNING
        stated = _date(detail.get("instance-termination-time"))
        if stated is not None and at < stated < until:
            until = stated
        return (
            Notice(cause, _instance(detail), until, f"EC2 reclaims the instance at {format_time(until)}"),
        )

    return read


def _expiry(detail: Detail, at: datetime) -> tuple[Notice, ...]:
    reservation = detail.get("capacity-reservation-id")
    if not isinstance(reservation, str) or not _RESERVATION.fullmatch(reservation):
        actual = _field_text(detail, "capacity-reservation-id")
        raise Rejected(f"event field 'detail.capacity-reservation-id': expected cr-…, found {actual}")
    ends = _date(detail.get("end-date")) or at + BLOCK_WARNING
    return (expiry(reservation, max(ends, at)),)


def expiry(reservation: str, ends_at: datetime) -> Notice:
    """Return the notice of a Capacity Block's end. EC2 starts to terminate its instances half an hour earlier."""
    message = f"Capacity Block {reservation} ends at {format_time(ends_at)}"
    return Notice(InterruptionCause.EXPIRING, "", ends_at - BLOCK_LEAD, message, reservation)


def _rebalance(detail: Detail, at: datetime) -> tuple[Notice, ...]:
    message = (
        f"EC2 recommended at {format_time(at)} that the instance be replaced: its interruption is likely"
    )
    return (Notice(InterruptionCause.REBALANCE, _instance(detail), None, message),)


def _state(detail: Detail, at: datetime) -> tuple[Notice, ...]:
    state, instance = detail.get("state"), _instance(detail)
    cause = STATES.get(state) if isinstance(state, str) else None
    if cause is None:
        return ()
    return (Notice(cause, instance, at, f"EC2 has reported the instance as {state} since {format_time(at)}"),)


def _health(detail: Detail, at: datetime) -> tuple[Notice, ...]:
    """Return the notices of a scheduled change of EC2 instances, empty for any other AWS Health event."""
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return ()
    if detail.get("statusCode") == "closed":
        return ()
    until, code = _date(detail.get("startTime")), _field_text(detail, "eventTypeCode").strip("'")
    entities = detail.get("affectedEntities")
    instances = [
        _entity(entity) for entity in (entities if isinstance(entities, list) else ())[:_MOST_INSTANCES]
    ]
    message = f"AWS announced {code} at {format_time(at)}" + (f", for {format_time(until)}" if until else "")
    return tuple(
        Notice(InterruptionCause.SCHEDULED, instance, until, message) for instance in instances if instance
    )


def _entity(entity: object) -> str:
    value = entity.get("entityValue") if isinstance(entity, dict) else None
    return value if isinstance(value, str) and _INSTANCE.fullmatch(value) else ""


def _instance(detail: Detail) -> str:
    value = detail.get("instance-id")
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise Rejected(
            f"event field 'detail.instance-id': expected i-…, found {_field_text(detail, 'instance-id')}"
        )
    return value


def _time(event: Mapping[str, Any]) -> datetime:
    text = event.get("time")
    try:
        return parse_time(text if isinstance(text, str) else "")
    except (ValueError, OverflowError):
        raise Rejected(
            f"event field 'time': expected an RFC 3339 time, found {_field_text(event, 'time')}"
        ) from None


def _date(text: object) -> datetime | None:
    """Return a date in EC2's format (RFC 3339) or AWS Health's (`Sat, 05 Jun 2027 15:10:09 GMT`), None if invalid.

    The first and the last year of the calendar stand for a date that is not known.
    """
    if not isinstance(text, str):
        return None
    for read in (parse_time, parsedate_to_datetime):
        try:
            moment = read(text)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
        return moment if MINYEAR < moment.year < MAXYEAR else None
    return None


def _field_text(document: Mapping[str, Any], field: str) -> str:
    return repr(document.get(field))[:80]


_READERS: Mapping[tuple[object, object], Callable[[Detail, datetime], tuple[Notice, ...]]] = {
    ("aws.ec2", SPOT_WARNING): _warning(InterruptionCause.SPOT),
    **{("aws.ec2", kind): _warning(InterruptionCause.RESERVATION) for kind in RESERVATION_WARNINGS},
    **{("aws.ec2", kind): _expiry for kind in BLOCK_WARNINGS},
    ("aws.ec2", REBALANCE): _rebalance,
    ("aws.ec2", STATE_CHANGE): _state,
    ("aws.health", HEALTH): _health,
}
