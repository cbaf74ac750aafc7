"""The story of the catalogue: take what is known, ask AWS for news, merge, write what has changed.

A call that fails leaves its part of the catalogue as it was; the others count. The failure is raised once everything
is written, so that it is seen and tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.ec2.catalogmerge import CatalogUpdate, ListPrices, merge
from nodesmith.ports import Catalogs

M = TypeVar("M", bound=Mapping[Any, Any])


class Market(Protocol):
    """What a region sells today. Each call gives a whole answer, or raises Transient or Rejected."""

    def facts(self) -> Mapping[str, InstanceFacts]:
        """Return the facts of every instance type."""

    def zones(self) -> Mapping[str, str]:
        """Return zone ids by zone name."""

    def offered(self) -> Mapping[str, frozenset[str]]:
        """Return the zones that offer each type."""

    def on_demand_prices(self) -> Mapping[str, float]:
        """Return hourly on-demand prices by type; empty where no price list can be reached."""

    def spot_prices(self, now: datetime) -> Mapping[tuple[str, str], float]:
        """Return hourly spot prices by type and zone."""


@dataclass(frozen=True, slots=True)
class CatalogReport:
    """What a refresh found: counts of the catalogue, of what AWS said, and the calls that failed."""

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
    """Bring a region's catalogue up to date.

    Raises Transient after the work is done when a call failed, Rejected when all that failed is past mending.
    """
    known = _known(catalogs, list_prices, now)
    failures: list[Transient | Rejected] = []
    catalog_update = CatalogUpdate(
        facts=_ask(market.facts, failures),
        zones=_ask(market.zones, failures),
        offered=_ask(market.offered, failures),
        on_demand=_ask(market.on_demand_prices, failures),
        spot=_ask(lambda: market.spot_prices(now), failures),
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


def _known(catalogs: Catalogs, list_prices: ListPrices, now: datetime) -> Catalog:
    """What is stored damaged, or for a region nobody has seen yet, is made anew from AWS's answers."""
    try:
        return catalogs.latest()
    except Rejected:
        return Catalog.of(catalogs.region, now, {}, {}, list_prices.currency)


def _ask(call: Callable[[], M], failures: list[Transient | Rejected]) -> M | None:
    """An empty answer teaches nothing: no region sells nothing."""
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
