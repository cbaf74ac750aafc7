"""The controller of cost allocation: missed hours, crashes, damaged objects, days and months."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.allocations import (
    MOST_HOURS,
    BookedMemory,
    Booking,
    BookingReport,
    State,
    book_hours,
    chosen_versions,
)
from nodesmith.errors import Transient
from nodesmith.keys import catalog_key, commitments_key, snapshot_key
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.costs.allocations import (
    DAY,
    DAYS,
    HOUR,
    HOURS,
    MONTHS,
    MOVES,
    Allocation,
    MoveOutcome,
    allocations_key,
    booked_key,
    cost_of,
    hour_of,
    nano_usd,
    read_rows,
)
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.commitments import Commitment, CommitmentBook, CommitmentKind, book_item
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.fakes.catalogs import FakeCatalogs
from tests.fakes.store import FakeStore
from tests.smallworld.world import Boundaries, Killed, Watched, node_manifest, pod_manifest
from tests.unit.decisions.test_allocations import bought

CLUSTER, REGION = builders.CLUSTER, "us-east-1"
START = datetime(2026, 11, 25, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PRICE = 0.1


def claim(name: str = "default-a", **fields: Any) -> NodeClaim:
    known = {"price_hourly_usd": PRICE, "launched_at": START - 3 * DAY, "revision": 1}
    return bought(name, **(known | fields))


def snapshot(at: datetime, *pods: str) -> bytes:
    manifests = [pod_manifest(name, nodeName="node-default-a") for name in pods]
    found = [pod for each in manifests if (pod := reduce_pod(each)) is not None]
    return encode(CLUSTER, at, Observed(found, [], (), [], [], []))


@dataclass
class Ledgered:
    """A cluster with one node, its bucket and a clock."""

    now: datetime = START
    store: FakeStore = field(default_factory=FakeStore)
    blobs: FakeBlobs = field(default_factory=FakeBlobs)
    catalogs: FakeCatalogs = field(default_factory=lambda: FakeCatalogs(builders.catalog()))
    memory: BookedMemory = field(default_factory=BookedMemory)
    uses_commitments: bool = False

    def __post_init__(self) -> None:
        self.store.wall_clock = lambda: self.now
        self.store.claims["default-a"] = claim()
        self.show(START - DAY, "web-1")
        self.blobs.objects[booked_key(CLUSTER)] = State(START).to_json()

    def show(self, at: datetime, *pods: str) -> None:
        data = snapshot(at, *pods)
        self.blobs.objects[snapshot_key(CLUSTER)] = data
        self.blobs.keep_version(snapshot_key(CLUSTER), data, at)

    def run(self, boundaries: Boundaries | None = None) -> BookingReport:
        ports = (self.store, self.store.unbooked, self.blobs, self.blobs, self.catalogs)
        watched: list[Any] = [Watched(port, boundaries) if boundaries else port for port in ports]
        store, unbooked, blobs, history, catalogs = watched
        return book_hours(
            Booking(
                cluster_name=CLUSTER,
                region=REGION,
                store=store,
                unbooked=unbooked,
                blobs=blobs,
                history=history,
                catalogs=catalogs,
                clock=lambda: self.now,
                memory=self.memory,
                uses_commitments=self.uses_commitments,
            )
        )

    def after(self, time: timedelta) -> BookingReport:
        self.now = START + time
        return self.run()

    def rows(self, kind: str = HOURS, window: str = "2026-11-25/12") -> list[Allocation]:
        key = allocations_key(kind, CLUSTER, window)
        rows, faults = read_rows(self.blobs.objects[key], key, Allocation.from_row)
        assert not faults
        return rows

    def moves(self, window: str) -> list[MoveOutcome]:
        key = allocations_key(MOVES, CLUSTER, window)
        return read_rows(self.blobs.objects[key], key, MoveOutcome.from_row)[0]

    def written(self) -> dict[str, bytes]:
        return {key: data for key, data in self.blobs.objects.items() if key.startswith("allocations/")}


def cost(rows: list[Allocation]) -> int:
    return sum(row.nano_usd for row in rows)


def test_an_hour_is_booked_two_minutes_after_its_end() -> None:
    world = Ledgered()
    assert world.after(HOUR + MINUTE).hours == 0
    assert world.after(HOUR + 2 * MINUTE).hours == 1
    assert world.after(HOUR + 3 * MINUTE).hours == 0
    rows = world.rows()
    assert cost(rows) == nano_usd(PRICE)
    assert {row.owner.workload for row in rows} == {"", "ReplicaSet/web"}


def test_a_booked_hour_is_not_looked_up_again_by_the_same_process() -> None:
    world = Ledgered()
    world.after(HOUR + 2 * MINUTE)
    world.blobs.down = True
    assert world.after(HOUR + 30 * MINUTE).hours == 0


def test_without_a_state_booking_begins_with_the_last_hour() -> None:
    world = Ledgered()
    del world.blobs.objects[booked_key(CLUSTER)]
    assert world.after(3 * HOUR + 5 * MINUTE).hours == 1
    assert cost(world.rows(window="2026-11-25/14")) == nano_usd(PRICE)


def test_missed_hours_are_booked_from_what_claims_and_old_snapshots_say() -> None:
    world = Ledgered()
    world.store.claims["default-b"] = claim(
        "default-b",
        launched_at=START + 10 * MINUTE,
        terminated_at=START + 40 * MINUTE,
        phase=Phase.TERMINATED,
    )
    world.show(START + 90 * MINUTE)
    assert world.after(3 * HOUR + 5 * MINUTE).hours == 3
    assert cost(world.rows()) == nano_usd(PRICE) * 3 // 2
    whole, half, none = (world.rows(window=f"2026-11-25/{hour}") for hour in (12, 13, 14))
    assert [max((row.seconds for row in rows if row.pods), default=0) for rows in (whole, half, none)] == [
        3600,
        1800,
        0,
    ]


def test_at_most_six_hours_are_booked_in_one_run() -> None:
    world = Ledgered()
    assert [world.after(9 * HOUR + 5 * MINUTE).hours, world.run().hours] == [MOST_HOURS, 3]


def test_hours_of_more_than_a_week_ago_are_reported_and_left_out() -> None:
    world = Ledgered()
    report = world.after(8 * DAY + 5 * MINUTE)
    assert report.faults == [
        f"{booked_key(CLUSTER)}: the hours from {START} to {START + DAY} are too old to be booked"
    ]
    assert report.hours == MOST_HOURS


def test_a_node_bought_and_forgotten_within_the_hour_is_booked_once() -> None:
    world = Ledgered()
    short = claim(
        "default-b",
        launched_at=START + 10 * MINUTE,
        terminated_at=START + 16 * MINUTE,
        phase=Phase.TERMINATED,
    )
    world.store.claims["default-b"] = short
    world.now = START + 20 * MINUTE
    world.store.forget(short)
    assert world.after(HOUR + 5 * MINUTE).hours == 1
    assert cost(world.rows()) == nano_usd(PRICE) * 11 // 10
    world.after(2 * HOUR + 5 * MINUTE)
    assert cost(world.rows(window="2026-11-25/13")) == nano_usd(PRICE)
    assert world.store.unbooked.all() == ([], [])


def test_a_node_that_snapshots_show_into_the_next_hour_is_not_booked_as_another_softwares() -> None:
    world = Ledgered()
    ended = claim(terminated_at=START + 59 * MINUTE, phase=Phase.TERMINATED)
    world.store.claims["default-a"] = ended
    world.now = START + 61 * MINUTE
    world.store.forget(ended)
    made = node_manifest(ended.node_name, ended.provider_id, parse_resources({"cpu": "2"}), START - 3 * DAY)
    seen = encode(CLUSTER, START + 50 * MINUTE, Observed(nodes=[reduce_node(made)]))
    world.blobs.keep_version(snapshot_key(CLUSTER), seen, START + 50 * MINUTE)
    world.show(START + 60.5 * MINUTE)
    world.after(HOUR + 5 * MINUTE)
    world.after(2 * HOUR + 5 * MINUTE)
    assert world.rows(window="2026-11-25/13") == []
    assert world.store.unbooked.all() == ([], [])


def test_a_node_that_ends_after_the_hour_stays_for_the_next_one() -> None:
    world = Ledgered()
    ended = claim(terminated_at=START + 61 * MINUTE, phase=Phase.TERMINATED)
    world.store.claims["default-a"] = ended
    world.now = START + 61 * MINUTE
    world.store.forget(ended)
    world.after(HOUR + 5 * MINUTE)
    assert [each.name for each in world.store.unbooked.all()[0]] == ["default-a"]
    world.after(2 * HOUR + 5 * MINUTE)
    assert cost(world.rows(window="2026-11-25/13")) == cost_of(nano_usd(PRICE), MINUTE)
    world.after(3 * HOUR + 5 * MINUTE)
    assert world.store.unbooked.all() == ([], [])


def moved(world: Ledgered) -> None:
    """Let a move end the node, and another node begin."""
    at = START + 30 * MINUTE
    world.store.claims["default-b"] = claim(
        "default-b", launched_at=START + 20 * MINUTE, price_hourly_usd=0.04
    )
    move = Move(
        "m-1",
        Reason.UNDERUTILIZED,
        ("default-a",),
        Stage.ENDING,
        at,
        START,
        ("default-b",),
        0.06,
        message="cheaper",
    )
    world.store.moves["m-1"] = move
    world.store.forget_move(move)
    ended = claim(terminating_at=at, terminated_at=START + 45 * MINUTE, phase=Phase.TERMINATED)
    world.store.claims["default-a"] = ended
    world.now = START + 46 * MINUTE
    world.store.forget(ended)


def test_a_move_is_booked_when_it_is_made_and_a_day_later() -> None:
    world = Ledgered()
    moved(world)
    for hour in range(1, 26):
        world.after(hour * HOUR + 5 * MINUTE)
    (made,), (settled,) = world.moves("2026-11-25/12"), world.moves("2026-11-26/12")
    assert (made.settled_at, made.promised_hourly_nano_usd) == (None, nano_usd(0.06))
    assert settled.settled_at == START + DAY + 30 * MINUTE
    assert settled.saved_nano_usd == 24 * nano_usd(0.06) - nano_usd(PRICE) // 4
    assert sorted(key for key in world.written() if f"/{MOVES}/" in key) == [
        allocations_key(MOVES, CLUSTER, window) for window in ("2026-11-25/12", "2026-11-26/12")
    ]


def test_an_abandoned_move_is_not_booked() -> None:
    world = Ledgered()
    move = Move("m-2", Reason.EMPTY, ("default-a",), Stage.ABANDONED, START + MINUTE, START)
    world.store.moves["m-2"] = move
    world.store.forget_move(move)
    world.after(HOUR + 5 * MINUTE)
    assert not [key for key in world.written() if f"/{MOVES}/" in key]


def test_a_run_that_dies_at_any_call_is_repeated_with_the_same_result() -> None:
    def begun() -> Ledgered:
        world = Ledgered()
        moved(world)
        world.show(START + 80 * MINUTE, "web-2")
        world.now = START + 2 * HOUR + 5 * MINUTE
        return world

    whole, boundaries = begun(), Boundaries(look=None)
    whole.run(boundaries)
    assert boundaries.passed > 20
    for moment in range(1, boundaries.passed + 1):
        world = begun()
        with pytest.raises(Killed):
            world.run(Boundaries(frozenset({moment}), look=None))
        world.memory = BookedMemory()
        world.run()
        assert world.written() == whole.written(), moment
        world.after(3 * HOUR + 5 * MINUTE)  # what was left to delete waits for the next hour
        assert world.store.unbooked.all() == ([], []), moment


def test_two_runs_at_once_book_an_hour_once() -> None:
    world, other = Ledgered(), BookedMemory()

    def beside() -> None:
        world.memory, mine = other, world.memory
        world.run()
        world.memory = mine

    world.now = START + HOUR + 5 * MINUTE
    boundaries = Boundaries(visits={12: beside}, look=None)
    world.run(boundaries)
    assert not boundaries.visits
    assert cost(world.rows()) == nano_usd(PRICE)
    assert State.from_json(world.blobs.objects[booked_key(CLUSTER)]).booked_until == START + HOUR


def test_a_bucket_that_fails_is_tried_again_by_the_next_run() -> None:
    world = Ledgered()
    world.blobs.down = True
    with pytest.raises(Transient):
        world.after(HOUR + 5 * MINUTE)
    world.blobs.down = False
    assert world.run().hours == 1


def test_the_hours_of_a_day_and_the_days_of_a_month_are_merged() -> None:
    world = Ledgered()
    for hour in range(1, 24 * 6):
        world.after(hour * HOUR + 5 * MINUTE)
    assert cost(world.rows(DAYS, "2026-11-26")) == 24 * nano_usd(PRICE)
    month = world.rows(MONTHS, "2026-11")
    assert cost(month) == (12 + 5 * 24) * nano_usd(PRICE)
    assert {(row.window_start, row.window_end) for row in month} == {
        (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    }


def test_a_missing_or_damaged_hour_is_reported_and_the_day_has_the_others() -> None:
    world = Ledgered()
    for hour in range(1, 12):
        world.after(hour * HOUR + 5 * MINUTE)
    missing, damaged = (allocations_key(HOURS, CLUSTER, f"2026-11-25/{hour}") for hour in (13, 14))
    del world.blobs.objects[missing]
    world.blobs.objects[damaged] = b"not gzip"
    report = world.after(12 * HOUR + 5 * MINUTE)
    assert [fault.partition(" (")[0] for fault in report.faults] == [f"{damaged}: not gzip-compressed"]
    assert cost(world.rows(DAYS, "2026-11-25")) == 10 * nano_usd(PRICE)


def test_a_damaged_state_is_reported_and_booking_begins_again() -> None:
    world = Ledgered()
    world.blobs.objects[booked_key(CLUSTER)] = b'{"through": 7}'
    report = world.after(5 * HOUR + 5 * MINUTE)
    assert report.hours == 1
    assert report.faults[0].startswith(f"{booked_key(CLUSTER)}: cannot be read (")


def test_a_damaged_snapshot_is_reported_and_costs_are_booked_without_it() -> None:
    world = Ledgered()
    world.blobs.keep_version(snapshot_key(CLUSTER), b"damaged", START + 30 * MINUTE)
    world.blobs.objects[snapshot_key(CLUSTER)] = b"damaged"
    report = world.after(HOUR + 5 * MINUTE)
    assert len(report.faults) == 2
    assert "version 2026-11-25T12:30:00+00:00" in report.faults[1]
    assert cost(world.rows()) == nano_usd(PRICE)
    assert {row.pods for row in world.rows()} == {0, 1}  # the snapshot before it stands for the whole hour


def test_without_a_catalogue_nodes_have_the_price_of_their_launch() -> None:
    world = Ledgered()
    world.catalogs.stored = None
    report = world.after(HOUR + 5 * MINUTE)
    assert report.faults == ["catalogue: damaged; nodes have their last known price"]
    assert cost(world.rows()) == nano_usd(PRICE)


def test_the_catalogue_is_read_once_as_long_as_it_does_not_change() -> None:
    world = Ledgered()
    world.blobs.objects[catalog_key(REGION)] = b"first"
    world.after(HOUR + 5 * MINUTE)
    world.catalogs.stored = None
    assert world.after(2 * HOUR + 5 * MINUTE).faults == []


def spot_catalog(usd: float, at: datetime) -> Catalog:
    whole = builders.catalog()
    offered = tuple(
        replace(o, price_hourly_usd=usd, estimated=False) if o.capacity_type == "spot" else o
        for o in whole.offerings["m5.large"]
    )
    return Catalog.of(REGION, at, whole.facts, {**whole.offerings, "m5.large": offered})


@pytest.mark.parametrize("runs", [(1, 2, 3), (1, 3)])
def test_a_spot_price_counts_from_when_the_catalogue_has_it(runs: tuple[int, ...]) -> None:
    world = Ledgered()
    world.store.claims["default-a"] = claim(capacity_type="spot", price_hourly_usd=0.03)
    world.blobs.objects[catalog_key(REGION)] = b"first"
    world.catalogs.stored = spot_catalog(0.03, START - DAY)
    for run in runs:
        if run > 1:
            world.blobs.objects[catalog_key(REGION)] = b"second"
            world.catalogs.stored = spot_catalog(0.06, START + 2 * HOUR + 20 * MINUTE)
        world.after(run * HOUR + 25 * MINUTE)
    costs = [cost(world.rows(window=f"2026-11-25/{hour}")) for hour in (12, 13, 14)]
    assert costs == [nano_usd(0.03), nano_usd(0.03), nano_usd(0.05)]


def test_the_part_that_a_savings_plan_pays_for_is_reported_apart() -> None:
    world = Ledgered(uses_commitments=True)
    rate = 60_000
    plan = Commitment(
        "sp-1",
        CommitmentKind.COMPUTE,
        rate // 2,
        START + 400 * DAY,
        rates={"m5.large": rate},
        hourly_usd=0.03,
    )
    book = CommitmentBook(START, (plan,), {CLUSTER: {("m5.large", builders.ZONES[0]): 1.0}})
    world.blobs.objects[commitments_key(REGION)] = json.dumps(book_item(book)).encode()
    world.after(HOUR + 5 * MINUTE)
    assert sum(row.committed_nano_usd for row in world.rows()) == pytest.approx(nano_usd(PRICE) // 2, abs=3)
    assert cost(world.rows()) == nano_usd(PRICE)


def test_of_many_snapshots_those_in_force_every_five_minutes_are_read() -> None:
    written = [(START + timedelta(seconds=10) * n, str(n)) for n in range(-3, 360)]
    chosen = chosen_versions(written, START, START + HOUR)
    assert len(chosen) == 12
    assert [at - START for at, _ in chosen] == [5 * MINUTE * n for n in range(12)]
    assert chosen_versions(written[:5], START, START + HOUR) == written[3:5]


def test_the_object_of_an_hour_is_plain_json_lines_for_athena() -> None:
    world = Ledgered()
    world.after(HOUR + 5 * MINUTE)
    data = world.blobs.objects[allocations_key(HOURS, CLUSTER, "2026-11-25/12")]
    rows = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    assert sum(row["nano_usd"] for row in rows) == nano_usd(PRICE)
    assert hour_of(datetime.fromisoformat(rows[0]["window_start"])) == START
