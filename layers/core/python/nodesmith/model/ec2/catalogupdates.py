"""Current data about a region, and how they are merged into its catalogue: a failed call does not lose known data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import (
    LINUX,
    NO_PRICES,
    WINDOWS,
    Catalog,
    InstanceFacts,
    ListPrices,
    Offering,
    ProductPrices,
    StatedFacts,
    estimated_spot_price,
    place_of,
)


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
    on_demand_of: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=FrozenMap)
    """by product, place and type; without what could not be fetched, and without Linux in the region itself"""
    windows_spot: Mapping[tuple[str, str], float] | None = None
    """by type and zone name"""


def merge(
    known: Catalog, catalog_update: CatalogUpdate, list_prices: ListPrices, made_at: datetime
) -> Catalog:
    """Return the updated catalogue.

    An on-demand price is the current one, else the known one, else the list price. A spot price is the current one,
    else the known one; estimates are used only until spot prices have been fetched once. There is no offering without a
    price. In local zones and wavelength zones, the region's prices stand in for unknown ones, as estimates.
    """
    facts: Mapping[str, InstanceFacts | StatedFacts] = catalog_update.facts or known.facts
    zone_ids = {o.zone: o.zone_id for offered in known.offerings.values() for o in offered}
    zone_ids.update(catalog_update.zones or {})
    prices = _merged_prices(known, catalog_update)
    local = prices.get(LINUX, NO_PRICES).on_demand
    offerings = {
        name: tuple(_offerings(one, known, catalog_update, list_prices, zone_ids, local))
        for name, one in facts.items()
        if isinstance(one, InstanceFacts)
    }
    sold = {name: offered for name, offered in offerings.items() if offered}
    return Catalog.of(known.region, made_at, facts, sold, known.currency, prices)


def _merged_prices(known: Catalog, catalog_update: CatalogUpdate) -> Mapping[str, ProductPrices]:
    """Return the known prices of all products, replaced by current ones for each place that was asked about."""
    merged = dict(known.prices)
    for name, places in sorted(catalog_update.on_demand_of.items()):
        before = merged.get(name, NO_PRICES)
        merged[name] = replace(before, on_demand={**before.on_demand, **places})
    if catalog_update.windows_spot:
        by_type: dict[str, dict[str, float]] = {}
        for (name, zone), price in catalog_update.windows_spot.items():
            by_type.setdefault(name, {})[zone] = price
        zones = tuple(sorted({zone for _, zone in catalog_update.windows_spot}))
        spot = {
            name: tuple(found.get(zone, 0.0) for zone in zones) for name, found in sorted(by_type.items())
        }
        merged[WINDOWS] = replace(merged.get(WINDOWS, NO_PRICES), zones=zones, spot=spot)
    return merged


def _offerings(
    facts: InstanceFacts,
    catalog: Catalog,
    catalog_update: CatalogUpdate,
    list_prices: ListPrices,
    zone_ids: Mapping[str, str],
    local: Mapping[str, Mapping[str, float]],
) -> Iterator[Offering]:
    name, known = facts.name, catalog.offerings.get(facts.name, ())
    zones = (
        {o.zone for o in known}
        if catalog_update.offered is None
        else catalog_update.offered.get(name, frozenset())
    )
    regional, estimated = _on_demand(name, catalog, catalog_update, list_prices)
    told = {o.zone: o.price_hourly_usd for o in known if o.capacity_type == SPOT and not o.estimated}
    guess = catalog_update.spot is None and (
        not known or any(o.capacity_type == SPOT and o.estimated for o in known)
    )
    for zone in sorted(zones):
        place = place_of(zone, catalog.region)
        listed = local.get(place, {}).get(name)
        on_demand = listed or regional
        today = (catalog_update.spot or {}).get((name, zone)) or told.get(zone)
        spot = today or (estimated_spot_price(on_demand) if on_demand and guess else None)
        if on_demand and ON_DEMAND in facts.capacity_types:
            is_estimate = not listed and (estimated or place != catalog.region)
            yield Offering(zone, ON_DEMAND, on_demand, is_estimate, zone_ids.get(zone, ""))
        if spot and SPOT in facts.capacity_types:
            yield Offering(zone, SPOT, spot, today is None, zone_ids.get(zone, ""))


def _on_demand(
    name: str, catalog: Catalog, catalog_update: CatalogUpdate, list_prices: ListPrices
) -> tuple[float | None, bool]:
    """Return the price in the region, None if unknown, and whether it is an estimate.

    The price of a local zone is an estimate of it.
    """
    if catalog_update.on_demand and name in catalog_update.on_demand:
        return catalog_update.on_demand[name], False
    known = [
        (o.estimated or place_of(o.zone, catalog.region) != catalog.region, o.price_hourly_usd)
        for o in catalog.offerings.get(name, ())
        if o.capacity_type == ON_DEMAND
    ]
    if known:
        is_estimate, price = min(known, key=lambda each: each[0])
        return price, is_estimate
    return list_prices.hourly.get(name), list_prices.estimated
