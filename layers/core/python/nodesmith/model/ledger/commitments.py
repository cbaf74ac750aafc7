"""Savings Plans and Reserved Instances: what an account has committed to pay for, and which instances use it up.

Amounts are whole numbers in the unit of their kind: instances for a zonal Reserved Instance, quarters of a normalized
unit for a regional one, and millionths of a US dollar an hour for a Savings Plan. Commitments that apply to the same
instances at the same rates are one `CommitmentPool`. Source: "How Reserved Instances are applied" in the EC2 user
guide, and "How Savings Plans apply to your usage" in the Savings Plans user guide.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import format_time, parse_time

Usage = Mapping[tuple[str, str], float]
"""Linux instances on shared hardware that are billed on demand, by instance type and zone."""
NO_USAGE: Usage = {}
_NO_AMOUNTS: FrozenMap[int] = FrozenMap()


class CommitmentKind(StrEnum):
    """The kinds of commitments, in the order in which AWS applies them."""

    ZONAL = "zonal Reserved Instance"
    REGIONAL = "regional Reserved Instance"
    EC2_INSTANCE = "EC2 Instance Savings Plan"
    COMPUTE = "Compute Savings Plan"

    @property
    def is_plan(self) -> bool:
        """Whether it is a Savings Plan, so that its amount is money."""
        return self in {CommitmentKind.EC2_INSTANCE, CommitmentKind.COMPUTE}


@dataclass(frozen=True, slots=True)
class Commitment:
    """One commitment, from AWS or listed in the settings.

    `scope` is the instance type of a Reserved Instance, the family of an EC2 Instance Savings Plan, and empty for a
    Compute Savings Plan. `rates` are a Savings Plan's hourly prices by instance type, in millionths of a US dollar.
    `hourly_usd` is what is paid for it, used or not.
    """

    id: str
    kind: CommitmentKind
    amount: int
    ends: datetime
    scope: str = ""
    zone: str = ""
    rates: Mapping[str, int] = _NO_AMOUNTS
    hourly_usd: float = 0.0
    of_payer: bool = False

    def pool_name(self) -> str:
        """Return the name that commitments to the same instances at the same rates share."""
        if self.kind.is_plan:
            rates = json.dumps(sorted(self.rates.items())).encode()
            scope = family_of(self.scope) if self.scope else "compute"
            return f"savings-plan/{scope}/{sha256(rates).hexdigest()[:8]}"
        if self.kind is CommitmentKind.ZONAL:
            return f"reserved/{self.scope}/{self.zone}"
        return f"reserved/{self.scope if not is_size_flexible(self.scope) else family_of(self.scope)}"


@dataclass(frozen=True, slots=True, eq=False)
class CommitmentPool:
    """Commitments that apply to the same instances at the same rates. Compared by identity: a cheap key of caches."""

    name: str
    kind: CommitmentKind
    amount: int
    scope: str
    zone: str
    rates: Mapping[str, int]
    vcpus: Mapping[str, int]
    """of bare metal types, whose size has no number"""

    def use(self, instance_type: str, zone: str) -> int:
        """Return what one instance takes of the amount; 0 if the commitments do not apply to it."""
        match self.kind:
            case CommitmentKind.ZONAL:
                return int((instance_type, zone) == (self.scope, self.zone))
            case CommitmentKind.REGIONAL if is_size_flexible(self.scope):
                alike = family_of(instance_type) == family_of(self.scope)
                return quarter_units(instance_type, self.vcpus.get(instance_type, 0)) if alike else 0
            case CommitmentKind.REGIONAL:
                same = instance_type == self.scope
                return quarter_units(instance_type, self.vcpus.get(instance_type, 0)) if same else 0
            case _:
                return self.rates.get(instance_type, 0)

    def in_words(self, amount: float) -> str:
        """Return an amount of it in its unit."""
        if self.kind.is_plan:
            return f"${amount / 1_000_000:.4f}/hour"
        if self.kind is CommitmentKind.ZONAL:
            return f"{amount:g} instances"
        return f"{amount / 4:g} normalized units"


def family_of(instance_type: str) -> str:
    """Return the family of an instance type, or the name itself if it is a family."""
    return instance_type.partition(".")[0]


_INFLEXIBLE = re.compile(r"(g4ad|g4dn|g5g?|g6[ef]?|gr6f?|hpc\d\w*|inf\d|p5\w*|u7i\w*(-\w+)*)\.")
_SIZES = {"nano": 1, "micro": 2, "small": 4, "medium": 8, "large": 16, "xlarge": 32}
_LARGER = re.compile(r"(?:metal-)?(\d+)xl(?:arge)?")
_QUARTERS_PER_VCPU = 8


def is_size_flexible(instance_type: str) -> bool:
    """Return whether a regional Reserved Instance of this type applies to all sizes of its family."""
    return _INFLEXIBLE.match(instance_type) is None


def quarter_units(instance_type: str, vcpus: int = 0) -> int:
    """Return the normalization factor of an instance type, in quarters; 0 for an unknown size.

    `vcpus` are those of a bare metal type whose name does not say which size it equals.
    """
    size = instance_type.partition(".")[2]
    if (larger := _LARGER.fullmatch(size)) is not None:
        return 32 * int(larger[1])
    return _SIZES.get(size, 0) or (vcpus * _QUARTERS_PER_VCPU if size == "metal" else 0)


EXPIRING = timedelta(days=30)
"""How long before its end a commitment is reported."""


@dataclass(frozen=True, slots=True, eq=False)
class CommitmentBook:
    """All commitments that may apply in a region, and what runs there, as read at one time.

    `running` has the instances of each cluster of nodesmith by its name, and all others under the empty name. `faults`
    say what could not be read. `share` is the part of each Compute Savings Plan that the region may count on.
    """

    read_at: datetime
    commitments: tuple[Commitment, ...] = ()
    running: Mapping[str, Usage] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    share: float = 1.0
    vcpus: Mapping[str, int] = _NO_AMOUNTS

    def pools(self, now: datetime) -> tuple[CommitmentPool, ...]:
        """Return the pools of the commitments that have not ended, in the order in which AWS applies their kinds."""
        return _pools(
            self, tuple(n for n, commitment in enumerate(self.commitments) if commitment.ends > now)
        )


@lru_cache(maxsize=8)
def _pools(book: CommitmentBook, live: tuple[int, ...]) -> tuple[CommitmentPool, ...]:
    by_pool: dict[str, list[Commitment]] = {}
    for commitment in sorted((book.commitments[n] for n in live), key=lambda one: one.id):
        by_pool.setdefault(commitment.pool_name(), []).append(commitment)
    pools = [_pool(name, by_pool[name], book) for name in sorted(by_pool)]
    return tuple(sorted(pools, key=lambda pool: list(CommitmentKind).index(pool.kind)))


def _pool(name: str, alike: list[Commitment], book: CommitmentBook) -> CommitmentPool:
    first, amount = alike[0], sum(commitment.amount for commitment in alike)
    if first.kind is CommitmentKind.COMPUTE:
        amount = int(amount * book.share)
    return CommitmentPool(name, first.kind, amount, first.scope, first.zone, first.rates, book.vcpus)


REPORT_COUNTS = timedelta(hours=6)
"""How long a cluster's report counts unless it is renewed."""
_BEFORE_SHOWN = timedelta(minutes=2)
"""How long EC2 may take to show an instance that was launched."""


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """A cluster's report about itself, with its time."""

    at: datetime
    usage: Usage


