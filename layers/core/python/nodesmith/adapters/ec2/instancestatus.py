"""Notices derived from EC2's own state of instances, for facts without an event and for lost events.

A region's Spot instances that are marked for interruption are read for all clusters at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from nodesmith.adapters.aws.calls import rows, transient_errors
from nodesmith.adapters.ec2.instances import Filter, described, parts, where
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.events import STATES
from nodesmith.model.ec2.notices import WARNING, Fate, Notice
from nodesmith.model.karpenter.ownership import MANAGED_BY_TAG

_PAGE = {"PageSize": 1000}
_MARKED = ("marked-for-stop", "marked-for-termination")
"""Status codes of spot requests whose instance has received an interruption warning."""
_CHANGES = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
_CHECKS = {"instance-status.status": "InstanceStatus", "system-status.status": "SystemStatus"}
"""EC2's status checks of the instance and of its host: response field by filter."""
EVENT_CHECK = "EventStatus"
"""Karpenter's name for events that AWS has scheduled for an instance"""
IMPAIRED_FOR = timedelta(minutes=2)
"""How long a check must have failed. EC2 checks every minute, and a single failure may be a slow response."""
_OVER = ("[Completed]", "[Canceled]")
"""Prefixes of the description of an event that is no longer pending."""


def told(ec2: Any, cluster: str, instances: Collection[str], now: datetime) -> list[Notice]:
    """Return all current notices for these instance ids of the cluster with this name. Raises Transient."""
    return [
        *_stopped(ec2, instances, now),
        *_warnings(ec2, cluster, instances),
        *_scheduled_changes(ec2, instances),
        *_impaired(ec2, instances, now),
    ]


def _stopped(ec2: Any, instances: Collection[str], now: datetime) -> Iterator[Notice]:
    for ids in parts(instances):
        for found in described(ec2, where("instance-id", *ids)):
            if found.state in STATES:
                why = f"EC2 shows the instance as {found.state} at {format_time(now)}"
                yield Notice(STATES[found.state], found.id, now, why)


def _warnings(ec2: Any, cluster: str, instances: Collection[str]) -> Iterator[Notice]:
    """Yield the spot interruption warnings. Spot requests that this cluster did not make are not read."""
    for request in marked_requests(ec2, where(f"tag:{MANAGED_BY_TAG}", cluster)):
        if request.get("InstanceId") in instances:
            status = request["Status"]
            until = _utc(status["UpdateTime"]) + WARNING
            why = f"EC2 reclaims the instance at {format_time(until)}: its spot request is {status['Code']}"
            yield Notice(Fate.SPOT, request["InstanceId"], until, why)


def marked_requests(ec2: Any, *filters: Filter) -> Iterator[Mapping[str, Any]]:
    """Yield the spot requests that match all filters and whose instance has been warned. Raises Transient.

    A request stays active until its instance is gone. It carries the tags that our launch template sets on spot
    requests.
    """
    asked = [where("state", "active"), where("status-code", *_MARKED), *filters]
    with transient_errors("ec2:DescribeSpotInstanceRequests"):
        call = "describe_spot_instance_requests"
        yield from rows(ec2, call, "SpotInstanceRequests", Filters=asked, PaginationConfig=_PAGE)


def _scheduled_changes(ec2: Any, instances: Collection[str]) -> Iterator[Notice]:
    """Yield notices for events that AWS has scheduled and neither completed nor canceled."""
    for status in _statuses(ec2, instances, where("event.code", *_CHANGES)):
        standing = [e for e in status.get("Events", ()) if not e.get("Description", "").startswith(_OVER)]
        if standing:
            yield _scheduled(status["InstanceId"], standing)


def _impaired(ec2: Any, instances: Collection[str], now: datetime) -> Iterator[Notice]:
    """Yield notices for instances that fail EC2's status checks. Their deadline is that of a spot warning."""
    for check, part in _CHECKS.items():
        for status in _statuses(ec2, instances, where(check, "impaired")):
            failed = [d for d in (status.get(part) or {}).get("Details", ()) if d.get("Status") == "failed"]
            since = min((_utc(d["ImpairedSince"]) for d in failed if d.get("ImpairedSince")), default=None)
            if since is not None and now - since >= IMPAIRED_FOR:
                why = f"the instance has failed EC2's {part} check since {format_time(since)}"
                yield Notice(Fate.IMPAIRED, status["InstanceId"], now + WARNING, why, check=part)


def _statuses(ec2: Any, instances: Collection[str], sought: Filter) -> Iterator[Mapping[str, Any]]:
    with transient_errors("ec2:DescribeInstanceStatus"):
        asked = {"Filters": [sought], "IncludeAllInstances": True, "PaginationConfig": _PAGE}
        for status in rows(ec2, "describe_instance_status", "InstanceStatuses", **asked):
            if status["InstanceId"] in instances:
                yield status


def _scheduled(instance: str, events: Iterable[Mapping[str, Any]]) -> Notice:
    first = min(events, key=lambda event: _not_before(event) or datetime.max.replace(tzinfo=UTC))
    until = _not_before(first)
    why = f"AWS has scheduled {first['Code']}" + (f" for {format_time(until)}" if until else "")
    return Notice(Fate.SCHEDULED, instance, until, why, check=EVENT_CHECK)


def _not_before(event: Mapping[str, Any]) -> datetime | None:
    moment = event.get("NotBefore")
    return _utc(moment) if moment else None


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


MOST = 5_000
"""How many marked instances are read at a time. The rest are left for the next look, a minute later."""


class Ec2MarkedInstances:
    """The MarkedInstances of a region.

    `ec2` returns a boto3 EC2 client. It is called only on use, because a client is slow to create and events need none.
    """

    def __init__(self, ec2: Callable[[], Any]) -> None:
        self._ec2 = ec2

    def ids(self) -> frozenset[str]:
        """Return the ids of instances whose marked spot requests carry our tag. Raises Transient."""
        found = islice(marked_requests(self._ec2(), where("tag-key", MANAGED_BY_TAG)), MOST)
        return frozenset(request["InstanceId"] for request in found if request.get("InstanceId"))
