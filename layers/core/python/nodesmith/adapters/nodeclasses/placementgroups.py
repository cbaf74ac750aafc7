"""The placement group that an EC2NodeClass selects, and the instances that it has in each zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.nodeclasses.nodeclasses import PlacementGroupSelector
from nodesmith.model.nodeclasses.status import PlacementGroup, Subnet, Unresolved

_UNKNOWN = frozenset({"InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.Malformed"})
_NOT_FOUND, _FAILED = "PlacementGroupNotFound", "PlacementGroupResolutionFailed"
_RUNNING = {"Name": "instance-state-name", "Values": ["pending", "running"]}


def placement_group(
    ec2: Any, selector: PlacementGroupSelector, subnets: Collection[Subnet]
) -> PlacementGroup:
    """Return the group. Raises Unresolved if there is none, or none whose instances could use these subnets."""
    raw = _found(ec2, selector)
    name, state = raw.get("GroupName", ""), raw.get("State", "")
    if state != "available":
        why = f"spec.placementGroupSelector: placement group {name} is {state}: wait until it is available"
        raise Unresolved(_FAILED, why)
    group = PlacementGroup(
        raw["GroupId"],
        name,
        raw["Strategy"],
        int(raw.get("PartitionCount") or 0),
        _instances(ec2, name),
        raw.get("SpreadLevel") or "rack",
    )
    zones = sorted({subnet.zone for subnet in subnets})
    if group.home and zones and group.home not in zones:
        raise Unresolved(
            _FAILED,
            f"spec.placementGroupSelector: the instances of cluster placement group {name} are in {group.home}, where "
            f"spec.subnetSelectorTerms select no subnet (only in {', '.join(zones)}): select a subnet there, or use "
            "another placement group",
        )
    return group


def _found(ec2: Any, selector: PlacementGroupSelector) -> Mapping[str, Any]:
    asked = {"GroupIds": [selector.id]} if selector.id else {"GroupNames": [selector.name]}
    try:
        found = ec2.describe_placement_groups(**asked)["PlacementGroups"]
    except ClientError as error:
        if error_code(error) not in _UNKNOWN:
            raise
        found = []
    if found:
        first: Mapping[str, Any] = found[0]
        return first
    known = ec2.describe_placement_groups()["PlacementGroups"]
    field = "id" if selector.id else "name"
    names = [each["GroupId" if selector.id else "GroupName"] for each in known]
    hint = did_you_mean(selector.id or selector.name, names)
    raise Unresolved(
        _NOT_FOUND,
        f"spec.placementGroupSelector.{field}: there is no placement group {selector.id or selector.name!r} in this "
        f"region{hint}: create it, or correct the {field}",
    )


def _instances(ec2: Any, name: str) -> tuple[tuple[str, int], ...]:
    """Return the number of the group's instances by zone, also those that other software has launched."""
    inside = {"Name": "placement-group-name", "Values": [name]}
    found = rows(ec2, "describe_instances", "Reservations", Filters=[inside, _RUNNING])
    zones = (each["Placement"]["AvailabilityZone"] for part in found for each in part["Instances"])
    return tuple(sorted(Counter(zones).items()))
