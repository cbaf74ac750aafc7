"""The selectors with which an EC2NodeClass refers to existing AWS resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nodesmith.model.apimachinery.frozen import NO_ITEMS


class SubnetSelectorTerm(NamedTuple):
    """Subnets by id, or by tags (the value `*` matches any value)."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""


class SecurityGroupSelectorTerm(NamedTuple):
    """Security groups by id, by group name (not the Name tag), or by tags."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    name: str = ""


class CapacityReservationSelectorTerm(NamedTuple):
    """Capacity reservations by id, or by tags, owner and instance match criteria."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    owner_id: str = ""
    instance_match_criteria: str = ""


class PlacementGroupSelector(NamedTuple):
    """One placement group, by name or by id."""

    name: str = ""
    id: str = ""


class AMISelectorTerm(NamedTuple):
    """Machine images by alias (`al2023@latest`), id, name, SSM parameter or tags."""

    alias: str = ""
    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""
