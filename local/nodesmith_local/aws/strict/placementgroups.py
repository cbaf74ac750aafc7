"""Placement groups, which moto lacks: creating and describing them, and EC2's limits on their instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from moto.core.responses import ActionResult
from moto.ec2.models.instances import InstancePlacement
from moto.ec2.responses import EC2Response
from moto.ec2.utils import filter_dict_attribute_mapping
from moto.moto_api._internal import mock_random

from nodesmith_local.aws.strict.refusals import Refusal

MOST_IN_A_ZONE = 7
_ALIVE = frozenset({"pending", "running", "stopping", "stopped"})
_FILTER = "placement-group-name"
Group = dict[str, Any]


@contextmanager
def answering() -> Iterator[None]:
    """Let moto's EC2 have placement groups during the block."""
    groups: list[Group] = []

    def create(response: Any) -> ActionResult:
        parameters = response.params
        if any(existing["GroupName"] == parameters["GroupName"] for existing in groups):
            code = "InvalidPlacementGroup.Duplicate"
            raise Refusal(code, f"The placement group '{parameters['GroupName']}' already exists.")
        group: Group = {
            "GroupId": f"pg-{mock_random.get_random_hex(17)}",
            "GroupName": parameters["GroupName"],
            "Strategy": parameters.get("Strategy", "cluster"),
            "State": "available",
        }
        if group["Strategy"] == "partition":
            group["PartitionCount"] = int(parameters.get("PartitionCount", 2))
        if group["Strategy"] == "spread":
            group["SpreadLevel"] = parameters.get("SpreadLevel", "rack")
        groups.append(group)
        return ActionResult({"PlacementGroup": group})

    def describe(response: Any) -> ActionResult:
        matching = list(groups)
        for field, parameter in (("GroupId", "GroupIds"), ("GroupName", "GroupNames")):
            selected = response.params.get(parameter) or ()
            missing = sorted(set(selected) - {group[field] for group in groups})
            if missing:
                raise Refusal(
                    "InvalidPlacementGroup.Unknown", f"The Placement Group '{missing[0]}' is unknown."
                )
            matching = [group for group in matching if not selected or group[field] in selected]
        return ActionResult({"PlacementGroups": matching})

    with ExitStack() as stack:
        for name, method in (("create_placement_group", create), ("describe_placement_groups", describe)):
            stack.enter_context(patch.object(EC2Response, name, method, create=True))
        for name in ("group_name", "group_id", "partition_number"):
            stack.enter_context(patch.object(InstancePlacement, name, None, create=True))
        stack.enter_context(patch.object(InstancePlacement, "known_groups", groups, create=True))
        stack.enter_context(patch.dict(filter_dict_attribute_mapping, {_FILTER: "placement.group_name"}))
        yield


def refusal(backend: Any, data: Mapping[str, Any], zone: str) -> tuple[str, str] | None:
    """Return EC2's error code and message if an instance with this launch template cannot be placed, else None."""
    placement = data.get("Placement") or {}
    if not (placement.get("GroupId") or placement.get("GroupName")):
        return None
    group = _named(placement)
    if group is None:
        group_name = placement.get("GroupId") or placement.get("GroupName")
        return "InvalidPlacementGroup.Unknown", f"The Placement Group '{group_name}' is unknown."
    used = _zones(backend, group)
    if group["Strategy"] == "spread" and used[zone] >= MOST_IN_A_ZONE:
        limit = f"its limit of {MOST_IN_A_ZONE} running instances in the Availability Zone {zone}"
        code = "InsufficientInstanceCapacity"
        return code, f"Spread placement group {group['GroupName']} has reached {limit}."
    if group["Strategy"] == "cluster" and set(used) - {zone}:
        code = "InvalidParameterCombination"
        return code, f"The placement group {group['GroupName']} is in another Availability Zone than {zone}."
    partition = placement.get("PartitionNumber")
    if partition is not None and not 1 <= int(partition) <= group.get("PartitionCount", 0):
        return "InvalidParameterValue", f"Value ({partition}) for parameter partitionNumber is invalid."
    return None


def place(instance: Any, data: Mapping[str, Any]) -> None:
    """Put a launched instance into the group that its launch template names, if any."""
    placement = data.get("Placement") or {}
    group = _named(placement)
    if group is not None:
        instance.placement.group_name, instance.placement.group_id = group["GroupName"], group["GroupId"]
        instance.placement.partition_number = placement.get("PartitionNumber")


def _named(placement: Mapping[str, Any]) -> Group | None:
    groups: list[Group] = getattr(InstancePlacement, "known_groups", [])
    name, id_ = placement.get("GroupName"), placement.get("GroupId")
    if not name and not id_:
        return None
    return next((group for group in groups if group["GroupId"] == id_ or group["GroupName"] == name), None)


def _zones(backend: Any, group: Group) -> Counter[str]:
    instances = (i for r in backend.all_reservations() for i in r.instances)
    return Counter(
        i.placement.zone for i in instances if i.placement.group_id == group["GroupId"] and i.state in _ALIVE
    )
