"""The controller of the catalogue: load what is known, query AWS, merge, and write what has changed.

If a call fails, its part of the catalogue stays as it was and the other parts are updated. The error is raised after
everything is written, so that it is visible and the run is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2.catalog import LINUX, PRODUCTS, Catalog, InstanceFacts, ListPrices, place_of
from nodesmith.model.ec2.catalogupdates import CatalogUpdate, merge
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
    known = _known(catalogs, list_prices, now)
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
        catalog_update, on_demand_of=_by_product(market, known, catalog_update, failures)
    )
    fresh = merge(known, catalog_update, list_prices, now)
    written = catalog_update != CatalogUpdate() and fresh.ref != known.ref
    if written:
        catalogs.write(fresh)
    report = _report(fresh, catalog_update, written, failures)
    if any(isinstance(failure, Transient) for failure in failures):
        raise Transient(str(report))
    if failures:
        raise Rejected(str(report))
    return report


def _by_product(
    market: Market, known: Catalog, catalog_update: CatalogUpdate, failures: list[Transient | Rejected]
) -> dict[str, Mapping[str, Mapping[str, float]]]:
    """Return the on-demand prices of all products in the region and in its local zones and wavelength zones."""
    zones = catalog_update.zones or {o.zone for offered in known.offerings.values() for o in offered}
    places = sorted({known.region, *(place_of(zone, known.region) for zone in zones)})
    found: dict[str, Mapping[str, Mapping[str, float]]] = {}
    for sold in PRODUCTS:
        asked = [place for place in places if sold != LINUX or place != known.region]
        prices = _ask(partial(market.prices_of, sold, asked), failures) if asked else None
        if prices:
            found[sold] = prices
    return found


def _known(catalogs: Catalogs, list_prices: ListPrices, now: datetime) -> Catalog:
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
        learned={what: len(found or ()) for what, found in learned.items()},
        failures=tuple(map(str, failures)),
    )
