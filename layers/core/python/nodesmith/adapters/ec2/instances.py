"""EC2 instances: describing, terminating, stopping and starting them, and notices derived from their state.

The notices are for facts without an event and for lost events. A region's Spot instances that are marked for
interruption are read for all clusters at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.calls import (
    THROTTLED,
    as_transient,
    error_code,
    error_message,
    is_passing,
    plain_code,
    rows,
    transient_errors,
)
from nodesmith.adapters.ec2.fleetanswers import NO_STOCK
from nodesmith.errors import Failures, Transient
from nodesmith.model.apimachinery.labels import ON_DEMAND, RESERVED, SPOT
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import Instance, StartRefusal
from nodesmith.model.ec2.notices import STATES, WARNING, InterruptionCause, Notice
from nodesmith.model.karpenter.ownership import (
    CLUSTER_TAG,
    FLEET_TAG,
    MANAGED_BY_TAG,
    NODECLAIM_TAG,
    owned_tag,
)

_FILTER_VALUES = 190
"""EC2 accepts 200 values per call across all filters. The remaining 10 are for the other filters of a call."""
_TEMPLATE_ID_TAG = "aws:ec2launchtemplate:id"
"""EC2 adds this tag to instances that it launches from a template."""
_MOMENT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
"""The time in a StateTransitionReason, such as `User initiated (2026-11-26 12:00:00 GMT)`."""

Filter = dict[str, Any]
_DESCRIBE = "ec2:DescribeInstances"


def describe_filter(name: str, *values: str) -> Filter:
    """Return a filter of a describe call that matches any of the values."""
    return {"Name": name, "Values": list(values)}


LIVING = describe_filter("instance-state-name", "pending", "running", "stopping", "stopped")


def ours(cluster: str) -> list[Filter]:
    """Return the filters that match a cluster's resources that nodesmith created."""
    tags = {CLUSTER_TAG: cluster, MANAGED_BY_TAG: cluster, owned_tag(cluster): "owned"}
    return [describe_filter(f"tag:{key}", value) for key, value in tags.items()]


def parts(values: Collection[str]) -> Iterator[list[str]]:
    """Yield the distinct values, sorted, in batches that fit into one filter next to other filters."""
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _FILTER_VALUES):
        yield ordered[start : start + _FILTER_VALUES]


def described(ec2: Any, *filters: Filter) -> Iterator[Instance]:
    """Yield the instances that match all filters. Raises Transient, also for a denied call."""
    with as_transient(_DESCRIBE):
        for machine in machines(ec2, *filters):
            yield machine.instance


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance with its tags, and the id of its Spot Instance request, empty if there is none."""

    instance: Instance
    tags: Mapping[str, str]
    spot_request: str = ""


def machines(ec2: Any, *filters: Filter) -> Iterator[Machine]:
    """Yield the instances that match all filters, with their tags. Raises Transient, or AWS's error if it is denied."""
    with transient_errors(_DESCRIBE):
        parameters = {"Filters": list(filters), "PaginationConfig": {"PageSize": 1000}}
        for reservation in rows(ec2, "describe_instances", "Reservations", **parameters):
            for instance in reservation["Instances"]:
                request = str(instance.get("SpotInstanceRequestId") or "")
                yield Machine(_instance(instance), _tags(instance), request)


def terminate(ec2: Any, instances: Collection[str]) -> None:
    """Terminate instances by id. Instances that EC2 no longer knows are ignored.

    After all have been tried, raises Transient if EC2 refuses to terminate one because it is protected or lacks our
    tags.
    """
    ids = sorted(set(instances))
    if not ids:
        return
    try:
        with transient_errors("ec2:TerminateInstances"):
            ec2.terminate_instances(InstanceIds=ids)
    except ClientError as error:
        if len(ids) > 1:
            _terminate_singly(ec2, ids)
        elif error_code(error) != "InvalidInstanceID.NotFound":
            message = f"{error_code(error)}: {error_message(error)}"
            raise Transient(f"ec2:TerminateInstances {ids[0]}: {message}", error_code(error)) from error


