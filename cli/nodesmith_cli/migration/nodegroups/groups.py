"""Node groups as read from AWS, and what is known around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodesmith.model.ec2.catalog import Catalog

NODEGROUP, SCALING_GROUP, TEMPLATE = "nodegroup", "autoScalingGroup", "launchTemplate"
"""The sources of a group's fields: EKS, EC2 Auto Scaling, and the launch template's version (or configuration)."""


class Kind(StrEnum):
    """Who scales the instances of a group."""

    MANAGED = "managed node group"
    SELF_MANAGED = "Auto Scaling group"


@dataclass(frozen=True, slots=True)
class Group:
    """A node group with the fields that AWS shows. `instances` are the ids of its instances, as far as known.

    `obstacle` is the reason why it cannot be converted, or empty.
    """

    kind: Kind
    name: str
    sources: Mapping[str, Mapping[str, Any]]
    instances: frozenset[str] = frozenset()
    obstacle: str = ""

    @property
    def is_managed(self) -> bool:
        """Whether EKS manages it."""
        return self.kind is Kind.MANAGED

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An AMI as EC2 describes it. `alias` is the owner's alias, such as amazon."""

    id: str
    name: str
    arch: str
    alias: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What is known around the groups: the cluster, and what their fields refer to."""

    cluster: str
    version: str
    security_group: str
    catalog: Catalog
    zones: Mapping[str, str] = field(default_factory=dict)
    """by subnet"""
    default_subnets: Mapping[str, str] = field(default_factory=dict)
    """by zone: the default subnets of the cluster's VPC"""
    images: Mapping[str, MachineImage] = field(default_factory=dict)
    reservations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """by id: capacity reservations, as in the status of an EC2NodeClass, with all of their instances free"""
    selected: frozenset[str] = frozenset()
    """the keys of labels that the cluster's pods select nodes by, as far as they have been read"""


@dataclass(frozen=True, slots=True)
class Found:
    """The groups of a cluster and their surroundings. `problems` are sentences, each about what could not be read."""

    groups: tuple[Group, ...]
    context: GroupContext
    problems: tuple[str, ...] = ()
