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
    known: list[Group] = []

    def create(response: Any) -> ActionResult:
        asked = response.params
        if any(each["GroupName"] == asked["GroupName"] for each in known):
            code = "InvalidPlacementGroup.Duplicate"
            raise Refusal(code, f"The placement group '{asked['GroupName']}' already exists.")
        group: Group = {
            "GroupId": f"pg-{mock_random.get_random_hex(17)}",
            "GroupName": asked["GroupName"],
            "Strategy": asked.get("Strategy", "cluster"),
            "State": "available",
        }
        if group["Strategy"] == "partition":
            group["PartitionCount"] = int(asked.get("PartitionCount", 2))
        if group["Strategy"] == "spread":
            group["SpreadLevel"] = asked.get("SpreadLevel", "rack")
        known.append(group)
        return ActionResult({"PlacementGroup": group})

    def describe(response: Any) -> ActionResult:
        found = list(known)
        for field, named in (("GroupId", "GroupIds"), ("GroupName", "GroupNames")):
            wanted = response.params.get(named) or ()
            missing = sorted(set(wanted) - {each[field] for each in known})
            if missing:
                raise Refusal(
                    "InvalidPlacementGroup.Unknown", f"The Placement Group '{missing[0]}' is unknown."
                )
            found = [each for each in found if not wanted or each[field] in wanted]
        return ActionResult({"PlacementGroups": found})

    with ExitStack() as stack:
        for name, method in (("create_placement_group", create), ("describe_placement_groups", describe)):
            stack.enter_context(patch.object(EC2Response, name, method, create=True))
        for name in ("group_name", "group_id", "partition_number"):
            stack.enter_context(patch.object(InstancePlacement, name, None, create=True))
        stack.enter_context(patch.object(InstancePlacement, "known_groups", known, create=True))
        stack.enter_context(patch.dict(filter_dict_attribute_mapping, {_FILTER: "placement.group_name"}))
        yield


def refusal(backend: Any, data: Mapping[str, Any], zone: str) -> tuple[str, str] | None:
    """Return EC2's error code and message if an instance with this launch template cannot be placed, else None."""
    asked = data.get("Placement") or {}
    if not (asked.get("GroupId") or asked.get("GroupName")):
        return None
    group = _named(asked)
    if group is None:
        named = asked.get("GroupId") or asked.get("GroupName")
        return "InvalidPlacementGroup.Unknown", f"The Placement Group '{named}' is unknown."
    used = _zones(backend, group)
    if group["Strategy"] == "spread" and used[zone] >= MOST_IN_A_ZONE:
        limit = f"its limit of {MOST_IN_A_ZONE} running instances in the Availability Zone {zone}"
        code = "InsufficientInstanceCapacity"
        return code, f"Spread placement group {group['GroupName']} has reached {limit}."
    if group["Strategy"] == "cluster" and set(used) - {zone}:
        code = "InvalidParameterCombination"
        return code, f"The placement group {group['GroupName']} is in another Availability Zone than {zone}."
    partition = asked.get("PartitionNumber")
    if partition is not None and not 1 <= int(partition) <= group.get("PartitionCount", 0):
        return "InvalidParameterValue", f"Value ({partition}) for parameter partitionNumber is invalid."
    return None


def place(instance: Any, data: Mapping[str, Any]) -> None:
    """Put a launched instance into the group that its launch template names, if any."""
    asked = data.get("Placement") or {}
    group = _named(asked)
    if group is not None:
        instance.placement.group_name, instance.placement.group_id = group["GroupName"], group["GroupId"]
        instance.placement.partition_number = asked.get("PartitionNumber")


def _named(asked: Mapping[str, Any]) -> Group | None:
    known: list[Group] = getattr(InstancePlacement, "known_groups", [])
    name, id_ = asked.get("GroupName"), asked.get("GroupId")
    if not name and not id_:
        return None
    return next((each for each in known if each["GroupId"] == id_ or each["GroupName"] == name), None)


def _zones(backend: Any, group: Group) -> Counter[str]:
    there = (i for r in backend.all_reservations() for i in r.instances)
    return Counter(
        i.placement.zone for i in there if i.placement.group_id == group["GroupId"] and i.state in _ALIVE
    )
