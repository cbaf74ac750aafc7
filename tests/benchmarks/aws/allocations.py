"""Cost allocation: a simulated month against the bill of its own EC2, and what booking costs at 500 nodes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from infra.storage import ALLOCATION_DAYS, ALLOCATION_HOUR_DAYS
from nodesmith.controllers.allocations import Booking, book_hours
from nodesmith.controllers.garbagecollection import GarbageCollection, GarbageReport, collect_garbage
from nodesmith.keys import catalog_key
from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.costs.allocations import (
    ALLOCATIONS,
    DAY,
    HOURS,
    MONTHS,
    MOVES,
    Allocation,
    allocations_prefix,
    cost_of,
    nano_usd,
    read_rows,
    to_book,
)
from nodesmith.model.costs.allocations import DAYS as BY_DAY
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.functions import Concern
from nodesmith.model.ledger.items import claim_to_item
from tests import builders
from tests.benchmarks.aws.bill import BookingUse, booking_bill
from tests.benchmarks.figures import Figure
from tests.scenarios.weeks import Bucket, Fleet
from tests.smallworld.world import World

NODES, DAYS, DAILY_FAULTS = 20, 30, 0.05
BILLED_NODES, BILLED_HOURS = 500, 24
_NANO = 1_000_000_000


@dataclass(slots=True)
class AskedBucket(Bucket):
    """Objects that count calls while `is_counted`."""

    asked: Counter[str] = field(default_factory=Counter)
    is_counted: bool = False

    def get(self, key: str) -> bytes | None:
        """Count and return."""
        self.asked["get"] += self.is_counted
        return Bucket.get(self, key)

    def put(self, key: str, data: bytes) -> None:
        """Count and write."""
        self.asked["put"] += self.is_counted
        Bucket.put(self, key, data)

    def written(self, key: str, since: datetime) -> list[tuple[datetime, str]]:
        """Count the pages of a list of versions, and return them."""
        found = Bucket.written(self, key, since)
        self.asked["written"] += self.is_counted * (1 + len(found) // 1000)
        return found

    def old_version(self, key: str, id_: str) -> bytes | None:
        """Count and return."""
        self.asked["old_version"] += self.is_counted
        return Bucket.old_version(self, key, id_)


class BilledFleet(Fleet):
    """A fleet whose EC2 keeps a bill: each instance by the second, at the spot price of each moment."""

    def __init__(self, nodes: int, seed: int = 7) -> None:
        super().__init__(nodes, seed)
        self.blobs = AskedBucket(usage=self.usage)
        self.begin_booking()
        self.booking_seconds = 0.0
        self.store.wall_clock = self.clock
        self._ended: dict[str, datetime] = {}
        self._sold: list[tuple[datetime, Catalog]] = [(self.now, self.sold)]
        self._write_catalog()

    @property
    def asked(self) -> Counter[str]:
        """How often cost allocation has called the bucket, by method."""
        assert isinstance(self.blobs, AskedBucket)
        return self.blobs.asked

    def collect(self, run: GarbageCollection, booking: Booking) -> GarbageReport:
        """Run garbage collection and cost allocation, and measure the latter."""
        assert isinstance(self.blobs, AskedBucket)
        report, started = collect_garbage(run), time.process_time()
        self.blobs.is_counted = True
        try:
            book_hours(booking)
        finally:
            self.blobs.is_counted = False
            self.booking_seconds += time.process_time() - started
        return report

    def change_prices(self, _: World) -> None:
        """Let all spot prices rise or fall, as the catalogue then says."""
        self.faults["spot prices changed"] += 1
        factor = 1 + self._fate.randrange(-300, 400) / 1000
        offerings = {
            name: tuple(
                replace(o, price_hourly_usd=round(o.price_hourly_usd * factor, 6), estimated=False)
                if o.capacity_type == SPOT
                else o
                for o in offered
            )
            for name, offered in self.sold.offerings.items()
        }
        self.sold = Catalog.of(self.sold.region, self.now, self.sold.facts, offerings)
        self._sold.append((self.now, self.sold))
        self._write_catalog()

    def _write_catalog(self) -> None:
        self.blobs.objects[catalog_key(self.sold.region)] = self.sold.ref.encode()

    def run(self, concern: Concern) -> None:
        """Invoke a function once, and note which instances it has ended."""
        super().run(concern)
        self._note_ends()

    def _pass(self, until: datetime) -> None:
        super()._pass(until)
        self._note_ends()

    def _note_ends(self) -> None:
        for instance in self.cloud.instances.values():
            if not instance.is_alive:
                self._ended.setdefault(instance.id, self.now)

    def billed(self, until: datetime) -> int:
        """Return what EC2 charges until then, in nano-dollars."""
        return sum(sum(self._charges(id_, until)) for id_ in self.cloud.instances)

    def _charges(self, id_: str, until: datetime) -> Iterator[int]:
        instance, ended = self.cloud.instances[id_], min(self._ended.get(id_, until), until)
        ends = [*(at for at, _ in self._sold[1:]), until]
        for (since, sold), to in zip(self._sold, ends, strict=True):
            begin, end = max(instance.launched_at, since), min(ended, to)
            if begin < end:
                offers = sold.offerings[instance.instance_type]
                way = instance.zone, instance.capacity_type
                price = next(o.price_hourly_usd for o in offers if (o.zone, o.capacity_type) == way)
                yield cost_of(nano_usd(price), end - begin)

    def rows(self, kind: str) -> list[Allocation]:
        """Return all rows of the objects of one kind."""
        prefix = allocations_prefix(kind, builders.CLUSTER)
        found: list[Allocation] = []
        for key in sorted(key for key in self.blobs.objects if key.startswith(prefix)):
            rows, faults = read_rows(self.blobs.objects[key], key, Allocation.from_row)
            assert not faults
            found += rows
        return found


def figures(
    nodes: int = NODES, days: int = DAYS, billed_nodes: int = BILLED_NODES, billed_hours: int = BILLED_HOURS
) -> list[Figure]:
    """Simulate and compare."""
    return [_error(nodes, days), *_costs(billed_nodes, billed_hours)]


def lived(nodes: int, days: int, daily_faults: float = DAILY_FAULTS) -> BilledFleet:
    """Return a fleet after days of faults, with spot prices that change twice a day within an hour."""
    fleet = BilledFleet(nodes)
    fleet.plan(days, daily_faults)
    for half_day in range(2 * days):
        at = DAY / 2 * half_day + timedelta(hours=5, minutes=17, seconds=half_day)
        fleet.mishaps.append((at, fleet.change_prices))
    fleet.mishaps.sort(key=lambda mishap: mishap[0])
    fleet.observe()
    fleet.live(days * DAY)
    return fleet


def difference(fleet: BilledFleet) -> tuple[int, int]:
    """Return what was booked in all hours, and what EC2 charged in them, in nano-dollars."""
    rows = fleet.rows(HOURS)
    return sum(row.nano_usd for row in rows), fleet.billed(max(row.window_end for row in rows))


def _error(nodes: int, days: int) -> Figure:
    fleet = lived(nodes, days)
    booked, billed = difference(fleet)
    rows = fleet.rows(HOURS)
    kinds: Counter[str] = Counter()
    for row in rows:
        kinds[row.owner.kind] += row.nano_usd
    merged = sum(row.nano_usd for row in fleet.rows(MONTHS))
    faults = ", ".join(f"{count} × {what}" for what, count in sorted(fleet.faults.items()))
    note = (
        f"{nodes} nodes, {days} days, {len(fleet.cloud.instances)} instances, {fleet.meter.deaths} functions died;"
        f" booked {booked / _NANO:.6f}, billed {billed / _NANO:.6f} USD, idle {kinds['__idle__'] / booked:.1%},"
        f" in months {merged / _NANO:.2f}; {faults}"
    )
    return Figure("ledger-error-usd", round(abs(booked - billed) / _NANO, 2), "USD", 0.0, note)


def _costs(nodes: int, hours: int) -> list[Figure]:
    """Return what booking a month costs for a fleet of which 2 % fail each day."""
    fleet = BilledFleet(nodes)
    fleet.plan(1, 0.02)
    fleet.observe()
    fleet.live(timedelta(hours=1))
    fleet.forget_counts()
    fleet.asked.clear()
    before, fleet.booking_seconds = dict(fleet.blobs.objects), 0.0
    fleet.live(timedelta(hours=hours))
    written = {key: data for key, data in fleet.blobs.objects.items() if before.get(key) != data}
    sizes: Counter[str] = Counter()
    for key, data in written.items():
        if key.startswith(ALLOCATIONS):
            sizes[key.split("/")[1]] += len(data)
    kept = sizes[HOURS] * ALLOCATION_HOUR_DAYS + (sizes[BY_DAY] + sizes[MOVES]) * ALLOCATION_DAYS
    item = max(len(json.dumps(claim_to_item(to_book(c, fleet.now)))) for c in fleet.store.claims.values())
    forgotten = fleet.usage.calls["FakeStore.forget"]
    asked = fleet.asked
    use = BookingUse(
        asked["put"],
        asked["written"],
        asked["get"] + asked["old_version"],
        kept * 24 / hours,
        forgotten,
        item + 100,
        fleet.booking_seconds,
    )
    bill = booking_bill(use, hours)
    parts = ", ".join(f"{what} {usd:.4f}" for what, usd in bill.items())
    note = f"{nodes} nodes, {hours} h; {parts}; bytes: {dict(sizes)}; {use}"
    return [Figure("ledger-usd", sum(bill.values()), "USD a month", 0.50, note)]
