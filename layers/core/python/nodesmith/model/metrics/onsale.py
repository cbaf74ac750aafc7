"""The offerings that a cluster's NodePools may buy, as exported to Prometheus. Readers validate all of the data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.errors import Rejected

FORMAT = 1
MOST_OFFERINGS = 20_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class OfferingOnSale:
    """One way to buy a type. `is_available` is False while EC2 has recently had no capacity for it."""

    capacity_type: str
    zone: str
    price_hourly_usd: float
    is_available: bool


@dataclass(frozen=True, slots=True)
class TypeOnSale:
    """An instance type with those of its offerings that at least one NodePool allows."""

    cpu_cores: int
    memory_bytes: int
    offerings: tuple[OfferingOnSale, ...]


OnSale = Mapping[str, TypeOnSale]
"""Name of an instance type → its data, sorted by name"""


def to_bytes(types: OnSale) -> bytes:
    """Return the data as bytes, identical for equal content."""
    content = {
        name: [
            kind.cpu_cores,
            kind.memory_bytes,
            [[o.capacity_type, o.zone, o.price_hourly_usd, int(o.is_available)] for o in kind.offerings],
        ]
        for name, kind in types.items()
    }
    return json.dumps({"format": FORMAT, "types": content}, separators=(",", ":"), sort_keys=True).encode()


def from_bytes(data: bytes) -> OnSale:
    """Read what `to_bytes` wrote. Raises Rejected for anything else."""
    try:
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        types = {_name(name): _type(kind) for name, kind in content["types"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise Rejected(
            f"offerings: expected an object of format {FORMAT}, found {data[:80]!r} ({error})"
        ) from None
    if sum(len(kind.offerings) for kind in types.values()) > MOST_OFFERINGS:
        raise Rejected(f"offerings: more than {MOST_OFFERINGS}")
    return types


def _type(told: Any) -> TypeOnSale:
    cpu_cores, memory_bytes, offerings, *_ = told  # a later version may have added columns
    found = tuple(
        OfferingOnSale(_name(capacity_type), _name(zone), _price(price), is_available == 1)
        for capacity_type, zone, price, is_available, *_ in offerings
    )
    return TypeOnSale(int(cpu_cores), int(memory_bytes), found)


def _name(text: Any) -> str:
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError(f"name {str(text)[:80]!r}")
    return text


def _price(number: Any) -> float:
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(f"price {number!r}")
    return float(number)
