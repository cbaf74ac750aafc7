"""Dynamic resource allocation (resource.k8s.io): devices, and the claims of pods to them.

Devices that no selector can distinguish are one kind with a number. Attributes and capacity have qualified names, such
as `gpu.example.com/model`. Amounts are in thousandths, so that they add up exactly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.quantities import Resources, parse_quantity, whole_units
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements, requirement

UNKNOWN_DEVICES = (
    "it claims devices (spec.resourceClaims), but it is not known which instance types have them: declare them with the"
    " annotation nodesmith.dev/devices of a NodeOverlay, or ask for an extended resource such as nvidia.com/gpu instead"
)
REQUESTED_DRIVERS = "karpenter.sh/requested-dra-drivers"
"""On NodeClaims: the drivers, separated by commas, that must publish their devices before the node is initialized."""
DEVICES = "devices.nodesmith.dev/"
"""Prefix of the resources that stand for devices in a decision. They are on no object."""
CLAIM_LABEL = f"{DEVICES}claim-"
"""Prefix of the labels by which a decision keeps pods on one node that share a ResourceClaim. No object has them."""
MOST_DEVICES, MOST_REQUESTS = 32, 32
"""Kubernetes' limits for one ResourceClaim."""
ALL = 0
"""The count of a request for all devices of a node that it selects."""
Stock = tuple[tuple["DeviceKind", int, int], ...]
"""Kinds of devices, each with how many there are and how many of them are free."""


