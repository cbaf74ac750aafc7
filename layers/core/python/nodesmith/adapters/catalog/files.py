"""Catalogue files that users provide: nodesmith's own format, its JSON listing, or Karpenter's KWOK format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodesmith.adapters.catalog.encoding import decode, unzip
from nodesmith.adapters.catalog.fields import Statement
from nodesmith.adapters.catalog.kwok import is_kwok, kwok_offerings, kwok_type
from nodesmith.adapters.catalog.listing import listed_offerings, listed_type
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import REGION
from nodesmith.model.apimachinery.problems import Problem
from nodesmith.model.ec2.catalog import Catalog, Offering, StatedFacts

_GZIP = b"\x1f\x8b"


def read_catalog_file(data: bytes, made_at: datetime) -> tuple[Catalog, tuple[Problem, ...]]:
    """Read a catalogue file, whose format is detected from its content. A list may be gzip-compressed.

    Invalid instance types and offerings are omitted and returned as problems. Raises Rejected if the file is not a
    catalogue or contains nothing usable.
    """
    if data.startswith(_GZIP):
        text = unzip(data, "catalogue file")
        if not text.lstrip().startswith(b"["):
            return decode(data), ()
        data = text
    facts: dict[str, StatedFacts] = {}
    offerings: dict[str, tuple[Offering, ...]] = {}
    problems: list[Problem] = []
    for position, entry in enumerate(_entries(data)):
        statement = Statement(f"instance type {position + 1}", entry, problems)
        found = _read(statement)
        if found and found[0].name in facts:
            statement.report(
                "name", found[0].name, "an earlier instance type has this name and is kept; remove one"
            )
        elif found:
            facts[found[0].name], offerings[found[0].name] = found
    if not facts:
        raise Rejected("; ".join(["catalogue file: no usable instance type", *map(str, problems[:5])]))
    ref = f"file-{hashlib.sha256(data).hexdigest()[:16]}"
    return Catalog(_region(facts), ref, made_at, facts, offerings), tuple(problems)


def _read(statement: Statement) -> tuple[StatedFacts, tuple[Offering, ...]] | None:
    if is_kwok(statement.entry):
        facts, offered = kwok_type(statement), kwok_offerings
    else:
        facts, offered = listed_type(statement), listed_offerings
    return (facts, tuple(offered(statement))) if facts else None


def _entries(data: bytes) -> list[Mapping[str, Any]]:
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"catalogue file: not JSON ({error})") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Rejected('catalogue file: write a JSON list of instance types, `[{"name": …}]`')
    return entries


def _region(facts: Mapping[str, StatedFacts]) -> str:
    """Return the region that all types name, or an empty string if they differ."""
    regions = {one.labels.get(REGION) or "" for one in facts.values()}
    return regions.pop() if len(regions) == 1 else ""
