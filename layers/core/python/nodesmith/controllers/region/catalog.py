"""The controller of the catalogue: load what is known, query AWS, merge, and write what has changed.

If a call fails, its part of the catalogue stays as it was and the other parts are updated. The error is raised after
everything is written, so that it is visible and the run is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import (
    LINUX,
    NO_PRICES,
    PRODUCTS,
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
from nodesmith.ports import Catalogs

M = TypeVar("M", bound=Mapping[Any, Any])


class Market(Protocol):
    """What a region sells today. Each call returns a complete answer, or raises Transient or Rejected."""

    def facts(self) -> Mapping[str, InstanceFacts]:
        """Return the facts of every instance type."""

    def zones(self) -> Mapping[str, str]:
        """Return zone ids by zone name."""

    def offered(self) -> Mapping[str, frozenset[str]]:
        """Return the zones that offer each type."""

    def on_demand_prices(self) -> Mapping[str, float]:
        """Return hourly on-demand prices of Linux by type; empty if no price list can be reached."""

    def prices_of(self, sold: str, places: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
        """Return hourly on-demand prices of a product by place and type; empty if no price list can be reached."""

    def spot_prices(self, now: datetime, *, windows: bool = False) -> Mapping[tuple[str, str], float]:
        """Return hourly spot prices, for Linux or Windows, by type and zone."""


@dataclass(frozen=True, slots=True)
class CatalogReport:
    """The result of a refresh: counts of the catalogue and of AWS's answers (`learned`), and the calls that failed."""

    ref: str
    written: bool
    types: int
    offerings: int
    estimated_prices: int
    learned: Mapping[str, int]
    failures: tuple[str, ...]

    def __str__(self) -> str:
        counts = (
            f"{self.types} types, {self.offerings} offerings, {self.estimated_prices} at estimated prices"
        )
        outcome = f"catalogue {self.ref}, {'written' if self.written else 'not written'}: {counts}"
        return "; ".join([outcome, *self.failures])


def refresh_catalog(
    market: Market, catalogs: Catalogs, list_prices: ListPrices, now: datetime
) -> CatalogReport:
    """Update a region's catalogue.

    If calls failed, raises Transient after the work is done, or Rejected if no retry can fix any of the failures.
    """
    current = _stored_catalog(catalogs, list_prices, now)
    failures: list[Transient | Rejected] = []
    catalog_update = CatalogUpdate(
        facts=_ask(market.facts, failures),
        zones=_ask(market.zones, failures),
        offered=_ask(market.offered, failures),
        on_demand=_ask(market.on_demand_prices, failures),
        spot=_ask(lambda: market.spot_prices(now), failures),
        windows_spot=_ask(lambda: market.spot_prices(now, windows=True), failures),
    )
    catalog_update = replace(
        catalog_update, on_demand_of=_by_product(market, current, catalog_update, failures)
    )
    fresh = merge(current, catalog_update, list_prices, now)
    written = catalog_update != CatalogUpdate() and fresh.ref != current.ref
    if written:
        catalogs.write(fresh)
    report = _report(fresh, catalog_update, written, failures)
    if any(isinstance(failure, Transient) for failure in failures):
        raise Transient(str(report))
    if failures:
        raise Rejected(str(report))
    return report


def _by_product(
    market: Market, current: Catalog, catalog_update: CatalogUpdate, failures: list[Transient | Rejected]
) -> dict[str, Mapping[str, Mapping[str, float]]]:
    """Return the on-demand prices of all products in the region and in its local zones and wavelength zones."""
    zones = catalog_update.zones or {o.zone for offered in current.offerings.values() for o in offered}
    places = sorted({current.region, *(place_of(zone, current.region) for zone in zones)})
    prices_by_product: dict[str, Mapping[str, Mapping[str, float]]] = {}
    for product in PRODUCTS:
        others = [place for place in places if product != LINUX or place != current.region]
        prices = _ask(partial(market.prices_of, product, others), failures) if others else None
        if prices:
            prices_by_product[product] = prices
    return prices_by_product


def _stored_catalog(catalogs: Catalogs, list_prices: ListPrices, now: datetime) -> Catalog:
    """Return the stored catalogue; an empty one, to be filled from AWS's answers, if it is missing or damaged."""
    try:
        return catalogs.latest()
    except Rejected:
        return Catalog.of(catalogs.region, now, {}, {}, list_prices.currency)


