"""Cost allocation: what nodes cost in an hour, day or month, whose pods they ran, and what moves have saved.

Money is counted in whole nano-dollars (billionths of a US dollar), so that parts add up to the same sum in any order.
In the bucket, a document is gzip-compressed JSON lines, which Athena reads as they are. Its rows have the columns
`ALLOCATION_COLUMNS` or `MOVE_COLUMNS`.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim

NANO = 1_000_000_000
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_HOUR_MICROSECONDS = HOUR // _MICROSECOND
OUTCOME_AFTER = DAY
"""How long after a move its outcome is booked."""


def nano_usd(usd: float) -> int:
    """Return an amount or a price in nano-dollars."""
    return round(usd * NANO)


def microseconds(span: timedelta) -> int:
    """Return a span in microseconds."""
    return span // _MICROSECOND


def cost_of(hourly_nano_usd: int, span: timedelta) -> int:
    """Return what a span costs at a price, rounded to whole nano-dollars."""
    return (hourly_nano_usd * microseconds(span) + _HOUR_MICROSECONDS // 2) // _HOUR_MICROSECONDS


def hour_of(moment: datetime) -> datetime:
    """Return when the hour of a moment began."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


class Kind(StrEnum):
    """What a part of a node's cost is for."""

    WORKLOAD = "workload"
    DAEMONSET = "daemonset"
    """DaemonSet pods and static pods, which every node has"""
    IDLE = "__idle__"
    """capacity that no pod requests; OpenCost calls it the same"""
    STOPPED = "stopped"
    """the volumes of an instance that is stopped: warm capacity"""