NO_ATTRIBUTES: FrozenMap[FrozenMap[Any]] = FrozenMap()
NO_AMOUNTS: FrozenMap[int] = FrozenMap()
NO_COUNTERS: FrozenMap[tuple[int, int]] = FrozenMap()


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices that are alike in every way. Attributes are as in the API, `{"string": "a100"}`, capacities quantities.

    Claims share a device that `is_shared`: each takes some of its capacity, as its `policies` say (the requestPolicy of
    each capacity as JSON), and `used` is what claims have taken. A partition `consumes` counters that other devices
    consume as well; `counters` are how much of each is left, and how much there is.
    """

    driver: str
    attributes: FrozenMap[FrozenMap[Any]] = NO_ATTRIBUTES
    capacity: FrozenMap[str] = NO_ITEMS
    is_shared: bool = False
    policies: FrozenMap[str] = NO_ITEMS
    consumes: FrozenMap[int] = NO_AMOUNTS
    used: FrozenMap[int] = NO_AMOUNTS
    counters: FrozenMap[tuple[int, int]] = NO_COUNTERS

    @property
    def is_divisible(self) -> bool:
        """Whether an allocation takes a part of something, so that no number says how many are left."""
        return self.is_shared or bool(self.consumes)

    @property
    def selectable(self) -> tuple[object, ...]:
        """What decides whether a request selects it."""
        return self.driver, self.attributes, self.capacity, self.is_shared, self.policies

    def unused(self) -> DeviceKind:
        """Return it as it is on a new node."""
        if not self.is_divisible:
            return self
        counters = {name: (total, total) for name, (_, total) in self.counters.items()}
        return replace(self, used=FrozenMap(), counters=FrozenMap(counters))

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
    consumes = {str(name): int(amount) for name, amount in (manifest.get("consumes") or {}).items()}
    policies = {
        qualified(str(name), driver): str(text) for name, text in (manifest.get("policies") or {}).items()
    }
    return DeviceKind(
        driver,
        FrozenMap(attributes),
        FrozenMap(capacity),
        manifest.get("shared") is True,
        FrozenMap(policies),
        FrozenMap(consumes),
    )


def amount_of(quantity: object) -> int:
    """Return a quantity in thousandths. Raises ValueError for a negative one, and QuantityError."""
    amount = whole_units(quantity, per_unit=1000)
    if amount < 0:
        raise ValueError(f"{str(quantity)[:64]!r} is negative")
    return amount


ATTRIBUTE_TYPES: Mapping[str, type] = {"string": str, "bool": bool, "int": int, "version": str}


def _attribute(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, raw),) = value.items()
        if type(raw) is ATTRIBUTE_TYPES.get(name):
            return {name: raw}
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
class DeviceSelection:
    """Some devices: `count` of those that the DeviceClass and the selectors select, or `ALL` of them.

    `capacity` is how much each of them must have, or gives of what it shares, by names as in the request.
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1
    capacity: FrozenMap[int] = NO_AMOUNTS


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim. Of its `wants`, the first that can be met counts; `exactly` has one."""

    name: str
    wants: tuple[DeviceSelection, ...]


@dataclass(frozen=True, slots=True)
class MatchAttribute:
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
    constraints: tuple[MatchAttribute, ...] = ()
    key: str = ""
    problem: str = ""
    node: str = ""
    terms: tuple[Requirements, ...] | None = None

    @property
    def content(self) -> tuple[object, ...]:
        """What it asks for, whichever claim it is."""
        return self.requests, self.constraints


def contents(claims: Iterable[PodClaim]) -> tuple[object, ...]:
    """Return what claims ask for together, whichever claims they are."""
    return tuple(claim.content for claim in claims)


def parse_claim(manifest: Mapping[str, Any]) -> PodClaim:
    """Read a claim as `observation` writes it. Raises KeyError, TypeError, AttributeError or ValueError."""
    allocation = manifest.get("allocation")
    return PodClaim(
        name=str(manifest["name"]),
        requests=tuple(map(_request, manifest.get("requests") or ())),
        constraints=tuple(
            MatchAttribute(tuple(map(str, constraint.get("requests") or ())), str(constraint["attribute"]))
            for constraint in manifest.get("constraints") or ()
        ),
        key=str(manifest.get("key") or ""),
        problem=str(manifest.get("problem") or ""),
        node=str((allocation or {}).get("node") or ""),
        terms=parse_terms(allocation["terms"]) if allocation and "terms" in allocation else None,
    )


def _request(manifest: Mapping[str, Any]) -> DeviceRequest:
    wants = tuple(
        DeviceSelection(
            str(want.get("name") or ""),
            str(want["class"]),
            tuple(map(str, want.get("selectors") or ())),
            int(want["count"]),
            FrozenMap({str(name): int(amount) for name, amount in (want.get("capacity") or {}).items()}),
        )
        for want in manifest["wants"]
    )
    return DeviceRequest(str(manifest["name"]), wants)


def parse_terms(terms: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Requirements, ...]:
    """Read the terms of a node selector, each a list of expressions; no term means every node."""
    requirements = [
        Requirements.of(
            *(requirement(str(e["key"]), str(e["operator"]), map(str, e.get("values") or ())) for e in term)
        )
        for term in terms
    ]
    return tuple(requirements) or (NO_REQUIREMENTS,)


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
    kinds, seen = [parse_kind(kind) for kind in manifest["kinds"]], Counter[tuple[str, str]]()
    pools = tuple(
        DevicePool(
            str(pool["driver"]),
            str(pool["name"]),
            str(pool.get("node") or ""),
            parse_terms(pool["terms"]) if "terms" in pool else (),
            bool(pool["complete"]),
            (
                *((kinds[kind], int(total), int(free)) for kind, total, free in pool["stock"]),
                *_divisible(pool, kinds, seen),
            ),
        )
        for pool in manifest["pools"]
    )
    classes = {
        str(name): tuple(map(str, selectors)) for name, selectors in sorted(manifest["classes"].items())
    }
    return ClusterDevices(classes, pools)


def _divisible(
    pool: Mapping[str, Any], kinds: Sequence[DeviceKind], seen: Counter[tuple[str, str]]
) -> Iterator[tuple[DeviceKind, int, int]]:
    """Yield the shared devices and the partitions of a pool, with counters that no other pool has.

    `seen` counts the pools of a driver on a node: nodes of a type have the same kinds whatever their pools' names are.
    """
    place = str(pool["driver"]), str(pool.get("node") or "")
    prefix = f"{place[0]}/{seen[place]}/"
    seen[place] += 1
    counters = {
        str(name): (int(left), int(total)) for name, (left, total) in (pool.get("counters") or {}).items()
    }
    for number, total, free, used in pool.get("divisible") or ():
        kind = kinds[number]
        divided = replace(
            kind,
            consumes=FrozenMap({prefix + name: amount for name, amount in kind.consumes.items()}),
            counters=FrozenMap({prefix + name: counters[name] for name in kind.consumes}),
            used=FrozenMap({str(name): int(amount) for name, amount in used.items()}),
        )
        yield divided, int(total), int(free)


def without_devices(resources: Resources) -> Resources:
    """Return resources without those that stand for devices, which no Node shows."""
    if not any(name.startswith(DEVICES) for name in resources):
        return resources
    return Resources({name: amount for name, amount in resources.items() if not name.startswith(DEVICES)})


def node_of(terms: Iterable[Mapping[str, Any]]) -> str:
    """Return the node that the only term of a node selector names, empty if it selects otherwise."""
    only = list(terms)
    fields = only[0].get("matchFields") or () if len(only) == 1 else ()
    for item in fields:
        values = list(item.get("values") or ())
        if item.get("key") == "metadata.name" and item.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity a claim may take: one of `values`, or from `least` to `most` in steps.

    `default` is for requests that do not name the capacity; without one they take all of it.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def rounded(self, requested: int) -> int | None:
        """Return how much a claim takes that asks for an amount; None if the policy has no such amount."""
        if self.values:
            return next((value for value in sorted(self.values) if requested <= value), None)
        if self.least is not None:
            steps = -(-max(0, requested - self.least) // self.step) * self.step if self.step else 0
            requested = self.least + steps if self.step else max(requested, self.least)
        return requested if self.most is None or requested <= self.most else None


@lru_cache(maxsize=1024)
def parse_policy(text: str) -> RequestPolicy:
    """Read a requestPolicy from JSON. Raises TypeError, AttributeError, ValueError or QuantityError."""
    policy = json.loads(text)
    valid = policy.get("validRange") or {}
    limits = (valid.get("min"), valid.get("max"), valid.get("step"))
    least, most, step = (None if limit is None else amount_of(limit) for limit in limits)
    default = policy.get("default")
    values = tuple(map(amount_of, policy.get("validValues") or ()))
    return RequestPolicy(None if default is None else amount_of(default), values, least, most, step or None)


def described(device: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes, capacity and what is shared of a device of a ResourceSlice, as `parse_kind` reads it.

    A capacity is a quantity, or an object with `value` and `requestPolicy` as in the API. Raises like `parse_policy`.
    """
    capacity, policies = {}, {}
    for name, capacity_value in (device.get("capacity") or {}).items():
        is_object = isinstance(capacity_value, Mapping)
        capacity[name] = str(capacity_value["value"] if is_object else capacity_value)
        if is_object and capacity_value.get("requestPolicy"):
            policies[name] = json.dumps(
                capacity_value["requestPolicy"], sort_keys=True, separators=(",", ":")
            )
            parse_policy(policies[name])
    shared = {"shared": True, "policies": policies} if device.get("allowMultipleAllocations") else {}
    return {"attributes": device.get("attributes") or {}, "capacity": capacity, **shared}
