"""Dynamic resource allocation (resource.k8s.io): devices, and the claims of pods to them.

Devices that no selector can tell apart are one kind with a number. Attributes and capacity have qualified names, such
as `gpu.example.com/model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.quantities import QuantityError, parse_quantity
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements, requirement
from nodesmith.model.apimachinery.resources import Resources

UNKNOWN_DEVICES = (
    "it claims devices (spec.resourceClaims), but it is not known which instance types have them: declare them with the"
    " annotation nodesmith.dev/devices of a NodeOverlay, or ask for an extended resource such as nvidia.com/gpu instead"
)
REQUESTED_DRIVERS = "karpenter.sh/requested-dra-drivers"
"""On NodeClaims: the drivers, separated by commas, that must publish their devices before the node is initialized."""
DEVICES = "devices.nodesmith.dev/"
"""Prefix of the resources that stand for devices in a decision. They are on no object."""
MOST_DEVICES, MOST_REQUESTS = 32, 32
"""Kubernetes' limits for one ResourceClaim."""
ALL = 0
"""The count of a request for all devices of a node that it selects."""
Stock = tuple[tuple["DeviceKind", int, int], ...]
"""Kinds of devices, each with how many there are and how many of them are free."""


NO_ATTRIBUTES: FrozenMap[FrozenMap[Any]] = FrozenMap()


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices that nothing tells apart. Attributes are as in the API, `{"string": "a100"}`, capacities quantities."""

    driver: str
    attributes: FrozenMap[FrozenMap[Any]] = NO_ATTRIBUTES
    capacity: FrozenMap[str] = NO_ITEMS

    def value(self, attribute: str) -> object:
        """Return the value of an attribute, with its type; None if it has none."""
        return self.attributes.get(attribute)


def parse_kind(manifest: Mapping[str, Any]) -> DeviceKind:
    """Read a kind of devices. Raises KeyError, TypeError, AttributeError or ValueError for content that makes no sense.

    A name without a domain belongs to the driver.
    """
    driver = str(manifest["driver"])
    attributes = {
        qualified(str(name), driver): FrozenMap(_attribute(value))
        for name, value in (manifest.get("attributes") or {}).items()
    }
    capacity = {
        qualified(str(name), driver): str(value) for name, value in (manifest.get("capacity") or {}).items()
    }
    for amount in capacity.values():
        parse_quantity(amount)
    return DeviceKind(driver, FrozenMap(attributes), FrozenMap(capacity))


ATTRIBUTE_TYPES: Mapping[str, type] = {"string": str, "bool": bool, "int": int, "version": str}


def _attribute(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, held),) = value.items()
        if type(held) is ATTRIBUTE_TYPES.get(name):
            return {name: held}
    for name, kind in (("string", str), ("bool", bool), ("int", int)):
        if type(value) is kind:
            return {name: value}
    raise ValueError(
        f'an attribute is {str(value)[:64]!r}: must be text, a number, true, false or {{"version": "1.2.3"}}'
    )


def qualified(name: str, driver: str) -> str:
    """Return the name of an attribute or capacity with its domain."""
    return name if "/" in name else f"{driver}/{name}"


@dataclass(frozen=True, slots=True)
class Want:
    """Some devices: `count` of those that the DeviceClass and the selectors select, or `ALL` of them."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim. Of its `wants`, the first that can be met counts; `exactly` has one."""

    name: str
    wants: tuple[Want, ...]


@dataclass(frozen=True, slots=True)
class Alike:
    """A constraint: the devices for these requests of a claim, all if empty, have the same value of an attribute."""

    requests: tuple[str, ...]
    attribute: str

    def covers(self, request: str, want: str) -> bool:
        """Return whether it applies to a request, or to one of its alternatives by name."""
        return not self.requests or request in self.requests or f"{request}/{want}" in self.requests


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of a pod. `key` (namespace/name) is that of a ResourceClaim that pods name; others have their own.

    `problem` is why it cannot be simulated, empty if it can. `node` is the node whose devices are allocated to it
    already, empty if there is none. `terms` are where pods reach devices that are allocated to it and belong to no
    node; None if there are none.
    """

    name: str
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Alike, ...] = ()
    key: str = ""
    problem: str = ""
    node: str = ""
    terms: tuple[Requirements, ...] | None = None

    @property
    def is_allocated(self) -> bool:
        return bool(self.node) or self.terms is not None

    @property
    def content(self) -> tuple[object, ...]:
        """What it asks for, whichever claim it is."""
        return self.requests, self.constraints


def parse_claim(manifest: Mapping[str, Any]) -> PodClaim:
    """Read a claim as `observation` writes it. Raises KeyError, TypeError, AttributeError or ValueError."""
    allocation = manifest.get("allocation")
    return PodClaim(
        name=str(manifest["name"]),
        requests=tuple(map(_request, manifest.get("requests") or ())),
        constraints=tuple(
            Alike(tuple(map(str, each.get("requests") or ())), str(each["attribute"]))
            for each in manifest.get("constraints") or ()
        ),
        key=str(manifest.get("key") or ""),
        problem=str(manifest.get("problem") or ""),
        node=str((allocation or {}).get("node") or ""),
        terms=parse_terms(allocation["terms"]) if allocation and "terms" in allocation else None,
    )


def _request(manifest: Mapping[str, Any]) -> DeviceRequest:
    wants = tuple(
        Want(
            str(each.get("name") or ""),
            str(each["class"]),
            tuple(map(str, each.get("selectors") or ())),
            int(each["count"]),
        )
        for each in manifest["wants"]
    )
    return DeviceRequest(str(manifest["name"]), wants)


def parse_terms(terms: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Requirements, ...]:
    """Read the terms of a node selector, each a list of expressions; no term means every node."""
    found = [
        Requirements.of(
            *(requirement(str(e["key"]), str(e["operator"]), map(str, e.get("values") or ())) for e in term)
        )
        for term in terms
    ]
    return tuple(found) or (NO_REQUIREMENTS,)


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Devices of one driver that are in one place: on `node`, or wherever a node meets one of `terms`.

    Until all ResourceSlices of a pool are there, it is not `complete`, and nothing is allocated from it.
    """

    driver: str
    name: str
    node: str = ""
    terms: tuple[Requirements, ...] = ()
    complete: bool = True
    stock: Stock = ()


