"""Prices of nodes, from the catalogue that decisions use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nodesmith.model.ec2.catalog import Catalog

HOURS_A_MONTH, HOURS_A_YEAR = 730, 8760


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars an hour; `estimated` if the price is not known exactly."""

    hourly_usd: float
    estimated: bool = False


PriceOf = Callable[[str, str, str], Price | None]
"""Returns the price for capacity type, instance type and zone, or None if it is unknown."""


def prices(catalog: Catalog) -> PriceOf:
    """Return the price lookup by capacity type, instance type and zone."""
    known = {
        (offering.capacity_type, name, offering.zone): Price(offering.price_hourly_usd, offering.estimated)
        for name, offerings in catalog.offerings.items()
        for offering in offerings
    }

    def price_of(capacity_type: str, instance_type: str, zone: str) -> Price | None:
        return known.get((capacity_type, instance_type, zone))

    return price_of
