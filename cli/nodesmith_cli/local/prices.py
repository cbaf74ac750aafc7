"""Prices of nodes, from the catalogue that decisions use."""

from __future__ import annotations

from nodesmith.model.ec2.catalog import Catalog
from nodesmith_cli.local.report import Price, PriceOf


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