@dataclass(frozen=True, slots=True)
class Commitments:
    """The book, and what clusters have reported since. `revision` is that of the reports, for a conditional write."""

    book: CommitmentBook
    reported: Mapping[str, ClusterUsage] = field(default_factory=dict)
    revision: int = 0

    def known_of(self, cluster: str, now: datetime) -> Usage:
        """Return what a cluster runs, as others see it: what was last read of it or what it has reported since."""
        report = self.reported.get(cluster)
        counts = report is not None and self._counts(report, now)
        return report.usage if report is not None and counts else self.book.running.get(cluster, NO_USAGE)

    def others(self, cluster: str, now: datetime) -> Usage:
        """Return what runs in the region outside of a cluster, as far as it is known."""
        total: dict[tuple[str, str], float] = {}
        for name in sorted({*self.book.running, *self.reported} - {cluster}):
            for key, count in self.known_of(name, now).items():
                total[key] = total.get(key, 0.0) + count
        return total

    def reporting(self, cluster: str, usage: Usage, now: datetime) -> Commitments:
        """Return these with a cluster's report, without reports that no longer count."""
        counting = {name: report for name, report in self.reported.items() if self._counts(report, now)}
        return replace(self, reported={**counting, cluster: ClusterUsage(now, usage)})

    def renews(self, cluster: str, usage: Usage, now: datetime) -> bool:
        """Return whether a cluster should report its usage: it differs from what others see, or expires soon."""
        report = self.reported.get(cluster)
        is_old = report is not None and self._counts(report, now) and now - report.at > REPORT_COUNTS / 2
        return is_old or dict(self.known_of(cluster, now)) != dict(usage)

    def _counts(self, report: ClusterUsage, now: datetime) -> bool:
        return report.at > self.book.read_at - _BEFORE_SHOWN and now - report.at < REPORT_COUNTS


