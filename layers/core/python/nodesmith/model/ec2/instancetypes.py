"""Instance types for scheduling: labels, resources and offerings, resolved for one EC2NodeClass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.ec2.attachablevolumes import ATTACHABLE_EBS, UNLIMITED
from nodesmith.model.ec2.capacity import allocatable, capacity, overhead
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, Offering, StatedFacts
from nodesmith.model.ec2.instancelabels import (
    ec2_labels,
    ec2_requirements,
    stated_labels,
    stated_requirements,
)
from nodesmith.model.nodeclasses.devices import AL2023
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration, NodeSettings
from nodesmith.model.nodeclasses.status import Image

_DEFAULT_SETTINGS = NodeSettings()


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An instance type, resolved for one NodeClass."""

    name: str
    labels: Mapping[str, str]
    """labels of every node of this type, without zone, zone id and capacity type, which come with the offering"""
    requirements: Requirements
    """all labels, including the offered zones and capacity types; DoesNotExist for a label that the type lacks"""
    capacity: Resources
    overhead: Resources
    allocatable: Resources
    offerings: tuple[Offering, ...]
    """what can be bought, cheapest first; empty if no price is known or the NodeClass cannot run on the type"""

    def __hash__(self) -> int:
        return hash(self.name)


@lru_cache(maxsize=16)
def instance_types(
    catalog: Catalog, configuration: NodeConfiguration, settings: NodeSettings = _DEFAULT_SETTINGS
) -> tuple[InstanceType, ...]:
    """Return every type of the catalogue, resolved, sorted by name. Cached: equal arguments give the same objects."""
    return tuple(
        _resolve(catalog.facts[name], catalog, configuration, settings) for name in sorted(catalog.facts)
    )


def image_for(kind: InstanceType, images: Iterable[Image]) -> Image | None:
    """Return the first image that boots on this type, None if there is none."""
    return next((image for image in images if kind.requirements.conflict(image.requirements) is None), None)


def _resolve(
    facts: InstanceFacts | StatedFacts,
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
) -> InstanceType:
    offered = tuple(sorted((o for o in catalog.offerings.get(facts.name, ()) if o.available), key=_by_price))
    match facts:
        case InstanceFacts():
            if not runs_on(facts, configuration, settings):
                offered = ()
            room = capacity(facts, configuration, settings)
            kept = overhead(facts, configuration, room, settings)
            labels = ec2_labels(facts, catalog.region, configuration)
            needs = ec2_requirements(labels, offered)
        case StatedFacts():
            room, kept = Resources({ATTACHABLE_EBS: UNLIMITED, **facts.capacity}), facts.overhead
            labels = stated_labels(facts, catalog.region)
            needs = stated_requirements(facts, labels, offered)
        case _:
            assert_never(facts)
    present = {key: value for key, value in labels.items() if value is not None}
    return InstanceType(facts.name, present, needs, room, kept, allocatable(room, kept), offered)


def runs_on(facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings) -> bool:
    """Return whether an instance of this type can be launched and run with the NodeClass's configuration.

    In an IPv6 cluster, only instances on Nitro can: no other gets an IPv6 prefix for its pods.
    """
    if settings.ipv6 and facts.hypervisor == "xen":
        return False
    if configuration.windows and facts.arch != "amd64":
        return False
    if configuration.ami_family == AL2023 and facts.name.startswith("a1."):
        return False
    if configuration.connection_tracking and facts.hypervisor != "nitro":
        return False
    if configuration.nested_virtualization and not facts.nested_virtualization:
        return False
    return not configuration.network_interfaces or _has_interfaces(facts, configuration)


def _has_interfaces(facts: InstanceFacts, configuration: NodeConfiguration) -> bool:
    chosen = configuration.network_interfaces
    efa = sum(i.interface_type == "efa-only" for i in chosen)
    return (
        facts.ena
        and efa <= facts.efa_interfaces
        and all(i.network_card_index < facts.network_cards for i in chosen)
        and sum(i.network_card_index == 0 for i in chosen) <= facts.interfaces
    )


def _by_price(offering: Offering) -> tuple[float, str, str]:
    return offering.price_hourly_usd, offering.zone, offering.capacity_type
