"""A catalogue as bytes: gzip JSON, one row per type, so that a function starting cold reads it fast."""

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
    """Write a catalogue of EC2 types; the same content at the same time gives the same bytes."""
    return pack({**_content(catalog), "ref": catalog.ref, "madeAt": format_time(catalog.made_at)})


def decode(data: bytes) -> Catalog:
    """Read what `encode` wrote. Raises Rejected when the bytes are cut, foreign or of another format."""
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
        raise Rejected(f"catalogue: not what nodesmith writes ({error!r}); refresh it") from error


def pack(document: Mapping[str, Any]) -> bytes:
    """Write a document as gzip JSON, reproducibly."""
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


def unpack(data: bytes, what: str) -> dict[str, Any]:
    """Read what `pack` wrote. Raises Rejected."""
    try:
        document = json.loads(unzip(data, what))
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{what}: {len(data)} bytes are not gzip JSON ({error}); refresh it") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise Rejected(f"{what}: format is {found!r}, this version reads {FORMAT}; refresh it")
    return dict(document)


def unzip(data: bytes, what: str) -> bytes:
    """Decompress gzip. Raises Rejected."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Rejected(f"{what}: {len(data)} bytes are not gzip ({error}); refresh it") from error


def write_facts(facts: Iterable[InstanceFacts]) -> list[Any]:
    """Write facts as rows under a header row."""
    return [FACT_FIELDS, *(astuple(one) for one in sorted(facts, key=lambda one: one.name))]


def read_facts(rows: Sequence[list[Any]]) -> dict[str, InstanceFacts]:
    """Read rows of facts, by type name. Raises ValueError when the header is another version's.

    New facts come last: rows of an earlier version that lack them are read, and those facts are not known. What a later
    version has added is left out.
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
        raise Rejected(f"catalogue {catalog.ref}: types stated by a file cannot be stored, only EC2's")
    zones = sorted({(o.zone, o.zone_id) for offered in catalog.offerings.values() for o in offered})
    return {
        "region": catalog.region,
        "currency": catalog.currency,
        "zones": zones,
        "types": write_facts(facts),
        "offerings": {name: _groups(offered, zones) for name, offered in catalog.offerings.items()},
    }


def _groups(offered: Iterable[Offering], zones: Sequence[tuple[str, str]]) -> list[list[Any]]:
    """Offerings that differ by zone alone share a row, the zones being a bit mask at its end."""
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
