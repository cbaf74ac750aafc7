"""Instance types in the format of Karpenter's KWOK provider.

Its rules: each node has an overhead of 100m cpu and 10Mi memory, and capacity for 110 pods unless stated. The labels
karpenter.kwok.sh/instance-{size,family,cpu,memory} are derived from the name and the resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith.adapters.catalog.fields import Statement
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ZONE, ZONE_ID
from nodesmith.model.apimachinery.resources import (
    CPU,
    MEMORY,
    PODS,
    QuantityError,
    Resources,
    format_bytes,
    format_cpu,
    parse_amount,
)
from nodesmith.model.ec2.catalog import Offering, StatedFacts

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
    return statement.unique(_offerings(statement))


def _offerings(statement: Statement) -> Iterator[tuple[str, Offering]]:
    for path, offer in statement.offers():
        fields = {name.lower(): value for name, value in offer.items()}
        values = _requirements(statement, path, fields.get("requirements"))
        price = statement.price(f"{path}.Price", fields.get("price"))
        zones = values.get(ZONE, [])
        if not zones:
            statement.report(f"{path}.Requirements[{ZONE}]", None, "name the zone with operator In")
        zone_ids = values.get(ZONE_ID, [])
        zone_id = zone_ids[0] if len(zone_ids) == len(zones) == 1 else ""
        for wanted in values.get(CAPACITY_TYPE) or (None,):
            kind = statement.capacity_type(f"{path}.Requirements[{CAPACITY_TYPE}]", wanted)
            if kind and price:
                available = fields.get("available") is not False
                yield from ((path, Offering(zone, kind, price, False, zone_id, available)) for zone in zones)


def _requirements(statement: Statement, path: str, found: object) -> dict[str, list[str]]:
    """Return values by key. Only the operator In is valid because an offering is one place."""
    values: dict[str, list[str]] = {}
    for position, needed in enumerate(found if isinstance(found, list) else ()):
        match needed:
            case {"key": str(key), "operator": "In", "values": [str(), *_] as listed}:
                values[key] = [str(value) for value in listed]
                if key not in _PLACE:
                    remedy = f"ignored: only {', '.join(_PLACE)} identify an offering; remove it"
                    statement.report(f"{path}.Requirements[{key}]", listed, remedy)
            case _:
                where = f"{path}.Requirements[{position}]"
                statement.report(where, needed, "write key, operator In and a list of values")
    return values


def _operating_systems(statement: Statement) -> tuple[str, ...]:
    found = statement.entry.get("operatingSystems")
    if isinstance(found, list) and found and all(isinstance(system, str) for system in found):
        return tuple(found)
    statement.report("operatingSystems", found, 'write a list such as ["linux"]')
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
    family, *rest = re.split(r"[.-]", name, maxsplit=1)
    return {
        f"{KWOK_DOMAIN}/instance-size": size[1] if size else cpu,
        f"{KWOK_DOMAIN}/instance-family": family if rest else name[0],
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
