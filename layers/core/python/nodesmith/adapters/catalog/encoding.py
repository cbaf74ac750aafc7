"""Catalogue serialization: gzip JSON with one row per type, which a cold-starting function reads fast."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.ec2.catalog import Accelerator, Catalog, InstanceFacts, NeuronDevice, Offering

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
    """Return the catalogue that `encode` wrote. Raises Rejected if the bytes are truncated or of another format."""
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
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Rejected(f"catalogue: not in nodesmith's format ({error!r}); refresh it") from error


def pack(document: Mapping[str, Any]) -> bytes:
    """Return a document as reproducible gzip JSON."""
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


def unpack(data: bytes, what: str) -> dict[str, Any]:
    """Return the document that `pack` wrote. Raises Rejected if the bytes are invalid or of another format."""
    try:
        document = json.loads(unzip(data, what))
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{what}: {len(data)} bytes are not gzip JSON ({error}); refresh it") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise Rejected(f"{what}: format is {found!r}, this version reads {FORMAT}; refresh it")
    return dict(document)


def unzip(data: bytes, what: str) -> bytes:
    """Decompress gzip data. Raises Rejected if it is invalid."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Rejected(f"{what}: {len(data)} bytes are not gzip ({error}); refresh it") from error


def write_facts(facts: Iterable[InstanceFacts]) -> list[Any]:
    """Return facts as rows, sorted by type name, after a header row."""
    return [FACT_FIELDS, *(astuple(one) for one in sorted(facts, key=lambda one: one.name))]


def read_facts(rows: Sequence[list[Any]]) -> dict[str, InstanceFacts]:
    """Return facts by type name. Raises ValueError if the header belongs to an incompatible version.

    Versions append new facts at the end. If an earlier version wrote the rows, newer facts are unknown. Facts that a
    later version added are ignored.
    """
    known = rows[0][: len(FACT_FIELDS)]
    if known != FACT_FIELDS[: max(len(known), _FIRST_FIELDS)]:
        raise ValueError("fields of another version")
    return {row[0]: _read_row(row[: len(known)]) for row in rows[1:]}


def _read_row(row: list[Any]) -> InstanceFacts:
    row[_CAPACITY_TYPES] = tuple(row[_CAPACITY_TYPES])
    row[_GPUS] = tuple(Accelerator(*a[:_DEVICE]) for a in row[_GPUS])
    row[_INFERENCE] = tuple(Accelerator(*a[:_DEVICE]) for a in row[_INFERENCE])
    row[_NEURON] = tuple(NeuronDevice(*d[:_NEURON_DEVICE]) for d in row[_NEURON])
    return InstanceFacts(*row)


def _content(catalog: Catalog) -> dict[str, Any]:
    facts = [one for one in catalog.facts.values() if isinstance(one, InstanceFacts)]
    if len(facts) != len(catalog.facts):
        raise Rejected(f"catalogue {catalog.ref}: instance types from a file cannot be stored, only EC2's")
    zones = sorted({(o.zone, o.zone_id) for offered in catalog.offerings.values() for o in offered})
    return {
        "region": catalog.region,
        "currency": catalog.currency,
        "zones": zones,
        "types": write_facts(facts),
        "offerings": {name: _groups(offered, zones) for name, offered in catalog.offerings.items()},
    }


def _groups(offered: Iterable[Offering], zones: Sequence[tuple[str, str]]) -> list[list[Any]]:
    """Return rows of offerings. Those that differ only by zone share a row, which ends with a bit mask of zones."""
    masks: dict[tuple[str, float, bool, bool], int] = {}
    for o in offered:
        row = (o.capacity_type, o.price_hourly_usd, o.estimated, o.available)
        masks[row] = masks.get(row, 0) | 1 << zones.index((o.zone, o.zone_id))
    return [[*row, mask] for row, mask in sorted(masks.items())]


def _read_group(group: Sequence[Any], zones: Sequence[Sequence[str]]) -> Iterator[Offering]:
    capacity_type, price, estimated, available, mask, *_ = group
    for bit, (zone, zone_id, *_) in enumerate(zones):
        if mask >> bit & 1:
            yield Offering(zone, capacity_type, price, estimated, zone_id, available)
