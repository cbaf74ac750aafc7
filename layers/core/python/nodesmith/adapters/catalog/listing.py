"""Instance types in the format of `nodesmith catalog -o json`: writing it, and reading and validating it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.labels import ARCH, AWS_DOMAIN, AWS_KEYS, CAPACITY_TYPES, INSTANCE_TYPE, OS
from nodesmith.model.apimachinery.problems import Problem, did_you_mean
from nodesmith.model.apimachinery.quantities import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from nodesmith.model.ec2.catalog import Catalog, Offering, StatedFacts
from nodesmith.model.ec2.instancetypes import InstanceType

ARCHITECTURES = ("amd64", "arm64")
_OTHER_SPELLINGS = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Statement:
    """One entry of a file, with the list that collects its problems."""

    position: str
    """label of an entry without a name: `instance type 3`"""
    entry: Mapping[str, Any]
    problems: list[Problem]

    def report(self, field: str, found: object, remedy: str) -> None:
        """Report a problem with a field."""
        shown = "missing" if found is None else repr(found)[:_SHOWN]
        self.problems.append(Problem(self._name(), field, shown, remedy))

    def text(self, field: str) -> str | None:
        """Return a field that must be a non-empty string, or report it."""
        value = self.entry.get(field)
        if isinstance(value, str) and value:
            return value
        self.report(field, value, "write a non-empty string")
        return None

    def arch(self, field: str) -> str | None:
        """Return an architecture by its Kubernetes name, or report it."""
        value = self.entry.get(field)
        if value in ARCHITECTURES:
            return str(value)
        likely = _OTHER_SPELLINGS.get(str(value).lower())
        hint = f"did you mean {likely!r}?" if likely else f"write one of {', '.join(ARCHITECTURES)}"
        self.report(field, value, hint)
        return None

    def mapping(self, field: str) -> Mapping[str, Any] | None:
        """Return a field that must be an object, or report it."""
        value = self.entry.get(field)
        if isinstance(value, dict):
            return value
        self.report(field, value, "write an object of names and values")
        return None

    def offers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the offerings with their paths. Report those that are not objects."""
        found = self.entry.get("offerings")
        if not isinstance(found, list):
            self.report("offerings", found, "write a list of offerings")
            return
        for position, offer in enumerate(found):
            if isinstance(offer, dict):
                yield f"offerings[{position}]", offer
            else:
                self.report(f"offerings[{position}]", offer, "write an object")

    def price(self, field: str, value: object) -> float | None:
        """Return an hourly price, or report it. Zero is invalid because it would always win."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self.report(field, value, "write the hourly price as a positive number, such as 0.096")
        return None

    def capacity_type(self, field: str, value: object) -> str | None:
        """Return a capacity type that Karpenter knows, or report it."""
        if value in CAPACITY_TYPES:
            return str(value)
        hint = did_you_mean(str(value), CAPACITY_TYPES).removeprefix(", ")
        self.report(field, value, hint or f"write one of {', '.join(CAPACITY_TYPES)}")
        return None

    def unique(self, offerings: Iterator[tuple[str, Offering]]) -> Iterator[Offering]:
        """Yield the offerings. Omit and report duplicates of a zone and capacity type."""
        seen = set()
        for path, offering in offerings:
            if (offering.zone, offering.capacity_type) in seen:
                again = f"{offering.capacity_type} in {offering.zone}"
                self.report(path, again, "duplicates an earlier offering, which is kept; remove one")
                continue
            seen.add((offering.zone, offering.capacity_type))
            yield offering

    def _name(self) -> str:
        name = self.entry.get("name")
        return f"InstanceType/{name}" if isinstance(name, str) and name else self.position


_FIELDS = {CPU: "cpuMilli", MEMORY: "memoryBytes", PODS: "pods", EPHEMERAL_STORAGE: "ephemeralStorageBytes"}
_RESOURCES = {field: resource for resource, field in _FIELDS.items()}
_DESCRIBED = frozenset(key for key in AWS_KEYS if "/instance-" in key and not key.endswith("-tenancy"))


def list_types(catalog: Catalog, types: tuple[InstanceType, ...]) -> list[dict[str, Any]]:
    """Return types with all their offerings as JSON data. Offerings that cannot be bought are not `available`."""
    return [_listed(catalog, one) for one in types]


def listed_type(statement: Statement) -> StatedFacts | None:
    """Return an entry's facts, without its offerings. If it is invalid, report the problem and return None."""
    name, arch = statement.text("name"), statement.arch("arch")
    capacity, allocatable = _amounts(statement, "capacity"), _amounts(statement, "allocatable")
    labels = statement.mapping("labels")
    if name is None or arch is None or capacity is None or allocatable is None or labels is None:
        return None
    overhead = {resource: capacity.of(resource) - amount for resource, amount in allocatable.items()}
    if min(overhead.values()) < 0:
        statement.report("allocatable", statement.entry["allocatable"], "write no more than the capacity")
        return None
    named = {str(key): str(value) for key, value in labels.items() if key not in (INSTANCE_TYPE, ARCH)}
    system = named.get(OS, "linux")
    return StatedFacts(
        name, arch, (system,), capacity, Resources(overhead), dict.fromkeys(_DESCRIBED) | named
    )


