"""NodeOverlay, karpenter.sh/v1alpha1: what decisions assume about the price and resources of instance types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodesmith.model.apimachinery.problems import Parsed, ParseOnce, Report, shown
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, format_resources, parse_resources
from nodesmith.model.apimachinery.requirements import Requirements, contradiction, requirement
from nodesmith.model.kubernetes.deviceparts import parse_annotated
from nodesmith.model.kubernetes.devices import DeviceKind
from nodesmith.model.schema.nodepools import CHANGES_NOTHING, NODE_OVERLAY
from nodesmith.model.schema.reading import read_manifest

PRICE_APPLIED = "karpenter.sh/price-overlay-applied"
CAPACITY_APPLIED = "karpenter.sh/capacity-overlay-applied"
"""On NodeClaims: `true` if NodeOverlays changed the price or the resources of any type that was asked for."""
DEVICES_ANNOTATION = "nodesmith.dev/devices"
"""On NodeOverlays: the devices that drivers will publish on matching nodes, as JSON: see `parse_annotated`."""
_LONGEST = 65_536


@dataclass(frozen=True, slots=True)
class NodeOverlay:
    """A valid NodeOverlay. `price` is the text of `price` or `priceAdjustment`, empty if it changes no price."""

    name: str
    requirements: Requirements
    price: str = ""
    capacity: Resources = NOTHING
    weight: int = 0
    generation: int = 0
    devices: tuple[tuple[DeviceKind, int], ...] = ()
    """Devices of dynamic resource allocation that matching nodes have; those of a driver replace lighter ones."""

    def priced(self, price_hourly_usd: float) -> float:
        """Return the price that decisions use instead of this one: USD an hour, at least 0."""
        if not self.price.startswith(("+", "-")):
            return float(self.price)
        if self.price.endswith("%"):
            return max(0.0, price_hourly_usd * (1 + float(self.price[:-1]) / 100))
        return max(0.0, price_hourly_usd + float(self.price))

    @property
    def change(self) -> str:
        """What it changes, for messages: `price 0.5`, `price -15%, example.com/device 4`."""
        price = f"price {self.price}" if self.price else ""
        added = (f"{name} {amount}" for name, amount in format_resources(self.capacity).items())
        devices = (f"{count} devices of {kind.driver}" for kind, count in self.devices)
        return ", ".join(filter(None, (price, *added, *devices))) or "nothing"

    @property
    def adds(self) -> frozenset[str]:
        """What it adds to types, for comparison: names of resources, and drivers of devices."""
        drivers = (f"the devices of {kind.driver}" for kind, _ in self.devices)
        return frozenset((*self.capacity, *drivers))


def parse_nodeoverlay(manifest: Mapping[str, object]) -> Parsed[NodeOverlay]:
    """Read a NodeOverlay and report all of its problems. Never raises."""
    read = read_manifest(NODE_OVERLAY, manifest)
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    spec = read.spec
    parts = [
        requirement(each["key"], each["operator"], each.get("values", ())) for each in spec["requirements"]
    ]
    if clash := contradiction(parts):
        read.report.add("spec.requirements", "a contradiction", f"no node can have such a {clash}")
        return Parsed(None, read.report.problems)
    devices = _devices(manifest, read.report)
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    overlay = NodeOverlay(
        read.metadata["name"],
        Requirements.of(*parts),
        spec.get("price", spec.get("priceAdjustment", "")),
        parse_resources(spec.get("capacity")),
        spec.get("weight", 0),
        read.metadata["generation"],
        devices,
    )
    problems = read.report.problems
    if devices:
        problems = tuple(each for each in problems if each.remedy != CHANGES_NOTHING)
    return Parsed(overlay, problems)


def _devices(manifest: Mapping[str, object], report: Report) -> tuple[tuple[DeviceKind, int], ...]:
    """Return the devices that the annotation declares. Problems go into the report."""
    metadata = manifest.get("metadata")
    given = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = given.get(DEVICES_ANNOTATION) if isinstance(given, Mapping) else None
    if text is None:
        return ()
    try:
        if len(str(text)) > _LONGEST:
            raise ValueError(f"must have at most {_LONGEST:,} characters")
        return parse_annotated(json.loads(str(text)))
    except (ValueError, RecursionError) as error:
        report.add(f"metadata.annotations[{DEVICES_ANNOTATION}]", shown(text), str(error))
        return ()


parse_nodeoverlays = ParseOnce(parse_nodeoverlay)


def in_order(overlays: Iterable[NodeOverlay]) -> list[NodeOverlay]:
    """Return NodeOverlays in the order in which they apply: the heaviest first, then the last by name."""
    return sorted(sorted(overlays, key=lambda each: each.name, reverse=True), key=lambda each: -each.weight)
