"""Resolved EC2NodeClasses: the contents of their status, and assumptions for what it does not contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nodesmith.adapters.nodeclasses.imagealiases import ImageParameter, alias_parameters
from nodesmith.decisions.shadow.fleet import AVAILABLE, assumed_nodeclass
from nodesmith.decisions.shadow.fleet import statuses as shown_statuses
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import Image, NodeClassStatus, Unresolved

__all__ = ["AVAILABLE", "KUBERNETES", "assumed_nodeclass", "assumed_zones", "statuses"]

Manifest = Mapping[str, Any]
_ZONES = 3
KUBERNETES = "1.34"
"""The assumed Kubernetes version, which determines the images of an alias."""
_OTHER_VERSIONS = ("1.32", "1.35")
"""The last version with AL2, and the first with Windows Server 2025."""


def assumed_zones(catalog: Catalog) -> tuple[str, ...]:
    """Return the zones that are assumed to have subnets: the region's first three, a to c.

    Local zones such as us-west-2-lax-1a, which have longer names, come last.
    """
    sold = {offering.zone for offerings in catalog.offerings.values() for offering in offerings}
    return tuple(sorted(sold, key=lambda zone: (len(zone), zone))[:_ZONES])


def statuses(manifests: Iterable[Manifest], zones: Sequence[str]) -> dict[str, NodeClassStatus]:
    """Return the resolved status of each readable EC2NodeClass, by name."""
    return shown_statuses(manifests, zones, _assumed_images)


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
