"""Catalogue files that users provide: the listing of `nodesmith catalog -o json`, nodesmith's own format, or KWOK's."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.adapters.catalog.catalogs import decode, unzip
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import (
    ARCH,
    AWS_DOMAIN,
    AWS_KEYS,
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    INSTANCE_TYPE,
    OS,
    REGION,
    ZONE,
    ZONE_ID,
)
from nodesmith.model.apimachinery.problems import Problem, did_you_mean
from nodesmith.model.apimachinery.quantities import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    QuantityError,
    Resources,
    format_bytes,
    format_cpu,
    parse_amount,
)
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

    def report(self, field: str, value: object, remedy: str) -> None:
        """Report a problem with a field."""
        text = "missing" if value is None else repr(value)[:_SHOWN]
        self.problems.append(Problem(self._name(), field, text, remedy))

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
        offerings = self.entry.get("offerings")
        if not isinstance(offerings, list):
            self.report("offerings", offerings, "write a list of offerings")
            return
        for position, offer in enumerate(offerings):
            if isinstance(offer, dict):
                yield f"offerings[{position}]", offer
            else:
                self.report(f"offerings[{position}]", offer, "write an object")

    def price(self, field: str, value: object) -> float | None:
        """Return an hourly price, or report it. Zero is invalid because it would always be the cheapest."""
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
        pools = set()
        for path, offering in offerings:
            if (offering.zone, offering.capacity_type) in pools:
                duplicate = f"{offering.capacity_type} in {offering.zone}"
                self.report(path, duplicate, "duplicates an earlier offering, which is kept; remove one")
                continue
            pools.add((offering.zone, offering.capacity_type))
            yield offering

    def _name(self) -> str:
        name = self.entry.get("name")
        return f"InstanceType/{name}" if isinstance(name, str) and name else self.position


_FIELDS = {CPU: "cpuMilli", MEMORY: "memoryBytes", PODS: "pods", EPHEMERAL_STORAGE: "ephemeralStorageBytes"}
_RESOURCES = {field: resource for resource, field in _FIELDS.items()}
_DESCRIBED = frozenset(key for key in AWS_KEYS if "/instance-" in key and not key.endswith("-tenancy"))


def list_types(catalog: Catalog, types: tuple[InstanceType, ...]) -> list[dict[str, Any]]:
    """Return types with all their offerings as JSON data. Offerings that cannot be bought are not `available`."""
    return [_listed(catalog, instance_type) for instance_type in types]


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
    other_labels = {str(key): str(value) for key, value in labels.items() if key not in (INSTANCE_TYPE, ARCH)}
    system = other_labels.get(OS, "linux")
    return StatedFacts(
        name, arch, (system,), capacity, Resources(overhead), dict.fromkeys(_DESCRIBED) | other_labels
    )


def listed_offerings(statement: Statement) -> Iterator[Offering]:
    """Yield the valid offerings and report the others."""
    return statement.unique(_read_listed_offerings(statement))


def _read_listed_offerings(statement: Statement) -> Iterator[tuple[str, Offering]]:
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


def _listed(catalog: Catalog, instance_type: InstanceType) -> dict[str, Any]:
    available = {(o.zone, o.capacity_type) for o in instance_type.offerings}
    listed = sorted(catalog.offerings.get(instance_type.name, ()), key=lambda o: (o.zone, o.capacity_type))
    sold_as_mib = instance_type.labels.get(f"{AWS_DOMAIN}/instance-memory", "")
    capacity = instance_type.capacity
    return {
        "name": instance_type.name,
        "arch": instance_type.labels[ARCH],
        "vcpus": capacity.cpu_milli // 1000,
        "memoryMiB": int(sold_as_mib) if sold_as_mib.isdecimal() else capacity.memory_bytes // 2**20,
        "maxPods": capacity.pods,
        "capacity": {_FIELDS.get(name, name): amount for name, amount in sorted(capacity.items())},
        "allocatable": {_FIELDS[name]: instance_type.allocatable.of(name) for name in (CPU, MEMORY, PODS)},
        "labels": dict(sorted(instance_type.labels.items())),
        "offerings": [_listed_offering(o, (o.zone, o.capacity_type) in available) for o in listed],
    }


def _listed_offering(offering: Offering, available: bool) -> Mapping[str, Any]:
    return {
        "zone": offering.zone,
        "capacityType": offering.capacity_type,
        "priceHourly": offering.price_hourly_usd,
        "estimated": offering.estimated,
        "available": available,
    }


_GZIP = b"\x1f\x8b"


def read_catalog_file(
    data: bytes, made_at: datetime, what: str = "catalogue file"
) -> tuple[Catalog, tuple[Problem, ...]]:
    """Read a catalogue file, whose format is detected from its content. A list may be gzip-compressed.

    `what` names the file in messages.

    Invalid instance types and offerings are omitted and returned as problems. Raises Rejected if the file is not a
    catalogue or contains nothing usable.
    """
    if data.startswith(_GZIP):
        text = unzip(data, what)
        if not text.lstrip().startswith(b"["):
            return _stored(data, what), ()
        data = text
    facts: dict[str, StatedFacts] = {}
    offerings: dict[str, tuple[Offering, ...]] = {}
    problems: list[Problem] = []
    for position, entry in enumerate(_entries(data, what)):
        statement = Statement(f"instance type {position + 1}", entry, problems)
        parsed = _read(statement)
        if parsed and parsed[0].name in facts:
            statement.report(
                "name", parsed[0].name, "an earlier instance type has this name and is kept; remove one"
            )
        elif parsed:
            facts[parsed[0].name], offerings[parsed[0].name] = parsed
    if not facts:
        raise Rejected("; ".join([f"{what}: no usable instance type", *map(str, problems[:5])]))
    ref = f"file-{hashlib.sha256(data).hexdigest()[:16]}"
    return Catalog(_region(facts), ref, made_at, facts, offerings), tuple(problems)


def _read(statement: Statement) -> tuple[StatedFacts, tuple[Offering, ...]] | None:
    if is_kwok(statement.entry):
        facts, offered = kwok_type(statement), kwok_offerings
    else:
        facts, offered = listed_type(statement), listed_offerings
    return (facts, tuple(offered(statement))) if facts else None


def _stored(data: bytes, name: str) -> Catalog:
    try:
        return decode(data)
    except Rejected as error:
        raise Rejected(f"{name}: {error}") from error


def _entries(data: bytes, name: str) -> list[Mapping[str, Any]]:
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{name}: not JSON ({error})") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Rejected(f'{name}: write a JSON list of instance types, `[{{"name": …}}]`')
    return entries


def _region(facts: Mapping[str, StatedFacts]) -> str:
    """Return the region that all types name, or an empty string if they differ."""
    regions = {type_facts.labels.get(REGION) or "" for type_facts in facts.values()}
    return regions.pop() if len(regions) == 1 else ""


# Rules of Karpenter's KWOK provider: each node has an overhead of 100m cpu and 10Mi memory, and capacity for 110
# pods unless stated. The labels karpenter.kwok.sh/instance-{size,family,cpu,memory} are derived from the name and
# the resources.
KWOK_DOMAIN = "karpenter.kwok.sh"
_OVERHEAD = Resources({CPU: 100, MEMORY: 10 * 2**20})
_PODS = 110
_PLACE = (ZONE, ZONE_ID, CAPACITY_TYPE)
_AWS_SIZE = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)", re.ASCII)


def is_kwok(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry has this format rather than that of nodesmith's listing."""
    return "resources" in entry or "architecture" in entry


