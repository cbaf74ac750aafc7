"""The objects of cost allocation in the bucket: their keys, their columns, and how rows are written and read.

A document is gzip-compressed JSON lines, which Athena reads as they are.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row")
ALLOCATIONS = "allocations"
"""The prefix of all objects of cost allocation."""
HOURS, DAYS, MONTHS, MOVES, BOOKED = "hours", "days", "months", "moves", "booked"
"""The kinds of objects. The last is the state of booking: which hours are booked, and what the next one needs.

Hours are merged into days, and days into months. The bucket deletes hours and days after some time, so each kind has a
prefix of its own.
"""
_TEXT = "string"
ALLOCATION_COLUMNS = (
    ("window_start", _TEXT),
    ("window_end", _TEXT),
    *((name, _TEXT) for name in ("node", "instance_id", "nodepool", "instance_type", "zone")),
    *((name, _TEXT) for name in ("capacity_type", "manager", "kind", "namespace", "workload")),
    ("labels", "map<string,string>"),
    *((name, "bigint") for name in ("pods", "seconds", "cpu_milli_seconds", "memory_mib_seconds")),
    *((name, "bigint") for name in ("gpu_seconds", "hourly_nano_usd", "cpu_nano_usd", "memory_nano_usd")),
    *((name, "bigint") for name in ("gpu_nano_usd", "committed_nano_usd", "nano_usd")),
    ("estimated", "boolean"),
)
"""The columns of allocations with their types in Athena, in the order of the documents."""
MOVE_COLUMNS = (
    *((name, _TEXT) for name in ("id", "state", "reason", "moved_at", "settled_at", "why")),
    *((name, "array<string>") for name in ("sources", "replacements")),
    *((name, "bigint") for name in ("promised_hourly_nano_usd", "sources_hourly_nano_usd")),
    *((name, "bigint") for name in ("sources_nano_usd", "replacements_nano_usd", "saved_nano_usd")),
    *((name, "array<string>") for name in ("moved_again", "causes")),
)
"""The columns of moves with their types in Athena, in the order of the documents."""


def allocations_prefix(kind: str, cluster: str) -> str:
    """Return the prefix of the keys of a cluster's objects of one kind."""
    return f"{ALLOCATIONS}/{kind}/{cluster}/"


def allocations_key(kind: str, cluster: str, window: str) -> str:
    """Return the key of the S3 object with a cluster's allocations in a window, or with its moves in an hour.

    `window` is `2026-11` for a month, `2026-11-26` for a day, `2026-11-26/13` for an hour.
    """
    return f"{allocations_prefix(kind, cluster)}{window}.jsonl.gz"


def booked_key(cluster: str) -> str:
    """Return the key of the S3 object that says which hours are booked, and what the next one needs."""
    return f"{allocations_prefix(BOOKED, cluster)}state.json"


_MOST_LABELS = 10
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}", re.ASCII)


def parse_label_keys(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of label keys. Raises ValueError with what was found."""
    keys = tuple(dict.fromkeys(key.strip() for key in text.split(",") if key.strip()))
    for key in keys:
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"must be label keys such as team or example.com/team; {key[:80]!r} is not one")
    if len(keys) > _MOST_LABELS:
        raise ValueError(f"must be at most {_MOST_LABELS} label keys")
    return keys


LARGEST_BYTES = 512 * 2**20
"""No document has more when it is decompressed: a month of 500 nodes has less than 100 MiB."""


def write_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a document with these rows. Equal rows yield equal bytes."""
    lines = (json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows)
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def read_rows(
    data: bytes, name: str, read: Callable[[Mapping[str, Any]], Row], largest_bytes: int = LARGEST_BYTES
) -> tuple[list[Row], list[str]]:
    """Return the rows of a document as `read` returns them, and its faults, which name the object and the line.

    A row that cannot be read is left out, and a document that is cut off has the rows before that.
    """
    found: list[Row] = []
    faults: list[str] = []
    lines, damage = _lines(data, largest_bytes)
    for number, line in enumerate(lines, start=1):
        try:
            found.append(read(json.loads(line)))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            faults.append(f"{name}, line {number}: not a row of cost allocation ({error!r}); it is left out")
    if damage:
        faults.append(f"{name}: {damage}; the {len(found)} rows before that are used")
    return found, faults


def _lines(data: bytes, largest_bytes: int) -> tuple[Sequence[bytes], str]:
    """Return the complete lines of a compressed document, and what is wrong with it, empty if nothing is."""
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(data, largest_bytes)
    except zlib.error as error:
        return (), f"not gzip-compressed ({error})"
    lines = text.splitlines()
    whole = lines if text.endswith(b"\n") else lines[:-1]
    if reader.unconsumed_tail:
        return whole, f"it has more than {largest_bytes} bytes"
    return (lines, "") if reader.eof else (whole, "it is cut off")
