"""The catalogue that ships with nodesmith (each region's offerings, and prices at build time) and the stored one."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodesmith.errors import Rejected
from nodesmith.keys import catalog_key
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.ec2.catalog import (
    Accelerator,
    Catalog,
    InstanceFacts,
    ListPrices,
    NeuronDevice,
    Offering,
    ProductPrices,
    estimated_spot_price,
)

if TYPE_CHECKING:
    from nodesmith.ports import Blobs

FORMAT = 1
FACT_FIELDS = [field.name for field in fields(InstanceFacts)]
_CAPACITY_TYPES, _GPUS, _INFERENCE, _NEURON = (
    FACT_FIELDS.index(name) for name in ("capacity_types", "gpus", "inference_accelerators", "neuron_devices")
)
_DEVICE, _NEURON_DEVICE = len(fields(Accelerator)), len(fields(NeuronDevice))
_FIRST_FIELDS = FACT_FIELDS.index("branch_interfaces") + 1


def encode(catalog: Catalog) -> bytes:
    """Return a catalogue of EC2 types as bytes. Equal content and `made_at` yield equal bytes."""
    return pack({**_content(catalog), "ref": catalog.ref, "madeAt": format_time(catalog.made_at)})


def decode(data: bytes) -> Catalog:
    """Return the catalogue that `encode` wrote, without offerings whose price cannot be one.

    Raises Rejected if the bytes are truncated or of another format.
    """
    document = unpack(data, "catalogue")
    try:
        zones: list[list[str]] = document["zones"]
        return Catalog(
            region=document["region"],
            ref=document["ref"],
            made_at=parse_time(document["madeAt"]),
            facts=read_facts(document["types"]),
            offerings={
                name: tuple(offering for group in groups for offering in _read_group(group, zones))
                for name, groups in document["offerings"].items()
            },
            currency=document["currency"],
            prices={name: _read_prices(row) for name, row in document.get("prices", {}).items()},
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Rejected(f"catalogue: not in nodesmith's format ({error!r}); refresh it") from error


def pack(document: Mapping[str, Any]) -> bytes:
    """Return a document as reproducible gzip JSON."""
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


def unpack(data: bytes, subject: str) -> dict[str, Any]:
    """Return the document that `pack` wrote. Raises Rejected if the bytes are invalid or of another format."""
    try:
        document = json.loads(unzip(data, subject))
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{subject}: {len(data)} bytes are not gzip JSON ({error}); refresh it") from error
    actual = document.get("format") if isinstance(document, dict) else None
    if actual != FORMAT:
        raise Rejected(f"{subject}: format is {actual!r}, this version reads {FORMAT}; refresh it")
    return dict(document)


def unzip(data: bytes, subject: str) -> bytes:
    """Decompress gzip data. Raises Rejected if it is invalid."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Rejected(f"{subject}: {len(data)} bytes are not gzip ({error}); refresh it") from error


def write_facts(facts: Iterable[InstanceFacts]) -> list[Any]:
    """Return facts as rows, sorted by type name, after a header row."""
    return [FACT_FIELDS, *(astuple(one) for one in sorted(facts, key=lambda fact: fact.name))]


def read_facts(rows: Sequence[list[Any]]) -> dict[str, InstanceFacts]:
    """Return facts by type name. Raises ValueError if the header belongs to an incompatible version.

    Versions append new facts at the end. If an earlier version wrote the rows, newer facts are unknown. Facts that a
    later version added are ignored.
    """
    columns = rows[0][: len(FACT_FIELDS)]
    if columns != FACT_FIELDS[: max(len(columns), _FIRST_FIELDS)]:
        raise ValueError("fields of another version")
    return {row[0]: _read_row(row[: len(columns)]) for row in rows[1:]}


def _read_row(row: list[Any]) -> InstanceFacts:
    row[_CAPACITY_TYPES] = tuple(row[_CAPACITY_TYPES])
    row[_GPUS] = tuple(Accelerator(*a[:_DEVICE]) for a in row[_GPUS])
    row[_INFERENCE] = tuple(Accelerator(*a[:_DEVICE]) for a in row[_INFERENCE])
    row[_NEURON] = tuple(NeuronDevice(*d[:_NEURON_DEVICE]) for d in row[_NEURON])
    return InstanceFacts(*row)


def _content(catalog: Catalog) -> dict[str, Any]:
    facts = [fact for fact in catalog.facts.values() if isinstance(fact, InstanceFacts)]
    if len(facts) != len(catalog.facts):
        raise Rejected(f"catalogue {catalog.ref}: instance types from a file cannot be stored, only EC2's")
    zones = sorted({(o.zone, o.zone_id) for offered in catalog.offerings.values() for o in offered})
    prices = {name: (dict(p.on_demand), p.zones, dict(p.spot)) for name, p in catalog.prices.items()}
    return {
        "region": catalog.region,
        "currency": catalog.currency,
        "zones": zones,
        "types": write_facts(facts),
        "offerings": {name: _groups(offered, zones) for name, offered in catalog.offerings.items()},
        **({"prices": prices} if prices else {}),
    }