def listed_offerings(statement: Statement) -> Iterator[Offering]:
    """Yield the valid offerings and report the others."""
    return statement.unique(_offerings(statement))


def _offerings(statement: Statement) -> Iterator[tuple[str, Offering]]:
    for path, offer in statement.offers():
        zone, price = offer.get("zone"), statement.price(f"{path}.priceHourly", offer.get("priceHourly"))
        kind = statement.capacity_type(f"{path}.capacityType", offer.get("capacityType"))
        if not isinstance(zone, str) or not zone:
            statement.report(f"{path}.zone", zone, "write the name of a zone")
        elif kind and price:
            estimated, available = offer.get("estimated") is True, offer.get("available") is not False
            yield path, Offering(zone, kind, price, estimated, available=available)


def _amounts(statement: Statement, field: str) -> Resources | None:
    stated = statement.mapping(field)
    if stated is None:
        return None
    amounts: dict[str, int] = {}
    for name in sorted({*stated, "cpuMilli", "memoryBytes", "pods"}):
        amount = stated.get(name)
        if isinstance(amount, int) and not isinstance(amount, bool) and amount >= 0:
            amounts[_RESOURCES.get(name, name)] = amount
        else:
            statement.report(f"{field}.{name}", amount, "write a whole number, zero or more")
            return None
    return Resources(amounts)


def _listed(catalog: Catalog, one: InstanceType) -> dict[str, Any]:
    bought = {(o.zone, o.capacity_type) for o in one.offerings}
    listed = sorted(catalog.offerings.get(one.name, ()), key=lambda o: (o.zone, o.capacity_type))
    sold_as_mib = one.labels.get(f"{AWS_DOMAIN}/instance-memory", "")
    return {
        "name": one.name,
        "arch": one.labels[ARCH],
        "vcpus": one.capacity.cpu_milli // 1000,
        "memoryMiB": int(sold_as_mib) if sold_as_mib.isdecimal() else one.capacity.memory_bytes // 2**20,
        "maxPods": one.capacity.pods,
        "capacity": {_FIELDS.get(name, name): amount for name, amount in sorted(one.capacity.items())},
        "allocatable": {_FIELDS[name]: one.allocatable.of(name) for name in (CPU, MEMORY, PODS)},
        "labels": dict(sorted(one.labels.items())),
        "offerings": [_listed_offering(o, (o.zone, o.capacity_type) in bought) for o in listed],
    }


def _listed_offering(offering: Offering, available: bool) -> Mapping[str, Any]:
    return {
        "zone": offering.zone,
        "capacityType": offering.capacity_type,
        "priceHourly": offering.price_hourly_usd,
        "estimated": offering.estimated,
        "available": available,
    }
