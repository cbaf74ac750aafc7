"""Merge current data from AWS into the catalogue, so that a failed call does not lose known data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, Offering, StatedFacts, estimated_spot_price


@dataclass(frozen=True, slots=True)
class ListPrices:
    """On-demand prices per hour by instance type. `estimated` is True if they are those of another region."""

    hourly: Mapping[str, float]
    currency: str = "USD"
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class CatalogUpdate:
    """Current data about a region. A field is None if the data could not be fetched."""

    facts: Mapping[str, InstanceFacts] | None = None
    zones: Mapping[str, str] | None = None
    """zone ids by zone name"""
    offered: Mapping[str, frozenset[str]] | None = None
    """zone names by type"""
    on_demand: Mapping[str, float] | None = None
    spot: Mapping[tuple[str, str], float] | None = None
    """by type and zone name"""


def merge(
    known: Catalog, catalog_update: CatalogUpdate, list_prices: ListPrices, made_at: datetime
) -> Catalog:
    """Return the updated catalogue.

    An on-demand price is the current one, else the known one, else the list price. A spot price is the current one,
    else the known one; estimates are used only until spot prices have been fetched once. There is no offering without a
    price. AWS lists no on-demand prices for local zones and wavelength zones under their region: the region's prices
    stand in for them, as estimates.
    """
    facts: Mapping[str, InstanceFacts | StatedFacts] = catalog_update.facts or known.facts
    zone_ids = {o.zone: o.zone_id for offered in known.offerings.values() for o in offered}
    zone_ids.update(catalog_update.zones or {})
    offerings = {
        name: tuple(_offerings(one, known, catalog_update, list_prices, zone_ids))
        for name, one in facts.items()
        if isinstance(one, InstanceFacts)
    }
    sold = {name: offered for name, offered in offerings.items() if offered}
    return Catalog.of(known.region, made_at, facts, sold, known.currency)


def _offerings(
    facts: InstanceFacts,
    catalog: Catalog,
    catalog_update: CatalogUpdate,
    list_prices: ListPrices,
    zone_ids: Mapping[str, str],
) -> Iterator[Offering]:
    name, known = facts.name, catalog.offerings.get(facts.name, ())
    zones = (
        {o.zone for o in known}
        if catalog_update.offered is None
        else catalog_update.offered.get(name, frozenset())
    )
    on_demand, estimated = _on_demand(name, known, catalog_update, list_prices)
    told = {o.zone: o.price_hourly_usd for o in known if o.capacity_type == SPOT and not o.estimated}
    guess = catalog_update.spot is None and (
        not known or any(o.capacity_type == SPOT and o.estimated for o in known)
    )
    stand_in = estimated_spot_price(on_demand) if on_demand and guess else None
    for zone in sorted(zones):
        today = (catalog_update.spot or {}).get((name, zone)) or told.get(zone)
        spot = today or stand_in
        if on_demand and ON_DEMAND in facts.capacity_types:
            is_local = zone[:-1] != catalog.region
            yield Offering(zone, ON_DEMAND, on_demand, estimated or is_local, zone_ids.get(zone, ""))
        if spot and SPOT in facts.capacity_types:
            yield Offering(zone, SPOT, spot, today is None, zone_ids.get(zone, ""))


def _on_demand(
    name: str, known: tuple[Offering, ...], catalog_update: CatalogUpdate, list_prices: ListPrices
) -> tuple[float | None, bool]:
    """Return the price, None if unknown, and whether it is an estimate."""
    if catalog_update.on_demand and name in catalog_update.on_demand:
        return catalog_update.on_demand[name], False
    regional = sorted((o for o in known if o.capacity_type == ON_DEMAND), key=lambda o: o.estimated)
    offer = next(iter(regional), None)
    if offer:
        return offer.price_hourly_usd, offer.estimated
    return list_prices.hourly.get(name), list_prices.estimated