def _ask(call: Callable[[], M], failures: list[Transient | Rejected]) -> M | None:
    """Return the answer of `call`; None if it fails, or if it is empty, since no region sells nothing."""
    try:
        return call() or None
    except (Transient, Rejected) as failure:
        failures.append(failure)
        return None


def _report(
    catalog: Catalog, catalog_update: CatalogUpdate, written: bool, failures: list[Transient | Rejected]
) -> CatalogReport:
    offerings = [offering for offered in catalog.offerings.values() for offering in offered]
    learned = {
        "instance types": catalog_update.facts,
        "zones": catalog_update.zones,
        "types offered": catalog_update.offered,
        "on-demand prices": catalog_update.on_demand,
        "spot prices": catalog_update.spot,
        "spot prices of Windows": catalog_update.windows_spot,
        "prices of other products": [
            price
            for places in catalog_update.on_demand_of.values()
            for listed in places.values()
            for price in listed
        ],
    }
    return CatalogReport(
        ref=catalog.ref,
        written=written,
        types=len(catalog.facts),
        offerings=len(offerings),
        estimated_prices=sum(offering.estimated for offering in offerings),
        learned={subject: len(entries or ()) for subject, entries in learned.items()},
        failures=tuple(map(str, failures)),
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
    current: Catalog, catalog_update: CatalogUpdate, list_prices: ListPrices, made_at: datetime
) -> Catalog:
    """Return the updated catalogue.

    An on-demand price is the current one, else the known one, else the list price. A spot price is the current one,
    else the known one; estimates are used only until spot prices have been fetched once. There is no offering without a
    price. In local zones and wavelength zones, the region's prices stand in for unknown ones, as estimates.
    """
    facts: Mapping[str, InstanceFacts | StatedFacts] = catalog_update.facts or current.facts
    zone_ids = {o.zone: o.zone_id for offered in current.offerings.values() for o in offered}
    zone_ids.update(catalog_update.zones or {})
    prices = _merged_prices(current, catalog_update)
    local = prices.get(LINUX, NO_PRICES).on_demand
    offerings = {
        name: tuple(_offerings(fact, current, catalog_update, list_prices, zone_ids, local))
        for name, fact in facts.items()
        if isinstance(fact, InstanceFacts)
    }
    available = {name: offered for name, offered in offerings.items() if offered}
    return Catalog.of(current.region, made_at, facts, available, current.currency, prices)


def _merged_prices(current: Catalog, catalog_update: CatalogUpdate) -> Mapping[str, ProductPrices]:
    """Return the known prices of all products, replaced by current ones for each place that was asked about."""
    merged = dict(current.prices)
    for name, places in sorted(catalog_update.on_demand_of.items()):
        before = merged.get(name, NO_PRICES)
        merged[name] = replace(before, on_demand={**before.on_demand, **places})
    if catalog_update.windows_spot:
        by_type: dict[str, dict[str, float]] = {}
        for (name, zone), price in catalog_update.windows_spot.items():
            by_type.setdefault(name, {})[zone] = price
        zones = tuple(sorted({zone for _, zone in catalog_update.windows_spot}))
        spot = {
            name: tuple(by_zone.get(zone, 0.0) for zone in zones) for name, by_zone in sorted(by_type.items())
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
    name, before = facts.name, catalog.offerings.get(facts.name, ())
    zones = (
        {o.zone for o in before}
        if catalog_update.offered is None
        else catalog_update.offered.get(name, frozenset())
    )
    regional, estimated = _on_demand(name, catalog, catalog_update, list_prices)
    known_spot = {o.zone: o.price_hourly_usd for o in before if o.capacity_type == SPOT and not o.estimated}
    guess = catalog_update.spot is None and (
        not before or any(o.capacity_type == SPOT and o.estimated for o in before)
    )
    for zone in sorted(zones):
        place = place_of(zone, catalog.region)
        listed = local.get(place, {}).get(name)
        on_demand = listed or regional
        today = (catalog_update.spot or {}).get((name, zone)) or known_spot.get(zone)
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
    candidates = [
        (o.estimated or place_of(o.zone, catalog.region) != catalog.region, o.price_hourly_usd)
        for o in catalog.offerings.get(name, ())
        if o.capacity_type == ON_DEMAND
    ]
    if candidates:
        is_estimate, price = min(candidates, key=lambda candidate: candidate[0])
        return price, is_estimate
    return list_prices.hourly.get(name), list_prices.estimated
