"""A cluster's decisions as the pages show them: each is read once, in the background, and kept as a small value."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, RLock, Thread
from typing import Any

from nodesmith.errors import NodesmithError
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import ENDING, HOLDING, Phase
from nodesmith_cli.views.ui.fleetmap import Tile, tiles_of
from nodesmith_formats.decisions.records import Records
from nodesmith_formats.decisions.summaries import summary

MOST = 500
"""How many decisions are kept, the newest."""
MOST_LIVES = 5_000
_AT_ONCE, _REFRESH_SECONDS, _BREATH_SECONDS = 4, 10.0, 0.02
_LOG = logging.getLogger(__name__)
Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PoolBackoff:
    """A pool that is not asked for capacity, as a decision knew it. `failures` are consecutive ones."""

    pool: OfferingKey
    failures: int
    reason: str
    until: datetime


@dataclass(frozen=True, slots=True)
class ProposedMove:
    """A move as a search proposed it. Sources and replacements are names of NodeClaims."""

    reason: str
    sources: tuple[str, ...]
    saving_hourly_usd: float
    eviction_cost: float
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What the pages show of a decision record. Prices are in USD an hour.

    `nodes`, `hourly_usd` and `tiles` are those of nodesmith's nodes as the decision knew them; `losses` are the amounts
    that pools have recently lost to interruptions.
    """

    id: str
    at: datetime
    concern: str
    summary: str
    is_superseded: bool
    bought: int
    price_hourly_usd: float
    bound_hourly_usd: float
    unplaced: int
    moves: tuple[ProposedMove, ...]
    problems: tuple[str, ...]
    obstacles: Mapping[str, str]
    nodes: int
    hourly_usd: float
    tiles: tuple[Tile, ...]
    held_back: tuple[PoolBackoff, ...]
    losses: Mapping[OfferingKey, float]


@dataclass(frozen=True, slots=True)
class NodeClaimHistory:
    """What decisions know of a NodeClaim, the last at `seen_at`. `steps` are phases with their beginnings."""

    name: str
    node: str
    instance_type: str
    zone: str
    capacity_type: str
    price_hourly_usd: float
    steps: tuple[tuple[str, datetime], ...]
    cause: str
    seen_at: datetime

    def began(self, *phases: str) -> datetime | None:
        """Return when the first of these phases began, or None."""
        return next((at for phase, at in self.steps if phase in phases), None)


@dataclass(slots=True)
class Archive:
    """The newest decisions of one cluster, oldest first. Without `records` it stays empty; threads may share it."""

    records: Records | None
    note: str = ""
    """Why decisions could not be read; empty if they could."""
    is_filled: bool = False
    _decisions: dict[str, Decision] = field(default_factory=dict)
    _kept_histories: dict[str, NodeClaimHistory] = field(default_factory=dict)
    _unreadable: set[str] = field(default_factory=set)
    _lock: RLock = field(default_factory=RLock)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        with self._lock:
            return tuple(self._decisions[decision] for decision in sorted(self._decisions))

    @property
    def histories(self) -> tuple[NodeClaimHistory, ...]:
        """All NodeClaims that kept decisions knew."""
        with self._lock:
            return tuple(self._kept_histories.values())

    def start(self, stop: Event) -> None:
        """Read decisions until `stop` is set, in a thread that ends with the process."""
        Thread(target=self._follow, args=(stop,), daemon=True).start()

    def _follow(self, stop: Event) -> None:
        while self.records is not None:
            self.refresh(stop)
            if stop.wait(_REFRESH_SECONDS):
                return

    def refresh(self, stop: Event) -> None:
        """Read what is new, the newest decisions first."""
        records = self.records
        if records is None:
            return
        try:
            ids = records.ids()[::-1][:MOST]
            new = [name for name in ids if name not in self._decisions and name not in self._unreadable]
            with ThreadPoolExecutor(_AT_ONCE) as readers:
                for start in range(0, len(new), _AT_ONCE):
                    for id_, record in readers.map(self._read, new[start : start + _AT_ONCE]):
                        self.add(id_, record)
                    if stop.wait(_BREATH_SECONDS):
                        return
            self.note, self.is_filled = "", True
        except NodesmithError as error:
            self.note = str(error)
            _LOG.debug("decisions cannot be read", exc_info=True)

    def _read(self, id_: str) -> tuple[str, Item]:
        assert self.records is not None  # noqa: S101
        return id_, self.records.read(id_)

    def add(self, id_: str, record: Item) -> None:
        """Add a record. One that cannot be understood is left out, and counted in `unreadable`."""
        try:
            decision, histories = digest(record), list(_histories(record))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            with self._lock:
                self._unreadable.add(id_)
            return
        with self._lock:
            self._decisions[id_] = decision
            for history in histories:
                previous = self._kept_histories.get(history.name)
                if previous is None or previous.seen_at <= history.seen_at:
                    self._kept_histories[history.name] = history
            self._forget()

    def _forget(self) -> None:
        for old in sorted(self._decisions)[:-MOST]:
            del self._decisions[old]
        if len(self._kept_histories) > MOST_LIVES:
            newest = sorted(
                self._kept_histories.values(), key=lambda history: (history.seen_at, history.name)
            )[-MOST_LIVES:]
            self._kept_histories = {entry.name: entry for entry in newest}

    @property
    def unreadable(self) -> int:
        """The number of decisions that were left out because they cannot be understood."""
        return len(self._unreadable)