def _read_prices(row: Sequence[Any]) -> ProductPrices:
    on_demand, zones, spot, *_ = row
    return ProductPrices(on_demand, tuple(zones), spot)


def _groups(offered: Iterable[Offering], zones: Sequence[tuple[str, str]]) -> list[list[Any]]:
    """Return rows of offerings. Those that differ only by zone share a row, which ends with a bit mask of zones."""
    masks: dict[tuple[str, float, bool, bool], int] = {}
    for o in offered:
        row = (o.capacity_type, o.price_hourly_usd, o.estimated, o.available)
        masks[row] = masks.get(row, 0) | 1 << zones.index((o.zone, o.zone_id))
    return [[*row, mask] for row, mask in sorted(masks.items())]


def _read_group(group: Sequence[Any], zones: Sequence[Sequence[str]]) -> Iterator[Offering]:
    capacity_type, price, estimated, available, mask, *_ = group
    if not 0 < price < inf:  # decisions divide by prices, and a negative one would be the cheapest
        return
    for bit, (zone, zone_id, *_) in enumerate(zones):
        if mask >> bit & 1:
            yield Offering(zone, capacity_type, price, estimated, zone_id, available)


REFERENCE_REGION = "us-east-1"
"""Its prices serve as estimates for a region without known prices."""
FIRST_MASK = ord("0")
EMBEDDED = Path(__file__).parents[2] / "data" / "catalog.json.gz"


@lru_cache(maxsize=4)
def embedded_catalog(region: str = REFERENCE_REGION) -> Catalog:
    """Return the catalogue that ships in the package. Raises Rejected for an unknown region."""
    embedded = _embedded()
    if region not in embedded.regions:
        regions = embedded_regions()
        hint = did_you_mean(region, regions) or f"; known regions: {', '.join(regions)}"
        raise Rejected(f"region: {region!r} is not in the embedded catalogue{hint}")
    market = _region(embedded.regions[region], embedded.facts)
    prices = embedded_prices(region)
    return Catalog(
        region=region,
        ref=f"{region}-{embedded.digest}",
        made_at=embedded.made_at,
        facts={name: embedded.facts[name] for name in market.offered},
        offerings={
            name: tuple(_offerings(embedded.facts[name], market, prices))
            for name in market.offered
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
    by_region, reference = embedded.prices, embedded.prices[REFERENCE_REGION]
    elsewhere = replace(reference, hourly={**embedded.other_prices, **reference.hourly}, estimated=True)
    return by_region.get(region) or elsewhere


@dataclass(frozen=True, slots=True)
class PublishedLimits:
    """Facts by instance type that DescribeInstanceTypes does not return."""

    network_bandwidth_mbps: Mapping[str, int]
    branch_interfaces: Mapping[str, int]


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
    regions: Mapping[str, Mapping[str, Any]]
    """as they are written: only one of them is read"""
    prices: Mapping[str, ListPrices]
    other_prices: Mapping[str, float]
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
        regions=document["regions"],
        prices={name: ListPrices(p["hourly"], p["currency"]) for name, p in document["onDemand"].items()},
        other_prices=document["elsewhere"],
        limits=PublishedLimits(
            bandwidths | unlisted["networkBandwidthMbps"], branches | unlisted["branchInterfaces"]
        ),
    )


def _region(document: Mapping[str, Any], types: Iterable[str]) -> _Region:
    """Return a region. `offered` holds one character per type, in order: FIRST_MASK plus the bit mask of its zones."""
    masks = zip(types, map(ord, document["offered"]), strict=True)
    return _Region(
        tuple((zone, zone_id) for zone, zone_id in document["zones"]),
        {name: mask - FIRST_MASK for name, mask in masks if mask != FIRST_MASK},
    )


def _offerings(facts: InstanceFacts, market: _Region, prices: ListPrices) -> Iterator[Offering]:
    on_demand, mask = prices.hourly[facts.name], market.offered[facts.name]
    spot = estimated_spot_price(on_demand)
    for bit, (zone, zone_id) in enumerate(market.zones):
        if not mask >> bit & 1:
            continue
        if ON_DEMAND in facts.capacity_types:
            yield Offering(zone, ON_DEMAND, on_demand, prices.estimated, zone_id)
        if SPOT in facts.capacity_types:
            yield Offering(zone, SPOT, spot, True, zone_id)