def kwok_type(statement: Statement) -> StatedFacts | None:
    """Return an entry's facts, without its offerings. If it is invalid, report the problem and return None."""
    name, arch = statement.text("name"), statement.arch("architecture")
    systems, amounts = _operating_systems(statement), _resources(statement)
    if name is None or arch is None or not systems or amounts is None:
        return None
    capacity = Resources({PODS: _PODS, **amounts})
    return StatedFacts(name, arch, systems, capacity, _OVERHEAD, _labels(name, statement.entry["resources"]))


def kwok_offerings(statement: Statement) -> Iterator[Offering]:
    """Yield the valid offerings and report the others."""
    return statement.unique(_read_kwok_offerings(statement))


def _read_kwok_offerings(statement: Statement) -> Iterator[tuple[str, Offering]]:
    for path, offer in statement.offers():
        fields = {name.lower(): value for name, value in offer.items()}
        values = _requirements(statement, path, fields.get("requirements"))
        price = statement.price(f"{path}.Price", fields.get("price"))
        zones = values.get(ZONE, [])
        if not zones:
            statement.report(f"{path}.Requirements[{ZONE}]", None, "name the zone with operator In")
        zone_ids = values.get(ZONE_ID, [])
        zone_id = zone_ids[0] if len(zone_ids) == len(zones) == 1 else ""
        for capacity_type in values.get(CAPACITY_TYPE) or (None,):
            kind = statement.capacity_type(f"{path}.Requirements[{CAPACITY_TYPE}]", capacity_type)
            if kind and price:
                available = fields.get("available") is not False
                yield from ((path, Offering(zone, kind, price, False, zone_id, available)) for zone in zones)