_GONE = "InvalidInstanceID.NotFound"


def stop(ec2: Any, instance: str) -> None:
    """Stop an instance, unless it is gone, ending or stopped. Raises Transient also while it cannot be stopped yet."""
    try:
        with transient_errors("ec2:StopInstances"):
            ec2.stop_instances(InstanceIds=[instance])
    except ClientError as error:
        code = error_code(error)
        if code != _GONE:
            raise Transient(f"ec2:StopInstances {instance}: {code}: {error_message(error)}", code) from error


def start(ec2: Any, instances: Collection[str]) -> StartRefusal | None:
    """Start instances in one call; return why EC2 does not start them all, None if it does."""
    try:
        ec2.start_instances(InstanceIds=sorted(instances))
    except (ClientError, BotoCoreError) as error:
        code, message = plain_code(error_code(error)), error_message(error)
        is_short = code in NO_STOCK  # EC2 answers this with status 500, and still it is an answer
        return StartRefusal(code, message, is_short, passes=is_passing(error) and not is_short)
    return None


def _terminate_singly(ec2: Any, ids: Sequence[str]) -> None:
    """Terminate instances one by one, since EC2 rejects a whole call for a single unknown or protected instance."""
    with Failures() as failures:
        for instance in ids:
            with failures.of():
                terminate(ec2, [instance])


