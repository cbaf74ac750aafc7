"""The controller of cost allocation: book each hour that is over, write its object, and merge hours, days and months.

An hour has one object under its own name, so a run that repeats what another has done replaces it by the same. The
state of booking is written after it, on condition that no other run has done so. The ledger's records of ended nodes
and moves, which the booking needs, are deleted last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from nodesmith.controllers.observation import completed, newest_snapshot, own_snapshot
from nodesmith.decisions.allocations.division import Hour
from nodesmith.decisions.allocations.nodes import (
    UNKNOWN,
    BookedNode,
    Price,
    Prices,
    View,
    billed_usage,
    ended_at,
    followed,
    new_outcome,
    nodes_of,
    priced,
    prices_of,
)
from nodesmith.errors import Conflict, Rejected
from nodesmith.keys import catalog_key, commitments_key, snapshot_key
from nodesmith.model.apimachinery.times import format_time, parse_time
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
    days_of,
    hour_of,
    merged,
    read_rows,
    write_rows,
)
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.commitments import read_book
from nodesmith.model.ledger.moves import Move
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import NONE_THERE, Blobs, Catalogs, Store, VersionedBlobs

SETTLED_AFTER = timedelta(minutes=2)
"""How long after its end an hour is booked. By then, everything that was under way at its end has reached the
ledger."""
MOST_HOURS = 6
"""The most hours in one run; the next run books those that are left."""
LONGEST_GAP = timedelta(days=7)
"""Hours that are older are not booked any more: neither old snapshots nor ended nodes are kept longer."""
MOST_VIEWS = 12
"""The most snapshots of an hour that are read. If there were more, those in force every five minutes are."""


class SnapshotHistory(Protocol):
    """The versions of objects that are kept after they were replaced. Every call may raise Transient."""

    def written(self, key: str, since: datetime) -> Sequence[tuple[datetime, str]]:
        """Return when each version that was in force at `since` or later was written, and its id, oldest first."""

    def old_version(self, key: str, id_: str) -> bytes | None:
        """Return a version of an object, None if it is gone."""


class Unbooked(Protocol):
    """The ended nodes and moves that the ledger keeps until they are booked. Every call may raise Transient."""

    def all(self) -> tuple[Sequence[NodeClaim], Sequence[Move]]:
        """Return the claims of ended nodes, and the moves whose sources have begun to end."""

    def booked(self, claims: Collection[str], moves: Collection[str]) -> None:
        """Delete claims by name and moves by id."""


class Objects(Blobs, VersionedBlobs, Protocol):
    """The bucket."""


@dataclass(slots=True)
class BookedMemory:
    """What a process remembers: the end of the last hour that it knows to be booked."""

    booked_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Booking:
    """What a run needs. `labels` are the keys of the pods' labels by which costs are grouped."""

    cluster_name: str
    region: str
    store: Store
    unbooked: Unbooked
    blobs: Objects
    history: SnapshotHistory
    catalogs: Catalogs
    clock: Callable[[], datetime]
    memory: BookedMemory
    labels: tuple[str, ...] = ()
    uses_commitments: bool = False