@dataclass(frozen=True, slots=True)
class Owner:
    """The properties that the pods of one part of a node's cost share.

    `workload` is `Kind/name`. `labels` are those labels of the pods that the cluster's registration chooses.
    """

    kind: Kind
    namespace: str = ""
    workload: str = ""
    labels: Mapping[str, str] = NO_ITEMS

    @property
    def key(self) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
        """Return the key by which owners differ and are ordered."""
        return self.kind.value, self.namespace, self.workload, tuple(sorted(self.labels.items()))


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a node cost for one owner from `window_start` to `window_end`.

    `manager` is the software that manages the node. `pods` is how many different pods of the owner were on the node; in
    a window of several hours, the most in one of them. `seconds` is how long the owner had pods there; with the kinds
    IDLE and STOPPED, it is how long the node ran or was stopped. `hourly_nano_usd` is the price of the whole node at
    the end.

    `nano_usd` is the cost. CPU, memory and GPUs are its parts, except for STOPPED, which has none.
    `committed_nano_usd` is the part that Savings Plans or reservations pay for, which are paid for in any case.
    `estimated` is True if a price is an estimate, or unknown and counted as 0.
    """

    window_start: datetime
    window_end: datetime
    node: str
    instance_id: str
    nodepool: str
    instance_type: str
    zone: str
    capacity_type: str
    manager: str
    owner: Owner
    pods: int = 0
    seconds: int = 0
    cpu_milli_seconds: int = 0
    memory_mib_seconds: int = 0
    gpu_seconds: int = 0
    hourly_nano_usd: int = 0
    cpu_nano_usd: int = 0
    memory_nano_usd: int = 0
    gpu_nano_usd: int = 0
    committed_nano_usd: int = 0
    nano_usd: int = 0
    estimated: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the key by which the allocations of one window differ and are ordered."""
        place = (self.nodepool, self.instance_type, self.zone, self.capacity_type, self.manager)
        return self.node, self.instance_id, *place, self.owner.key

    def to_row(self) -> dict[str, Any]:
        """Return the row, in the order of `ALLOCATION_COLUMNS`."""
        row: dict[str, Any] = {}
        for name in _PLAIN:
            if name == "owner":
                owner = self.owner
                row |= {"kind": owner.kind.value, "namespace": owner.namespace, "workload": owner.workload}
                row["labels"] = dict(sorted(owner.labels.items()))
            else:
                value = getattr(self, name)
                row[name] = format_time(value) if isinstance(value, datetime) else value
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Allocation:
        """Read what `to_row` returns. Raises KeyError, TypeError or ValueError for anything else."""
        labels = {str(key): str(value) for key, value in row["labels"].items()}
        read: dict[str, Any] = {name: str(row[name]) for name in _TEXTS}
        read |= {name: parse_time(row[name]) for name in ("window_start", "window_end")}
        read |= {name: _whole(row[name]) for name in _NUMBERS}
        owner = Owner(Kind(row["kind"]), str(row["namespace"]), str(row["workload"]), FrozenMap(labels))
        return cls(owner=owner, estimated=bool(row["estimated"]), **read)

    def plus(self, later: Allocation) -> Allocation:
        """Return both together; `later` has the same key."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMMED}
        latest = max(self, later, key=lambda row: row.window_end)
        return replace(
            self,
            window_start=min(self.window_start, later.window_start),
            window_end=latest.window_end,
            pods=max(self.pods, later.pods),
            hourly_nano_usd=latest.hourly_nano_usd,
            estimated=self.estimated or later.estimated,
            **sums,
        )


_PLAIN = tuple(field.name for field in fields(Allocation))
_TEXTS = ("node", "instance_id", "nodepool", "instance_type", "zone", "capacity_type", "manager")
_NUMBERS = _PLAIN[_PLAIN.index("pods") : _PLAIN.index("estimated")]
_SUMMED = tuple(name for name in _NUMBERS if name not in {"pods", "hourly_nano_usd"})


def merged(rows: Iterable[Allocation], start: datetime, end: datetime) -> list[Allocation]:
    """Return allocations as those of one window, in order: one for each node and owner."""
    by_key: dict[tuple[Any, ...], Allocation] = {}
    for row in rows:
        earlier = by_key.get(row.key)
        by_key[row.key] = row if earlier is None else earlier.plus(row)
    return [replace(by_key[key], window_start=start, window_end=end) for key in sorted(by_key)]


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """A move, what it promised, and what came of it.

    `promised_hourly_nano_usd` is the saving per hour that the decision expected, and `sources_hourly_nano_usd` the
    price of the nodes that it ended. Until `settled_at`, a day after `moved_at`, amounts are those so far.
    `sources_nano_usd` is what the sources would have cost since the move; `replacements_nano_usd` is the cost of
    replacements and draining sources. `moved_again` is how many replacements have ended, and `causes` why.
    """

    id: str
    reason: str
    moved_at: datetime
    message: str
    sources: tuple[str, ...]
    replacements: tuple[str, ...]
    promised_hourly_nano_usd: int
    sources_hourly_nano_usd: int
    sources_nano_usd: int = 0
    replacements_nano_usd: int = 0
    moved_again: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    settled_at: datetime | None = None

    @property
    def saved_nano_usd(self) -> int:
        """What the move has saved, less than 0 if it has cost money."""
        return self.sources_nano_usd - self.replacements_nano_usd

    def to_row(self) -> dict[str, Any]:
        """Return the row, in the order of `MOVE_COLUMNS`."""
        return {
            "id": self.id,
            "state": "settled" if self.settled_at else "made",
            "reason": self.reason,
            "moved_at": format_time(self.moved_at),
            "settled_at": format_time(self.settled_at) if self.settled_at else "",
            "message": self.message,
            "sources": list(self.sources),
            "replacements": list(self.replacements),
            "promised_hourly_nano_usd": self.promised_hourly_nano_usd,
            "sources_hourly_nano_usd": self.sources_hourly_nano_usd,
            "sources_nano_usd": self.sources_nano_usd,
            "replacements_nano_usd": self.replacements_nano_usd,
            "saved_nano_usd": self.saved_nano_usd,
            "moved_again": list(self.moved_again),
            "causes": list(self.causes),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> MoveOutcome:
        """Read what `to_row` returns. Raises KeyError, TypeError or ValueError for anything else."""
        read: dict[str, Any] = {name: str(row[name]) for name in ("id", "reason", "message")}
        read |= {name: tuple(map(str, row[name])) for name in _LISTS}
        read |= {name: _whole(row[name]) for name in _AMOUNTS}
        settled_at = parse_time(row["settled_at"]) if row["settled_at"] else None
        return cls(moved_at=parse_time(row["moved_at"]), settled_at=settled_at, **read)


_LISTS = ("sources", "replacements", "moved_again", "causes")
_AMOUNTS = (
    "promised_hourly_nano_usd",
    "sources_hourly_nano_usd",
    "sources_nano_usd",
    "replacements_nano_usd",
)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, found {str(value)[:40]!r}")
    return value


def days_of(month: datetime) -> Iterator[datetime]:
    """Yield the days of the month that begins at `month`."""
    day = month
    while day.month == month.month:
        yield day
        day += DAY


def to_book(claim: NodeClaim, now: datetime) -> NodeClaim:
    """Return a claim that is forgotten now, with what its cost depends on and without the rest."""
    return replace(
        claim,
        requirements=NO_REQUIREMENTS,
        annotations=NO_ITEMS,
        taints=(),
        startup_taints=(),
        budgets=(),
        launch=FrozenMap(),
        security_groups=(),
        nominated=(),
        attempts=FrozenMap(),
        allocatable=NOTHING,
        images=(),
        instance_gone_at=claim.instance_gone_at or (None if claim.terminated_at else now),
    )


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
    *((name, _TEXT) for name in ("id", "state", "reason", "moved_at", "settled_at", "message")),
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
    rows: list[Row] = []
    faults: list[str] = []
    lines, damage = _lines(data, largest_bytes)
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(read(json.loads(line)))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            faults.append(f"{name}, line {number}: not a row of cost allocation ({error!r}); it is left out")
    if damage:
        faults.append(f"{name}: {damage}; the {len(rows)} rows before that are used")
    return rows, faults


def _lines(data: bytes, largest_bytes: int) -> tuple[Sequence[bytes], str]:
    """Return the complete lines of a compressed document, and what is wrong with it, empty if nothing is."""
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(data, largest_bytes)
    except zlib.error as error:
        return (), f"not gzip-compressed ({error})"
    lines = text.splitlines()
    complete = lines if text.endswith(b"\n") else lines[:-1]
    if reader.unconsumed_tail:
        return complete, f"it has more than {largest_bytes} bytes"
    return (lines, "") if reader.eof else (complete, "it is cut off")
