"""Prices of nodes, from the catalogue that decisions use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.ec2.catalog import Catalog, product_of, sold_as

HOURS_A_MONTH, HOURS_A_YEAR = 730, 8760


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars an hour; `estimated` if the price is not known exactly."""

    hourly_usd: float
    estimated: bool = False


def estimate_mark(is_estimated: bool) -> str:
    """Return what precedes a price: `~` for an estimate, nothing for an exact one."""
    return "~" if is_estimated else ""


PriceOf = Callable[[Mapping[str, str]], Price | None]
"""Returns the price of a node with these labels, or None if it is unknown."""


def prices(catalog: Catalog) -> PriceOf:
    """Return the price lookup by a node's labels: instance type, zone, capacity type, operating system and tenancy."""

    def price_of(labels: Mapping[str, str]) -> Price | None:
        pool = labels.get(ZONE), labels.get(CAPACITY_TYPE)
        offered = sold_as(catalog, labels.get(INSTANCE_TYPE, ""), product_of(labels))
        matching = (offering for offering in offered if (offering.zone, offering.capacity_type) == pool)
        return next((Price(offering.price_hourly_usd, offering.estimated) for offering in matching), None)

    return price_of
