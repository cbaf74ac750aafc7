"""Resolved EC2NodeClasses: the contents of their status, and assumptions for what it does not contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.nodeclasses.imagealiases import ImageParameter, alias_parameters
from nodesmith.decisions.readiness.launchconditions import LAUNCHES
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import read_requirements
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, parse_nodeclass
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    Image,
    NodeClassStatus,
    PlacementGroup,
    SecurityGroup,
    StatusCondition,
    Subnet,
    Unresolved,
)

Manifest = Mapping[str, Any]
_ZONES = 3
_ASSUMED = "assumed"
KUBERNETES = "1.34"
"""The assumed Kubernetes version, which determines the images of an alias."""
_OTHER_VERSIONS = ("1.32", "1.35")
"""The last version with AL2, and the first with Windows Server 2025."""
AVAILABLE = "availableInstanceCount"
"""EC2's field for the free instances of a capacity reservation. The status of an EC2NodeClass does not have it."""
_READY = StatusCondition("Ready", "True", "Ready")
_LATEST = datetime.max.replace(tzinfo=UTC)
"""The time of a status. It is the latest one, so that running instances are not subtracted from the free ones."""


def assumed_zones(catalog: Catalog) -> tuple[str, ...]:
    """Return the zones that are assumed to have subnets: the region's first three, a to c.

    Local zones such as us-west-2-lax-1a, which have longer names, come last.
    """
    sold = {offering.zone for offerings in catalog.offerings.values() for offering in offerings}
    return tuple(sorted(sold, key=lambda zone: (len(zone), zone))[:_ZONES])


def assumed_nodeclass(name: str) -> dict[str, Any]:
    """Return the EC2NodeClass that is assumed if the files contain none."""
    selector = [{"tags": {"karpenter.sh/discovery": _ASSUMED}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "role": _ASSUMED,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector,
        },
    }


def statuses(manifests: Iterable[Manifest], zones: Sequence[str]) -> dict[str, NodeClassStatus]:
    """Return the resolved status of each readable EC2NodeClass, by name."""
    found: dict[str, NodeClassStatus] = {}
    for manifest in manifests:
        nodeclass = parse_nodeclass(manifest).value
        if nodeclass is not None:
            found[nodeclass.name] = _status(nodeclass, manifest.get("status") or {}, zones)
    return found


def _status(nodeclass: EC2NodeClass, shown: Manifest, zones: Sequence[str]) -> NodeClassStatus:
    subnets = tuple(
        Subnet(str(s["id"]), str(s["zone"]), str(s.get("zoneID") or "")) for s in shown.get("subnets") or ()
    )
    images = tuple(
        Image(str(a["id"]), str(a.get("name") or ""), read_requirements(a.get("requirements") or ()))
        for a in shown.get("amis") or ()
    )
    failing = tuple(
        StatusCondition(str(c["type"]), "False", str(c.get("reason") or ""), str(c.get("message") or ""))
        for c in shown.get("conditions") or ()
        if c.get("status") == "False" and c.get("type") not in {"Ready", LAUNCHES}
    )
    return NodeClassStatus(
        name=nodeclass.name,
        generation=nodeclass.generation,
        hash=nodeclass.hash,
        resolved_at=_LATEST,
        subnets=subnets or tuple(Subnet(f"subnet-{zone}", zone) for zone in zones),
        security_groups=(SecurityGroup("sg-assumed"),),
        images=images or tuple(_assumed_images(nodeclass)),
        instance_profile=_ASSUMED,
        conditions=failing or (_READY,),
        capacity_reservations=tuple(map(_reservation, shown.get("capacityReservations") or ())),
        content=nodeclass.content,
        placement_group=_assumed_group(nodeclass),
    )


def _assumed_group(nodeclass: EC2NodeClass) -> PlacementGroup | None:
    """Return the selected placement group, of which only the name or the id is known: it is assumed to have room."""
    selector = nodeclass.placement_group_selector
    if selector is None:
        return None
    return PlacementGroup(selector.id or "pg-assumed", selector.name, strategy="")


def _reservation(shown: Manifest) -> CapacityReservation:
    """Parse a capacity reservation. Assumes one free instance if the number is unknown."""
    return CapacityReservation(
        id=str(shown["id"]),
        instance_type=str(shown["instanceType"]),
        zone=str(shown["availabilityZone"]),
        available=int(shown.get(AVAILABLE, 1)),
        kind=str(shown.get("reservationType") or "default"),
        match_criteria=str(shown.get("instanceMatchCriteria") or "targeted"),
        owner_id=str(shown.get("ownerID") or ""),
        interruptible=bool(shown.get("interruptible")),
        expiring=shown.get("state") == "expiring",
    )


def _assumed_images(nodeclass: EC2NodeClass) -> Iterator[Image]:
    """Yield the images of aliases. Images selected in another way are assumed to boot on every instance type."""
    for term in nodeclass.ami_selector_terms:
        parameters = _parameters(term.alias) if term.alias else ()
        served = [needs for parameter in parameters for needs in parameter.serves] or [NO_REQUIREMENTS]
        yield from (Image("ami-assumed", requirements=needs) for needs in served)


def _parameters(alias: str) -> tuple[ImageParameter, ...]:
    """Return the parameters of an alias, for the assumed Kubernetes version or another one that has such images."""
    for kubernetes in (KUBERNETES, *_OTHER_VERSIONS):
        with suppress(Unresolved):
            return alias_parameters(alias, kubernetes)
    return ()