def digest(record: Item) -> Decision:
    """Return what the pages show of a record. Raises KeyError, TypeError or ValueError if it has another shape."""
    plan, ledger = record["plan"], record["inputs"]["ledger"]
    present = [claim for claim in ledger.get("claims") or () if _is_present(claim)]
    return Decision(
        id=str(record["id"]),
        at=parse_time(record["at"]),
        concern=str(record["concern"]),
        summary=summary(record),
        is_superseded=bool(record.get("superseded")),
        bought=len(plan["nodes"]),
        price_hourly_usd=float(plan["priceHourlyUsd"]),
        bound_hourly_usd=float(plan["boundHourlyUsd"]),
        unplaced=sum(len(group["pods"]) for group in plan["unplaced"]),
        moves=tuple(_move(move) for move in plan.get("moves") or ()),
        problems=tuple(map(str, plan["problems"])),
        obstacles=dict(plan["obstacles"]),
        nodes=len(present),
        hourly_usd=sum(float(claim.get("price_hourly_usd") or 0) for claim in present),
        tiles=tuple(tiles_of(_row(claim) for claim in present)),
        held_back=tuple(_held_back(ledger.get("unavailable") or ())),
        losses={OfferingKey(*row[:3]): float(row[3]["losses"]) for row in ledger.get("risks") or ()},
    )


def runs_of(decisions: Iterable[Decision]) -> list[tuple[Decision, int]]:
    """Merge neighbouring decisions with the same summary into the first, and return it with their number."""
    runs: list[tuple[Decision, int]] = []
    for decision in decisions:
        if runs and (runs[-1][0].summary, runs[-1][0].concern) == (decision.summary, decision.concern):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((decision, 1))
    return runs


def _is_present(claim: Item) -> bool:
    phase = Phase(claim.get("true_phase") or claim["phase"])
    return phase in HOLDING or phase in ENDING


def _row(claim: Item) -> tuple[str, str, str, float, bool]:
    ending = Phase(claim.get("true_phase") or claim["phase"]) is not Phase.INITIALIZED
    kind, zone, sold = (str(claim.get(key) or "") for key in ("instance_type", "zone", "capacity_type"))
    return zone, kind, sold, float(claim.get("price_hourly_usd") or 0), ending


def _move(item: Item) -> ProposedMove:
    return ProposedMove(
        str(item["reason"]),
        tuple(map(str, item["sources"])),
        float(item["savingHourlyUsd"]),
        float(item["evictionCost"]),
        str(item["message"]),
    )


def _held_back(items: Sequence[Sequence[Any]]) -> Iterator[PoolBackoff]:
    for sold, kind, zone, backoff, *group in items:
        pool = OfferingKey(str(sold), str(kind), str(zone), *map(str, group))
        until = datetime.fromisoformat(backoff["until"])
        yield PoolBackoff(pool, int(backoff["failures"]), str(backoff["reason"]), until)


def _histories(record: Item) -> Iterator[NodeClaimHistory]:
    seen_at = parse_time(record["at"])
    for claim in record["inputs"]["ledger"].get("claims") or ():
        past = claim.get("true_history") or claim.get("history") or ()
        steps = [(str(Phase.PENDING), parse_time(claim["created_at"]))]
        steps += [
            (str(step[0]), datetime.fromisoformat(step[1])) for step in past if step[0] != Phase.PENDING
        ]
        now = str(claim.get("true_phase") or claim["phase"])
        if now not in {phase for phase, _ in steps}:
            steps.append((now, datetime.fromisoformat(claim["phase_since"])))
        ending = now in {str(ending_phase) for ending_phase in (*ENDING, Phase.GIVEN_UP)}
        yield NodeClaimHistory(
            name=str(claim["name"]),
            node=str(claim.get("node_name") or ""),
            instance_type=str(claim.get("instance_type") or ""),
            zone=str(claim.get("zone") or ""),
            capacity_type=str(claim.get("capacity_type") or ""),
            price_hourly_usd=float(claim.get("price_hourly_usd") or 0),
            steps=tuple(steps),
            cause=str(claim.get("cause") or "") if ending else "",
            seen_at=seen_at,
        )