@dataclass(frozen=True, slots=True)
class ClusterDevices:
    """The devices of a cluster, and the selectors of its DeviceClasses by name."""

    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pools: tuple[DevicePool, ...] = ()

    def published(self, node: str) -> frozenset[str]:
        """Return the drivers all of whose pools on a node are complete."""
        mine = [pool for pool in self.pools if pool.node == node]
        partly = {pool.driver for pool in mine if not pool.complete}
        return frozenset(pool.driver for pool in mine) - partly


def parse_devices(manifest: Mapping[str, Any]) -> ClusterDevices:
    """Read a cluster's devices as `observation` writes them. Raises KeyError, TypeError, ValueError or IndexError."""
    kinds = [parse_kind(each) for each in manifest["kinds"]]
    pools = tuple(
        DevicePool(
            str(each["driver"]),
            str(each["name"]),
            str(each.get("node") or ""),
            parse_terms(each["terms"]) if "terms" in each else (),
            bool(each["complete"]),
            tuple((kinds[kind], int(total), int(free)) for kind, total, free in each["stock"]),
        )
        for each in manifest["pools"]
    )
    classes = {
        str(name): tuple(map(str, selectors)) for name, selectors in sorted(manifest["classes"].items())
    }
    return ClusterDevices(classes, pools)


def without_devices(resources: Resources) -> Resources:
    """Return resources without those that stand for devices, which no Node shows."""
    if not any(name.startswith(DEVICES) for name in resources):
        return resources
    return Resources({name: amount for name, amount in resources.items() if not name.startswith(DEVICES)})


def node_of(terms: Iterable[Mapping[str, Any]]) -> str:
    """Return the node that the only term of a node selector names, empty if it selects otherwise."""
    only = list(terms)
    fields = only[0].get("matchFields") or () if len(only) == 1 else ()
    for each in fields:
        values = list(each.get("values") or ())
        if each.get("key") == "metadata.name" and each.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""


_ANNOTATED = frozenset({"driver", "count", "attributes", "capacity"})
_MOST_OF_DRIVER = 128


def parse_annotated(entries: object) -> tuple[tuple[DeviceKind, int], ...]:
    """Read the devices that an annotation declares: kinds, each with how many there are.

    Raises ValueError that names the entry, what was found and what would be right.
    """
    if not isinstance(entries, list) or not entries:
        raise ValueError('must be a list such as [{"driver": "gpu.example.com", "count": 8}]')
    found: dict[DeviceKind, int] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ValueError(f"[{number}]: found {str(entry)[:64]!r}: must be a map with driver and count")
        odd = sorted(entry.keys() - _ANNOTATED)
        if odd:
            hint = did_you_mean(odd[0], _ANNOTATED) or f", must be one of {', '.join(sorted(_ANNOTATED))}"
            raise ValueError(f"[{number}].{str(odd[0])[:64]} is unknown{hint}")
        count = entry.get("count", 1)
        if type(count) is not int or not 1 <= count <= _MOST_OF_DRIVER:
            raise ValueError(f"[{number}].count: found {str(count)[:64]!r}: must be 1 to {_MOST_OF_DRIVER}")
        if not isinstance(entry.get("driver"), str) or not entry["driver"]:
            raise ValueError(f"[{number}].driver: must name the driver, such as gpu.example.com")
        try:
            kind = parse_kind(entry)
        except (QuantityError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"[{number}]: {error}") from None
        found[kind] = found.get(kind, 0) + count
    return tuple(found.items())
