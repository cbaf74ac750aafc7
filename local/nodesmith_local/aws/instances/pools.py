"""Pools of EC2 capacity that are deliberately empty, or that EC2 refuses with an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import OfferingKey

_ZONE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)+-[\d*?\[].*")


@dataclass(frozen=True, slots=True)
class PoolPattern:
    """Pools by glob patterns of capacity type, instance type and zone."""

    text: str
    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"

    def matches(self, pool: OfferingKey) -> bool:
        """Return whether the pattern matches the pool."""
        return (
            fnmatchcase(pool.capacity_type, self.capacity_type)
            and fnmatchcase(pool.instance_type, self.instance_type)
            and fnmatchcase(pool.zone, self.zone)
        )


def parse_pattern(text: str) -> PoolPattern:
    """Parse `[spot|on-demand:][TYPE:][ZONE]`, any part a glob: `m5.large`, `c*`, `us-east-1a`, `spot:m5.*:us-east-1a`.

    Raises Rejected.
    """
    fields: dict[str, str] = {}
    for part in text.split(":"):
        field = _field(part)
        if not part or field in fields:
            raise Rejected(
                f"pool {text!r}: write [spot|on-demand:][TYPE:][ZONE], such as m5.large:us-east-1a or spot:c*"
            )
        fields[field] = part
    return PoolPattern(text, **fields)


def _field(part: str) -> str:
    if part in (SPOT, ON_DEMAND):
        return "capacity_type"
    return "zone" if _ZONE.fullmatch(part) and "." not in part else "instance_type"


class Pools:
    """The pools that have no capacity at the moment, and those that EC2 refuses, with the error code.

    Raises Rejected for a pattern that matches no offering.
    """

    def __init__(self, empty: Iterable[str] = (), catalog: Catalog | None = None) -> None:
        self._catalog = catalog
        self._empty: tuple[PoolPattern, ...] = ()
        self._refused: tuple[tuple[PoolPattern, str], ...] = ()
        self.in_stock: Callable[[], bool] = lambda: True
        """Returns whether EC2 has any instance left, whatever its pool."""
        for text in empty:
            self.exhaust(text)

    def exhaust(self, text: str) -> None:
        """Empty the pools that a pattern matches."""
        pattern = parse_pattern(text)
        if self._catalog and not any(pattern.matches(pool) for pool in _sold(self._catalog)):
            raise Rejected(f"pool {text!r}: no offering in {self._catalog.region} matches it")
        self._empty = (*self._empty, pattern)

    def refuse(self, text: str, code: str) -> None:
        """Let EC2 return this error code for these pools; the rest of a fleet still launches."""
        self._refused = (*self._refused, (parse_pattern(text), code))

    def refusal(self, pool: OfferingKey) -> str:
        """Return the error code with which EC2 refuses a pool, or "" for none."""
        return next((code for pattern, code in self._refused if pattern.matches(pool)), "")

    def has(self, pool: OfferingKey) -> bool:
        """Return whether the pool has an instance left."""
        return self.in_stock() and not any(pattern.matches(pool) for pattern in self._empty)


def _sold(catalog: Catalog) -> Iterable[OfferingKey]:
    return (
        OfferingKey(offering.capacity_type, name, offering.zone)
        for name, offerings in catalog.offerings.items()
        for offering in offerings
    )
