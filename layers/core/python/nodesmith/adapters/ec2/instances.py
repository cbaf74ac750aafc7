"""EC2 instances: describing and terminating them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.calls import (
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
from nodesmith.model.ec2.launches import Instance, StartRefusal
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


def where(name: str, *values: str) -> Filter:
    """Return a filter of a describe call that matches any of the values."""
    return {"Name": name, "Values": list(values)}


LIVING = where("instance-state-name", "pending", "running", "stopping", "stopped")


def ours(cluster: str) -> list[Filter]:
    """Return the filters that match a cluster's resources that nodesmith created."""
    tags = {CLUSTER_TAG: cluster, MANAGED_BY_TAG: cluster, owned_tag(cluster): "owned"}
    return [where(f"tag:{key}", value) for key, value in tags.items()]


def parts(values: Collection[str]) -> Iterator[list[str]]:
    """Yield the distinct values, sorted, in batches that fit into one filter next to other filters."""
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _FILTER_VALUES):
        yield ordered[start : start + _FILTER_VALUES]


def described(ec2: Any, *filters: Filter) -> Iterator[Instance]:
    """Yield the instances that match all filters. Raises Transient."""
    return (machine.instance for machine in machines(ec2, *filters))


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance with its tags, and the id of its Spot Instance request, empty if there is none."""

    instance: Instance
    tags: Mapping[str, str]
    spot_request: str = ""


def machines(ec2: Any, *filters: Filter) -> Iterator[Machine]:
    """Yield the instances that match all filters, with their tags. Raises Transient."""
    with transient_errors("ec2:DescribeInstances"):
        asked = {"Filters": list(filters), "PaginationConfig": {"PageSize": 1000}}
        for reservation in rows(ec2, "describe_instances", "Reservations", **asked):
            for found in reservation["Instances"]:
                request = str(found.get("SpotInstanceRequestId") or "")
                yield Machine(_instance(found), _tags(found), request)


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
            why = f"{error_code(error)}: {error_message(error)}"
            raise Transient(f"ec2:TerminateInstances {ids[0]}: {why}", error_code(error)) from error


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
        for one in ids:
            with failures.of():
                terminate(ec2, [one])


def _capacity_type(found: Mapping[str, Any]) -> str:
    """Return the capacity type. An instance is reserved only if it must run in a reservation.

    Open reservations also take in matching on-demand instances.
    """
    if found.get("InstanceLifecycle") == SPOT:
        return SPOT
    preference = (found.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    reserved = found.get("CapacityReservationId") and preference == "capacity-reservations-only"
    return RESERVED if reserved else ON_DEMAND


def _tags(found: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in found.get("Tags", ())}


def _moment(reason: str) -> datetime | None:
    """Return the time in a StateTransitionReason, None if there is none, as for most instances that run."""
    found = _MOMENT.search(reason)
    try:
        return datetime.fromisoformat(f"{found[1]}+00:00") if found else None
    except ValueError:
        return None


def _instance(found: Mapping[str, Any]) -> Instance:
    tags = _tags(found)
    return Instance(
        id=found["InstanceId"],
        claim=tags.get(NODECLAIM_TAG, ""),
        instance_type=found["InstanceType"],
        zone=found["Placement"]["AvailabilityZone"],
        capacity_type=_capacity_type(found),
        image_id=found["ImageId"],
        state=found["State"]["Name"],
        launched_at=found["LaunchTime"].astimezone(UTC),
        subnet_id=found.get("SubnetId", ""),
        state_reason=found.get("StateReason", {}).get("Message", ""),
        state_since=_moment(found.get("StateTransitionReason") or ""),
        template_id=tags.get(_TEMPLATE_ID_TAG, ""),
        instance_profile=found.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
        private_dns_name=found.get("PrivateDnsName", ""),
        fleet=tags.get(FLEET_TAG, ""),
        security_groups=tuple(sorted(group["GroupId"] for group in found.get("SecurityGroups", ()))),
    )
