"""The catalogue that ships with nodesmith (each region's offerings, and prices at build time) and the stored one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodesmith.adapters.catalog.encoding import decode, encode, read_facts, unpack
from nodesmith.adapters.ec2.instancefacts import PublishedLimits
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, Offering, estimated_spot_price
from nodesmith.model.ec2.catalogmerge import ListPrices
from nodesmith.settings import catalog_key

if TYPE_CHECKING:  # reading the embedded catalogue should not import everything that ports depends on
    from nodesmith.ports import Blobs

REFERENCE_REGION = "us-east-1"
"""Its prices serve as estimates for a region without known prices."""
FIRST_MASK = ord("0")
EMBEDDED = Path(__file__).parents[2] / "data" / "catalog.json.gz"


@lru_cache(maxsize=4)
def embedded_catalog(region: str = REFERENCE_REGION) -> Catalog:
    """Return the catalogue that ships in the package. Raises Rejected for an unknown region."""
    embedded = _embedded()
    sold = embedded.regions.get(region)
    if sold is None:
        known = embedded_regions()
        hint = did_you_mean(region, known) or f", it knows {', '.join(known)}"
        raise Rejected(f"region: {region!r} is not in the embedded catalogue{hint}")
    prices = embedded_prices(region)
    return Catalog(
        region=region,
        ref=f"{region}-{embedded.digest}",
        made_at=embedded.made_at,
        facts={name: embedded.facts[name] for name in sold.offered},
        offerings={
            name: tuple(_offerings(embedded.facts[name], sold, prices))
            for name in sold.offered
            if name in prices.hourly
        },
        currency=prices.currency,
    )


def embedded_regions() -> tuple[str, ...]:
    """Return the names of the regions in the embedded catalogue, sorted."""
    return tuple(sorted(_embedded().regions))


def embedded_prices(region: str) -> ListPrices:
    """Return the embedded on-demand prices: the region's own, or else the reference region's as estimates.

    For types that the reference region does not sell, the estimates come from a region that does.
    """
    embedded = _embedded()
    known, reference = embedded.prices, embedded.prices[REFERENCE_REGION]
    elsewhere = replace(reference, hourly={**embedded.elsewhere, **reference.hourly}, estimated=True)
    return known.get(region) or elsewhere


def published_limits() -> PublishedLimits:
    """Return the facts that no API returns, for every type that has them."""
    return _embedded().limits


@dataclass(frozen=True, slots=True)
class StoredCatalogs:
    """The catalogue of a region as the catalog function stores it."""

    region: str
    blobs: Blobs

    def latest(self) -> Catalog:
        """Return the stored catalogue, or the embedded one if none is stored.

        Raises Rejected if the stored one is damaged or there is neither. Equal bytes are decoded once, so runs share
        one object while nothing changes.
        """
        data = self.blobs.get(catalog_key(self.region))
        return embedded_catalog(self.region) if data is None else _decoded(data)

    def write(self, catalog: Catalog) -> None:
        """Store a catalogue, replacing the previous one."""
        self.blobs.put(catalog_key(self.region), encode(catalog))


_decoded = lru_cache(maxsize=2)(decode)


@dataclass(frozen=True, slots=True)
class _Region:
    zones: tuple[tuple[str, str], ...]
    """zone name and zone id"""
    offered: Mapping[str, int]
    """bit mask of zones by type"""


@dataclass(frozen=True, slots=True)
class _Embedded:
    digest: str
    made_at: datetime
    facts: Mapping[str, InstanceFacts]
    regions: Mapping[str, _Region]
    prices: Mapping[str, ListPrices]
    elsewhere: Mapping[str, float]
    """prices of types that the reference region does not sell"""
    limits: PublishedLimits


@lru_cache(maxsize=1)
def _embedded() -> _Embedded:
    document = unpack(EMBEDDED.read_bytes(), "embedded catalogue")
    facts, unlisted = read_facts(document["types"]), document["unlisted"]
    bandwidths = {f.name: f.network_bandwidth_mbps for f in facts.values() if f.network_bandwidth_mbps}
    branches = {f.name: f.branch_interfaces for f in facts.values() if f.branch_interfaces}
    return _Embedded(
        digest=document["digest"],
        made_at=parse_time(document["madeAt"]),
        facts=facts,
        regions={name: _region(found, facts) for name, found in document["regions"].items()},
        prices={name: ListPrices(p["hourly"], p["currency"]) for name, p in document["onDemand"].items()},
        elsewhere=document["elsewhere"],
        limits=PublishedLimits(
            bandwidths | unlisted["networkBandwidthMbps"], branches | unlisted["branchInterfaces"]
        ),
    )


def _region(found: Mapping[str, Any], types: Iterable[str]) -> _Region:
    """Return a region. `offered` holds one character per type, in order: FIRST_MASK plus the bit mask of its zones."""
    masks = zip(types, map(ord, found["offered"]), strict=True)
    return _Region(
        tuple((zone, zone_id) for zone, zone_id in found["zones"]),
        {name: mask - FIRST_MASK for name, mask in masks if mask != FIRST_MASK},
    )


def _offerings(facts: InstanceFacts, sold: _Region, prices: ListPrices) -> Iterator[Offering]:
    on_demand, mask = prices.hourly[facts.name], sold.offered[facts.name]
    spot = estimated_spot_price(on_demand)
    for bit, (zone, zone_id) in enumerate(sold.zones):
        if not mask >> bit & 1:
            continue
        if ON_DEMAND in facts.capacity_types:
            yield Offering(zone, ON_DEMAND, on_demand, prices.estimated, zone_id)
        if SPOT in facts.capacity_types:
            yield Offering(zone, SPOT, spot, True, zone_id)