@dataclass(slots=True)
class BookingReport:
    """How many hours were booked, and what could not be used, as sentences. The rest is booked without it."""

    hours: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class State:
    """What the booking of the next hour needs.

    Hours until `booked_until` are booked. `prices` are those of the catalogue whose version is `catalog_tag`, for the
    nodes of the last hour. `moves` are those whose outcome is not settled.
    """

    booked_until: datetime
    catalog_tag: str = NONE_THERE
    prices: Mapping[str, Price] = field(default_factory=dict)
    moves: tuple[MoveOutcome, ...] = ()

    def to_json(self) -> bytes:
        """Write the content of the object."""
        document = {
            "through": format_time(self.booked_until),
            "catalog": self.catalog_tag,
            "prices": {key: [p.hourly, p.estimated] for key, p in sorted(self.prices.items())},
            "moves": [move.to_row() for move in self.moves],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> State:
        """Read what `to_json` wrote. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
        document: Any = json.loads(data)
        prices = {key: Price(int(row[0]), bool(row[1])) for key, row in document["prices"].items()}
        moves = tuple(map(MoveOutcome.from_row, document["moves"]))
        return cls(parse_time(document["through"]), str(document["catalog"]), prices, moves)


def book_hours(run: Booking) -> BookingReport:
    """Book the hours that are over and not booked yet. Raises Transient.

    Another run that books at the same time is not disturbed: the one that is later stops.
    """
    report, last_hour = BookingReport(), hour_of(run.clock() - SETTLED_AFTER)
    if run.memory.booked_until is not None and run.memory.booked_until >= last_hour:
        return report
    tag, state = _state(run, last_hour, report)
    if state.booked_until < last_hour:
        books = _HourBooking(run, report)
        for _ in range(min(MOST_HOURS, (last_hour - state.booked_until) // HOUR)):
            after = books.hour(state)
            try:
                tag = run.blobs.replace(booked_key(run.cluster_name), after.to_json(), tag)
            except Conflict:
                return report
            state = after
            report.hours += 1
        books.forget(state.booked_until)
    run.memory.booked_until = state.booked_until
    return report


def _state(run: Booking, last_hour: datetime, report: BookingReport) -> tuple[str, State]:
    """Return the state and its version. Without one, booking begins with the last hour that is over."""
    key, begins = booked_key(run.cluster_name), State(last_hour - HOUR)
    version = run.blobs.read(key)
    if version.data is None:
        return version.tag, begins
    try:
        state = State.from_json(version.data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        report.faults.append(f"{key}: cannot be read ({error!r}); booking begins with the last hour")
        return version.tag, begins
    if last_hour - state.booked_until > LONGEST_GAP:
        oldest = last_hour - LONGEST_GAP
        report.faults.append(
            f"{key}: the hours from {state.booked_until} to {oldest} are too old to be booked"
        )
        state = replace(state, booked_until=oldest)
    return version.tag, state


class _HourBooking:
    """The hours of one run. Ledger and snapshots are read once."""

    def __init__(self, run: Booking, report: BookingReport) -> None:
        self._run, self._report = run, report
        # Before the ended nodes: a node that ends in between is found twice, not never.
        ledger = run.store.load()
        self._ended, self._moves = run.unbooked.all()
        by_name = {claim.name: claim for claim in (*ledger.claims, *self._ended)}
        self._claims = {name: by_name[name] for name in sorted(by_name)}
        self._newest = self._newest_snapshot()
        self._written: Sequence[tuple[datetime, str]] | None = None
        self._snapshots: dict[str, Snapshot | None] = {}
        self._catalog: Catalog | None = None

    def hour(self, state: State) -> State:
        """Book the hour after the state's, write what it completes, and return the next state."""
        run, start = self._run, state.booked_until
        views = list(self._views(start, start + HOUR, state))
        nodes = nodes_of(self._claims.values(), views, start, start + HOUR)
        prices, tag, known_prices = self._prices(nodes, state, start)
        nodes = [priced(node, prices) for node in nodes]
        hour = Hour(views, start, run.labels, self._shares(nodes))
        rows = sorted((row for node in nodes for row in hour.allocations(node)), key=lambda row: row.key)
        window = f"{start:%Y-%m-%d/%H}"
        run.blobs.put(allocations_key(HOURS, run.cluster_name, window), _document(rows))
        moves = self._follow(state.moves, nodes, start)
        recorded = [move for move in moves if move.settled_at or move.id not in {m.id for m in state.moves}]
        if recorded:
            run.blobs.put(allocations_key(MOVES, run.cluster_name, window), _document(recorded))
        self._complete(start)
        open_moves = tuple(move for move in moves if not move.settled_at)
        return State(start + HOUR, tag, known_prices, open_moves)

    def forget(self, through: datetime) -> None:
        """Delete what the ledger keeps of nodes and moves that are booked.

        Nodes are kept for a further hour. Snapshots may show one in it, and it would pass for another software's.
        """
        before = through - HOUR
        claims = sorted(claim.name for claim in self._ended if (ended_at(claim) or before) <= before)
        moves = sorted(move.id for move in self._moves if move.stage_since < through)
        if claims or moves:
            self._run.unbooked.booked(claims, moves)

    def _newest_snapshot(self) -> Snapshot | None:
        try:
            return newest_snapshot(self._run.blobs, self._run.cluster_name)
        except Rejected as error:
            self._report.faults.append(f"{error}; the hour is booked without it")
            return None

    def _views(self, start: datetime, end: datetime, state: State) -> Iterator[View]:
        """Yield what the cluster was like during the hour, in order and without gaps after the first snapshot.

        If no version of the hour is left, the newest snapshot stands for it.
        """
        if self._newest is not None and self._newest.taken_at <= start:
            yield View(start, end, self._newest)
            return
        if self._written is None:
            self._written = self._run.history.written(
                snapshot_key(self._run.cluster_name), state.booked_until
            )
        chosen = chosen_versions(self._written, start, end)
        versions = [(at, snapshot) for at, id_ in chosen if (snapshot := self._snapshot(id_)) is not None]
        if not versions and self._newest is not None:  # the nearest that is left
            yield View(start, end, self._newest)
        ends = [*(at for at, _ in versions[1:]), end]
        for (at, snapshot), until in zip(versions, ends, strict=bool(versions)):
            yield View(max(at, start), until, snapshot)

    def _snapshot(self, version: str) -> Snapshot | None:
        if version not in self._snapshots:
            key, snapshot = snapshot_key(self._run.cluster_name), None
            try:
                data = self._run.history.old_version(key, version)
                if data is not None:
                    data = completed(data, self._run.blobs, self._run.cluster_name)
                    snapshot = own_snapshot(data, self._run.cluster_name)
            except Rejected as error:
                self._report.faults.append(f"{key}, version {version}: {error}; it is left out")
            self._snapshots = {version: snapshot}  # the last of an hour is the first of the next
        return self._snapshots[version]

    def _prices(
        self, nodes: Iterable[BookedNode], state: State, start: datetime
    ) -> tuple[Prices, str, Mapping[str, Price]]:
        """Return the hour's prices, and the version and prices of the catalogue for the next hour.

        The catalogue is only read if it is new or lacks a price.
        """
        keys = {node.price_key for node in nodes if node.periods}
        known_prices = {key: state.prices[key] for key in sorted(keys & state.prices.keys())}
        tag = self._run.blobs.read(catalog_key(self._run.region), state.catalog_tag).tag
        catalog = None if tag == state.catalog_tag and keys <= known_prices.keys() else self._read_catalog()
        if catalog is None:
            return Prices(known_prices), state.catalog_tag, known_prices
        latest = {**dict.fromkeys(keys, UNKNOWN), **prices_of(catalog, keys)}
        if tag == state.catalog_tag or not known_prices or catalog.made_at <= start:
            return Prices(latest), tag, latest
        prices = Prices(latest, known_prices, catalog.made_at)
        # The next hour must see the change, too, if this one ends before it.
        return (
            (prices, tag, latest)
            if catalog.made_at < start + HOUR
            else (prices, state.catalog_tag, known_prices)
        )

    def _read_catalog(self) -> Catalog | None:
        """Return the catalogue, None if it cannot be used: prices are then the known ones, or those at the launch."""
        if self._catalog is None:
            try:
                self._catalog = self._run.catalogs.latest()
            except Rejected as error:
                self._report.faults.append(f"{error}; nodes have their last known price")
        return self._catalog

    def _shares(self, nodes: Iterable[BookedNode]) -> Callable[[str, str], float]:
        """Return a function that returns which part of the on-demand instances of a type commitments pay for."""
        data = self._run.blobs.get(commitments_key(self._run.region)) if self._run.uses_commitments else None
        if data is None:
            return lambda *_: 0.0
        # Few deployments use commitments, and this imports most of scheduling.
        from nodesmith.decisions.scheduling.offerings.commitments import applied, on_demand_prices

        try:
            book = read_book(json.loads(data))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._report.faults.append(f"{commitments_key(self._run.region)}: cannot be read ({error!r})")
            return lambda *_: 0.0
        usage = billed_usage(nodes)
        for cluster, running in sorted(book.running.items()):
            for key, count in running.items() if cluster != self._run.cluster_name else ():
                usage[key] = usage.get(key, 0.0) + count
        now = self._run.clock()
        catalog = self._read_catalog()
        prices = on_demand_prices(catalog) if catalog else {}
        return applied(book.pools(now), usage, prices).share_of

    def _follow(
        self, earlier: Sequence[MoveOutcome], nodes: Iterable[BookedNode], start: datetime
    ) -> list[MoveOutcome]:
        """Return all moves whose outcome was not settled before the hour, and those of the hour."""
        ids = {move.id for move in earlier}
        # A move may be written a little after its hour. One that is older and unknown has been settled.
        new = [m for m in self._moves if start - HOUR <= m.stage_since < start + HOUR and m.id not in ids]
        by_claim = {node.claim: node for node in nodes if node.claim}
        moves = [*earlier, *(new_outcome(move, self._claims) for move in new)]
        return [followed(move, by_claim, self._claims, start) for move in moves]

    def _complete(self, start: datetime) -> None:
        """Merge the hours of a day, and the days of a month, if this hour was the last."""
        cluster, day = self._run.cluster_name, start.replace(hour=0)
        if start + HOUR != day + DAY:
            return
        hours = (f"{day + HOUR * n:%Y-%m-%d/%H}" for n in range(24))
        self._merge(HOURS, hours, allocations_key(DAYS, cluster, f"{day:%Y-%m-%d}"), day, day + DAY)
        month, next_ = day.replace(day=1), day + DAY
        if next_.month != month.month:
            days = (f"{date:%Y-%m-%d}" for date in days_of(month))
            self._merge(DAYS, days, allocations_key(MONTHS, cluster, f"{month:%Y-%m}"), month, next_)

    def _merge(self, kind: str, windows: Iterable[str], into: str, start: datetime, end: datetime) -> None:
        rows = merged(self._rows(kind, windows), start, end)
        self._run.blobs.put(into, _document(rows))

    def _rows(self, kind: str, windows: Iterable[str]) -> Iterator[Allocation]:
        for window in windows:
            key = allocations_key(kind, self._run.cluster_name, window)
            data = self._run.blobs.get(key)
            if data is not None:  # before nodesmith served the cluster, there is none
                rows, faults = read_rows(data, key, Allocation.from_row)
                self._report.faults += faults
                yield from rows


def _document(rows: Iterable[Allocation | MoveOutcome]) -> bytes:
    return write_rows(row.to_row() for row in rows)


def chosen_versions(
    written: Sequence[tuple[datetime, str]], start: datetime, end: datetime
) -> list[tuple[datetime, str]]:
    """Return the versions that show an hour, oldest first: all in force during it, or those every five minutes.

    `written` has all versions, oldest first.
    """
    before = [version for version in written if version[0] <= start][-1:]
    during = [version for version in written if start < version[0] < end]
    if len(before) + len(during) <= MOST_VIEWS:
        return [*before, *during]
    step = (end - start) / MOST_VIEWS
    moments = [start + step * n for n in range(1, MOST_VIEWS)]
    latest = [max((v for v in during if v[0] <= moment), default=None) for moment in moments]
    return [*before, *dict.fromkeys(version for version in latest if version is not None)]