NO_COMMITMENTS = Commitments(CommitmentBook(datetime(1970, 1, 1, tzinfo=UTC)))


# Documents. Rates of thousands of types are compressed, since an item of the table holds 400 KB.


def book_item(book: CommitmentBook) -> dict[str, Any]:
    """Write a book as JSON data."""
    rates: dict[str, Mapping[str, int]] = {}
    rows = []
    for commitment in book.commitments:
        rate = commitment.pool_name() if commitment.rates else ""
        if rate:
            rates[rate] = dict(sorted(commitment.rates.items()))
        row = [
            commitment.id,
            commitment.kind.name,
            commitment.amount,
            format_time(commitment.ends),
            commitment.scope,
            commitment.zone,
        ]
        rows.append([*row, rate, commitment.hourly_usd, commitment.of_payer])
    packed = zlib.compress(json.dumps(rates, separators=(",", ":")).encode(), 9)
    return {
        "readAt": format_time(book.read_at),
        "commitments": rows,
        "rates": base64.b64encode(packed).decode(),
        "running": {name: usage_item(usage) for name, usage in sorted(book.running.items())},
        "faults": list(book.faults),
        "share": book.share,
        "vcpus": dict(sorted(book.vcpus.items())),
    }


def read_book(item: Mapping[str, Any]) -> CommitmentBook:
    """Read what `book_item` wrote. Additions of later versions are ignored."""
    rates = json.loads(zlib.decompress(base64.b64decode(item["rates"])))
    rates_by_id = {
        name: FrozenMap({kind: int(rate) for kind, rate in by_kind.items()})
        for name, by_kind in rates.items()
    }
    return CommitmentBook(
        parse_time(item["readAt"]),
        tuple(
            _commitment(row, rates_by_id)
            for row in item["commitments"]
            if row[1] in CommitmentKind.__members__
        ),
        {name: read_usage(usage) for name, usage in item["running"].items()},
        tuple(map(str, item.get("faults", ()))),
        float(item.get("share", 1.0)),
        FrozenMap({name: int(count) for name, count in item.get("vcpus", {}).items()}),
    )


def _commitment(row: Any, rates: Mapping[str, FrozenMap[int]]) -> Commitment:
    id_, kind, amount, ends, scope, zone, rate, hourly, of_payer, *_ = row
    ends_at, priced = parse_time(ends), rates.get(rate, _NO_AMOUNTS)
    return Commitment(
        id_, CommitmentKind[kind], int(amount), ends_at, scope, zone, priced, float(hourly), bool(of_payer)
    )


def usage_item(usage: Usage) -> dict[str, float]:
    """Write a usage as JSON data."""
    return {f"{kind}/{zone}": count for (kind, zone), count in sorted(usage.items())}


def read_usage(item: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Read what `usage_item` wrote."""
    pairs = ((key.partition("/"), float(count)) for key, count in item.items())
    return {(kind, zone): count for (kind, _, zone), count in pairs}


def reports_item(commitments: Commitments) -> dict[str, Any]:
    """Write the clusters' reports as JSON data."""
    return {
        name: {"at": format_time(report.at), "usage": usage_item(report.usage)}
        for name, report in sorted(commitments.reported.items())
    }


def read_reports(item: Mapping[str, Any]) -> dict[str, ClusterUsage]:
    """Read what `reports_item` wrote. Other documents, which another version may write, have no reports."""
    try:
        return {
            name: ClusterUsage(parse_time(report["at"]), read_usage(report["usage"]))
            for name, report in item.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def commitments_item(commitments: Commitments) -> dict[str, Any]:
    """Write everything as JSON data, for the record of a decision."""
    return {"book": book_item(commitments.book), "reports": reports_item(commitments)}


def read_commitments(item: Mapping[str, Any]) -> Commitments:
    """Read what `commitments_item` wrote."""
    return Commitments(read_book(item["book"]), read_reports(item["reports"]))