def _capacity_type(instance: Mapping[str, Any]) -> str:
    """Return the capacity type. An instance is reserved only if it must run in a reservation.

    Open reservations also take in matching on-demand instances.
    """
    if instance.get("InstanceLifecycle") == SPOT:
        return SPOT
    preference = (instance.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    reserved = instance.get("CapacityReservationId") and preference == "capacity-reservations-only"
    return RESERVED if reserved else ON_DEMAND


def _tags(resource: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", ())}


def _moment(reason: str) -> datetime | None:
    """Return the time in a StateTransitionReason, None if there is none, as for most instances that run."""
    match = _MOMENT.search(reason)
    try:
        return datetime.fromisoformat(f"{match[1]}+00:00") if match else None
    except ValueError:
        return None


def _instance(instance: Mapping[str, Any]) -> Instance:
    tags = _tags(instance)
    return Instance(
        id=instance["InstanceId"],
        claim=tags.get(NODECLAIM_TAG, ""),
        instance_type=instance["InstanceType"],
        zone=instance["Placement"]["AvailabilityZone"],
        capacity_type=_capacity_type(instance),
        image_id=instance["ImageId"],
        state=instance["State"]["Name"],
        launched_at=instance["LaunchTime"].astimezone(UTC),
        subnet_id=instance.get("SubnetId", ""),
        state_reason=instance.get("StateReason", {}).get("Message", ""),
        state_since=_moment(instance.get("StateTransitionReason") or ""),
        template_id=tags.get(_TEMPLATE_ID_TAG, ""),
        instance_profile=instance.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
        private_dns_name=instance.get("PrivateDnsName", ""),
        fleet=tags.get(FLEET_TAG, ""),
        security_groups=tuple(sorted(group["GroupId"] for group in instance.get("SecurityGroups", ()))),
    )


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


def current_notices(ec2: Any, cluster: str, instances: Collection[str], now: datetime) -> list[Notice]:
    """Return all current notices for these instance ids of the cluster with this name.

    Raises Transient if a call fails and the others find none. After a throttled call, no other is made.
    """
    looks: tuple[Callable[[], Iterable[Notice]], ...] = (
        lambda: _stopped(ec2, instances, now),
        lambda: _warnings(ec2, cluster, instances),
        lambda: _scheduled_changes(ec2, instances),
        lambda: _impaired(ec2, instances, now),
    )
    notices: list[Notice] = []
    failed: Transient | None = None
    for look in looks:
        try:
            notices += look()
        except Transient as error:
            failed = failed or error
            if error.code in THROTTLED:
                break
    if failed is not None and not notices:
        raise failed
    return notices


def _stopped(ec2: Any, instances: Collection[str], now: datetime) -> Iterator[Notice]:
    for ids in parts(instances):
        for instance in described(ec2, describe_filter("instance-id", *ids)):
            if instance.state in STATES:
                message = f"EC2 shows the instance as {instance.state} at {format_time(now)}"
                yield Notice(STATES[instance.state], instance.id, now, message)


def _warnings(ec2: Any, cluster: str, instances: Collection[str]) -> Iterator[Notice]:
    """Yield the spot interruption warnings. Spot requests that this cluster did not make are not read."""
    for request in marked_requests(ec2, describe_filter(f"tag:{MANAGED_BY_TAG}", cluster)):
        if request.get("InstanceId") in instances:
            status = request["Status"]
            until = _utc(status["UpdateTime"]) + WARNING
            message = (
                f"EC2 reclaims the instance at {format_time(until)}: its spot request is {status['Code']}"
            )
            yield Notice(InterruptionCause.SPOT, request["InstanceId"], until, message)


def marked_requests(ec2: Any, *filters: Filter) -> Iterator[Mapping[str, Any]]:
    """Yield the spot requests that match all filters and whose instance has been warned. Raises Transient.

    A request stays active until its instance is gone. It carries the tags that our launch template sets on spot
    requests.
    """
    all_filters = [describe_filter("state", "active"), describe_filter("status-code", *_MARKED), *filters]
    with as_transient("ec2:DescribeSpotInstanceRequests"):
        call = "describe_spot_instance_requests"
        yield from rows(ec2, call, "SpotInstanceRequests", Filters=all_filters, PaginationConfig=_PAGE)


def _scheduled_changes(ec2: Any, instances: Collection[str]) -> Iterator[Notice]:
    """Yield notices for events that AWS has scheduled and neither completed nor canceled."""
    for status in _statuses(ec2, instances, describe_filter("event.code", *_CHANGES)):
        pending = [e for e in status.get("Events", ()) if not e.get("Description", "").startswith(_OVER)]
        if pending:
            yield _scheduled(status["InstanceId"], pending)


def _impaired(ec2: Any, instances: Collection[str], now: datetime) -> Iterator[Notice]:
    """Yield notices for instances that fail EC2's status checks. Their deadline is that of a spot warning."""
    for check, part in _CHECKS.items():
        for status in _statuses(ec2, instances, describe_filter(check, "impaired")):
            failed = [d for d in (status.get(part) or {}).get("Details", ()) if d.get("Status") == "failed"]
            since = min((_utc(d["ImpairedSince"]) for d in failed if d.get("ImpairedSince")), default=None)
            if since is not None and now - since >= IMPAIRED_FOR:
                message = f"the instance has failed EC2's {part} check since {format_time(since)}"
                yield Notice(
                    InterruptionCause.IMPAIRED, status["InstanceId"], now + WARNING, message, check=part
                )


def _statuses(ec2: Any, instances: Collection[str], sought: Filter) -> Iterator[Mapping[str, Any]]:
    with as_transient("ec2:DescribeInstanceStatus"):
        parameters = {"Filters": [sought], "IncludeAllInstances": True, "PaginationConfig": _PAGE}
        for status in rows(ec2, "describe_instance_status", "InstanceStatuses", **parameters):
            if status["InstanceId"] in instances:
                yield status


def _scheduled(instance: str, events: Iterable[Mapping[str, Any]]) -> Notice:
    first = min(events, key=lambda event: _not_before(event) or datetime.max.replace(tzinfo=UTC))
    until = _not_before(first)
    message = f"AWS has scheduled {first['Code']}" + (f" for {format_time(until)}" if until else "")
    return Notice(InterruptionCause.SCHEDULED, instance, until, message, check=EVENT_CHECK)


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
        requests = islice(marked_requests(self._ec2(), describe_filter("tag-key", MANAGED_BY_TAG)), MOST)
        return frozenset(request["InstanceId"] for request in requests if request.get("InstanceId"))
