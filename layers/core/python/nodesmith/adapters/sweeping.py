"""What EC2's own state says of instances, for notices that were lost on their way: three kinds of Describe calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.awserrors import transient_errors
from nodesmith.adapters.instances import described, parts, where
from nodesmith.model.ec2events import STATES
from nodesmith.model.notices import WARNING, Fate, Notice
from nodesmith.model.times import format_time

_PAGE = {"PageSize": 1000}
_MARKED = frozenset({"marked-for-termination", "marked-for-stop"})
"""Status codes of spot requests whose instance has been warned."""
_CHANGES = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
_OVER = ("[Completed]", "[Canceled]")
"""How the description of an event begins that no longer stands."""


def told(ec2: Any, instances: Collection[str], now: datetime) -> list[Notice]:
    """Give all that stands against these instances (by id). Raises Transient."""
    return [
        *_stopped(ec2, instances, now),
        *_marked_spot_requests(ec2, instances),
        *_scheduled_changes(ec2, instances),
    ]


def _stopped(ec2: Any, instances: Collection[str], now: datetime) -> Iterator[Notice]:
    for ids in parts(instances):
        for found in described(ec2, where("instance-id", *ids)):
            if found.state in STATES:
                why = f"EC2 shows the instance as {found.state} at {format_time(now)}"
                yield Notice(STATES[found.state], found.id, now, why)


def _marked_spot_requests(ec2: Any, instances: Collection[str]) -> Iterator[Notice]:
    """Give the warnings of spot instances.

    A request stays active until its instance has gone; no filter names instances in numbers, so all are read.
    """
    with transient_errors("ec2:DescribeSpotInstanceRequests"):
        pages = ec2.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[where("state", "active")], PaginationConfig=_PAGE
        )
        for request in (request for page in pages for request in page["SpotInstanceRequests"]):
            status = request.get("Status") or {}
            if request.get("InstanceId") in instances and status.get("Code") in _MARKED:
                until = _utc(status["UpdateTime"]) + WARNING
                why = f"EC2 takes the instance at {format_time(until)}: its spot request is {status['Code']}"
                yield Notice(Fate.SPOT, request["InstanceId"], until, why)


def _scheduled_changes(ec2: Any, instances: Collection[str]) -> Iterator[Notice]:
    """Give what AWS has scheduled for instances and has neither done nor called off."""
    with transient_errors("ec2:DescribeInstanceStatus"):
        pages = ec2.get_paginator("describe_instance_status").paginate(
            Filters=[where("event.code", *_CHANGES)],
            IncludeAllInstances=True,
            PaginationConfig=_PAGE,
        )
        for status in (status for page in pages for status in page["InstanceStatuses"]):
            standing = [e for e in status.get("Events", ()) if not e.get("Description", "").startswith(_OVER)]
            if status["InstanceId"] in instances and standing:
                yield _scheduled(status["InstanceId"], standing)


def _scheduled(instance: str, events: Iterable[Mapping[str, Any]]) -> Notice:
    first = min(events, key=lambda event: _not_before(event) or datetime.max.replace(tzinfo=UTC))
    until = _not_before(first)
    why = f"AWS has scheduled {first['Code']}" + (f" for {format_time(until)}" if until else "")
    return Notice(Fate.SCHEDULED, instance, until, why)


def _not_before(event: Mapping[str, Any]) -> datetime | None:
    moment = event.get("NotBefore")
    return _utc(moment) if moment else None


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