def _requirements(statement: Statement, path: str, requirements: object) -> dict[str, list[str]]:
    """Return values by key. Only the operator In is valid because an offering is in one place."""
    values: dict[str, list[str]] = {}
    for position, requirement in enumerate(requirements if isinstance(requirements, list) else ()):
        match requirement:
            case {"key": str(key), "operator": "In", "values": [str(), *_] as listed}:
                values[key] = [str(value) for value in listed]
                if key not in _PLACE:
                    remedy = f"ignored: only {', '.join(_PLACE)} identify an offering; remove it"
                    statement.report(f"{path}.Requirements[{key}]", listed, remedy)
            case _:
                requirement_path = f"{path}.Requirements[{position}]"
                statement.report(requirement_path, requirement, "write key, operator In and a list of values")
    return values


def _operating_systems(statement: Statement) -> tuple[str, ...]:
    systems = statement.entry.get("operatingSystems")
    if isinstance(systems, list) and systems and all(isinstance(system, str) for system in systems):
        return tuple(systems)
    statement.report("operatingSystems", systems, 'write a list such as ["linux"]')
    return ()


def _resources(statement: Statement) -> dict[str, int] | None:
    stated = statement.mapping("resources")
    if stated is None:
        return None
    amounts: dict[str, int] = {}
    for name in sorted({CPU, MEMORY, *stated}):
        try:
            amounts[name] = parse_amount(name, stated.get(name))
        except QuantityError as error:
            statement.report(f"resources.{name}", stated.get(name), str(error))
            continue
        if amounts[name] < 0:
            statement.report(f"resources.{name}", stated[name], "write an amount that is not negative")
    usable = len(amounts) == len({CPU, MEMORY, *stated}) and min(amounts.values()) >= 0
    return amounts if usable else None


def _labels(name: str, resources: Mapping[str, Any]) -> dict[str, str | None]:
    cpu = format_cpu(parse_amount(CPU, resources[CPU]))
    size = _AWS_SIZE.fullmatch(name)
    family, *suffix = re.split(r"[.-]", name, maxsplit=1)
    return {
        f"{KWOK_DOMAIN}/instance-size": size[1] if size else cpu,
        f"{KWOK_DOMAIN}/instance-family": family if suffix else name[0],
        f"{KWOK_DOMAIN}/instance-cpu": cpu,
        f"{KWOK_DOMAIN}/instance-memory": _memory(resources[MEMORY]),
    }


def _memory(stated: object) -> str:
    """Return the canonical quantity. As in Kubernetes, the suffix family stays: 4096Mi is 4Gi, 4000M is 4G."""
    amount, text = parse_amount(MEMORY, stated), str(stated).strip()
    if text.endswith("i"):
        return format_bytes(amount)
    for suffix, scale in (
        ("E", 10**18),
        ("P", 10**15),
        ("T", 10**12),
        ("G", 10**9),
        ("M", 10**6),
        ("k", 10**3),
    ):
        if amount and amount % scale == 0:
            return f"{amount // scale}{suffix}"
    return str(amount)
