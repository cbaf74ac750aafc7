"""NodeOverlay, karpenter.sh/v1alpha1: what decisions assume about the price, resources and devices of instance types.

Devices are declared by an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import Parsed, ParseOnce, Report, did_you_mean, shown
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, format_resources, parse_resources
from nodesmith.model.apimachinery.requirements import Requirements, contradiction, requirement
from nodesmith.model.kubernetes.devices import (
    DeviceKind,
    amount_of,
    described,
    parse_kind,
)
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
        requirement(item["key"], item["operator"], item.get("values", ())) for item in spec["requirements"]
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
        devices,
    )
    problems = read.report.problems
    if devices:
        problems = tuple(problem for problem in problems if problem.remedy != CHANGES_NOTHING)
    return Parsed(overlay, problems)


def _devices(manifest: Mapping[str, object], report: Report) -> tuple[tuple[DeviceKind, int], ...]:
    """Return the devices that the annotation declares. Problems go into the report."""
    metadata = manifest.get("metadata")
    texts = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = texts.get(DEVICES_ANNOTATION) if isinstance(texts, Mapping) else None
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
    return sorted(
        sorted(overlays, key=lambda overlay: overlay.name, reverse=True), key=lambda overlay: -overlay.weight
    )


_FIELDS = frozenset(
    {"driver", "count", "attributes", "capacity", "allowMultipleAllocations", "counters", "partitions"}
)
_FIELDS_OF_PARTITION = frozenset({"count", "attributes", "capacity", "consumes"})
_MOST_OF_DRIVER, _MOST_KINDS = 128, 512


def parse_annotated(entries: object) -> tuple[tuple[DeviceKind, int], ...]:
    """Read the devices that an annotation declares: kinds, each with how many there are.

    Raises ValueError that names the entry, what was found and what would be right.
    """
    if not isinstance(entries, list) or not entries:
        raise ValueError('must be a list such as [{"driver": "gpu.example.com", "count": 8}]')
    counts: dict[DeviceKind, int] = {}
    for number, entry in enumerate(entries):
        at = f"[{number}]"
        count = _checked(entry, at, _FIELDS)
        if not isinstance(entry.get("driver"), str) or not entry["driver"]:
            raise ValueError(f"{at}.driver: must name the driver, such as gpu.example.com")
        try:
            for kind, number_of_kind in _kinds(entry, count, at):
                counts[kind] = counts.get(kind, 0) + number_of_kind
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(str(error) if str(error).startswith(at) else f"{at}: {error}") from None
        if len(counts) > _MOST_KINDS:
            raise ValueError(f"{at}: at most {_MOST_KINDS} different partitions are simulated")
    return tuple(counts.items())


def _checked(entry: object, at: str, fields: frozenset[str]) -> int:
    """Return the count of an entry."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{at}: found {str(entry)[:64]!r}: must be a map with {min(fields, key=len)}")
    odd = sorted(entry.keys() - fields)
    if odd:
        hint = did_you_mean(odd[0], fields) or f", must be one of {', '.join(sorted(fields))}"
        raise ValueError(f"{at}.{str(odd[0])[:64]} is unknown{hint}")
    count = entry.get("count", 1)
    if type(count) is not int or not 1 <= count <= _MOST_OF_DRIVER:
        raise ValueError(f"{at}.count: found {str(count)[:64]!r}: must be 1 to {_MOST_OF_DRIVER}")
    return count


def _kinds(entry: Mapping[str, Any], count: int, at: str) -> Iterator[tuple[DeviceKind, int]]:
    """Yield the kinds of an entry. Each of `count` devices with counters has its own, which its partitions consume."""
    driver, counters, partitions = entry["driver"], entry.get("counters"), entry.get("partitions")
    if counters is None and partitions is None:
        yield _kind(entry, driver), count
        return
    if counters is None or partitions is None:
        raise ValueError(f"{at}: counters and partitions must be set together")
    if not isinstance(partitions, list) or not partitions:
        raise ValueError(f"{at}.partitions: must be a list of maps with consumes")
    budget = {str(name): amount_of(total) for name, total in counters.items()}
    for number, part in enumerate(partitions):
        path = f"{at}.partitions[{number}]"
        many = _checked(part, path, _FIELDS_OF_PARTITION)
        consumes = {str(name): amount_of(amount) for name, amount in (part.get("consumes") or {}).items()}
        if not consumes or consumes.keys() - budget.keys():
            names = ", ".join(sorted(budget))
            raise ValueError(f"{path}.consumes: must name amounts of the entry's counters: {names}")
        kind = _kind(part, driver)
        for device in range(count):
            prefix = f"{driver}/{at}/{device}/"
            consumed = {prefix + name: amount for name, amount in consumes.items()}
            totals = {prefix + name: (budget[name], budget[name]) for name in consumes}
            yield replace(kind, consumes=FrozenMap(consumed), counters=FrozenMap(totals)), many


def _kind(entry: Mapping[str, Any], driver: str) -> DeviceKind:
    return parse_kind({"driver": driver, **described(entry)})
