"""What nodesmith has recorded of a cluster, as a workload: decision records, and the snapshots that they are based on.

Every recorded decision can also be made again from its recorded inputs, which shows whether a replay is faithful.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.decisions.disruption.search import search as disruption
from nodesmith.decisions.provisioning import Inputs, as_read, canonical, inputs_of, replay
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.items import read_ledger
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith_cli.simulator.simulating.slots import ObservedPod, slots
from nodesmith_cli.views.explaining.decision import catalog_of
from nodesmith_formats.decisions.records import Records
from nodesmith_formats.wording import some, span
from nodesmith_local.simulation.trace import BOOT_SECONDS, Trace

_AT_ONCE = 16
_LEAST_BOOTS = 5
"""Fewer observed boots say little about how long boots take."""
_HOUR = timedelta(hours=1)
_ID = "%Y%m%dT%H%M%SZ"
Catalogs = Callable[[dict[str, Any]], Catalog]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded workload, and how faithfully its decisions can be repeated.

    `usd` is what nodesmith's nodes have cost by the recorded ledgers. Of `decisions` recorded ones, `repeated` were
    made again, and `differences` says in a sentence for each that came out differently what differs.
    """

    trace: Trace
    usd: float
    decisions: int
    repeated: int = 0
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else should be known, each in a sentence."""


def read_recorded(
    records: Records,
    catalogs: Catalogs,
    since: timedelta,
    *,
    repeat: bool,
    on_progress: Callable[[float], None] = lambda _: None,
) -> Recorded:
    """Read the decisions of the last `since`, counted from the newest one. Raises Rejected if there are none.

    With `repeat`, each is made again from its recorded inputs. `on_progress` gets the share that has been read.
    """
    ids = records.ids()
    if not ids:
        raise Rejected(f"no decisions of cluster {records.cluster!r} are stored here")
    newest, oldest = _moment(ids[-1]), _moment(ids[0])
    chosen = [decision_id for decision_id in ids if _moment(decision_id) >= newest - since]
    story = _History()
    if newest - oldest < since - _HOUR:
        kept = span(int((newest - oldest).total_seconds()))
        story.notes.append(f"only {kept} of decisions are kept: the first is of {oldest:%Y-%m-%d %H:%M} UTC")
    for number, (record, snapshot) in enumerate(_read(records, chosen, story.omissions)):
        on_progress(number / len(chosen))
        _add(story, record, snapshot, catalogs, repeat=repeat)
    story.see_last(records.latest_snapshot())
    if story.first is None:
        raise Rejected(
            f"cluster {records.cluster!r}: of {len(chosen)} decisions since {newest - since:%Y-%m-%d %H:%M} UTC, "
            "none has its snapshot: there is nothing to simulate"
        )
    return story.outcome(len(chosen))


def _moment(id_: str) -> datetime:
    try:
        return datetime.strptime(id_.partition("-")[0], _ID).replace(tzinfo=UTC)
    except ValueError:
        raise Rejected(
            f"decision {id_!r}: its id does not begin with a time such as 20260131T235959Z"
        ) from None


def _read(
    records: Records, ids: Sequence[str], omissions: Counter[str]
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the records with their snapshots, oldest first. Those that cannot be read are counted."""

    def read(id_: str) -> tuple[dict[str, Any], bytes] | str:
        try:
            record, snapshot = records.read(id_), records.snapshot(id_)
        except Rejected:
            return "decisions whose record cannot be read"
        return (record, snapshot) if snapshot is not None else "decisions without a snapshot"

    with ThreadPoolExecutor(_AT_ONCE) as readers:
        for start in range(0, len(ids), _AT_ONCE):
            for loaded in readers.map(read, ids[start : start + _AT_ONCE]):
                if isinstance(loaded, str):
                    omissions[loaded] += 1
                else:
                    yield loaded


def _add(story: _History, record: dict[str, Any], data: bytes, catalogs: Catalogs, *, repeat: bool) -> None:
    try:
        snapshot = decode(data)
        story.see(snapshot, read_ledger(record["inputs"]["ledger"]).claims)
    except (Rejected, KeyError, TypeError, ValueError):
        story.omissions["decisions with an unreadable snapshot or ledger"] += 1
        return
    if not (repeat or story.first is None):
        return
    try:
        inputs = inputs_of(record, snapshot, catalog_of(record, lambda _: catalogs(record)))
    except Rejected:
        story.omissions["decisions that were made with another catalogue"] += 1
        if story.first is None:
            story.first = inputs_of(record, snapshot, catalogs(record))
        return
    story.first = story.first or inputs
    if repeat:
        story.repeated += 1
        story.differences += differences(record, snapshot, inputs.catalog)


def differences(record: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> list[str]:
    """Make a recorded decision again; return what differs, in a sentence, or nothing."""
    import json

    again = disruption.replay if record["concern"] == disruption.DISRUPTION else replay
    found = again(record, snapshot, catalog)
    if found == canonical(record["plan"]):
        return []
    was, now = record["plan"], json.loads(found)
    parts = [
        f"{what} {some(before, 2) or 'none'}, now {some(after, 2) or 'none'}"
        for what, of in (("launched", _launches), ("moved", _moved))
        if (before := of(was)) != (after := of(now))
    ]
    changed = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
    return [f"decision {record['id']}: {'; '.join(parts) or 'differs in ' + ', '.join(changed)}"]


def _launches(plan: Mapping[str, Any]) -> list[str]:
    """Return what a plan launches: NodePool, capacity type, cheapest instance type, price."""
    return [
        f"{node['claim']['nodepool']}: {node['launch']['capacityType']} "
        f"{min(node['launch']['overrides'], key=lambda o: (o[4], o[1]))[1]} at ${node['priceHourlyUsd']:.4f}"
        for node in plan.get("nodes") or ()
    ]


def _moved(plan: Mapping[str, Any]) -> list[str]:
    return [f"{some(move['sources'], 2)} ({move['reason']})" for move in plan.get("moves") or ()]


@dataclass(slots=True)
class _History:
    """What the snapshots and ledgers of consecutive decisions tell about pods and nodes."""

    first: Inputs | None = None
    omissions: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    repeated: int = 0
    differences: list[str] = field(default_factory=list)
    _observed: dict[tuple[str, datetime], ObservedPod] = field(default_factory=dict)
    _there: set[tuple[str, datetime]] = field(default_factory=set)
    _at: datetime | None = None
    _start: datetime | None = None
    _shapes: dict[str, Shape] = field(default_factory=dict)
    _claims: dict[str, tuple[NodeClaim, datetime, datetime | None]] = field(default_factory=dict)
    """Claim → its last state, when it was last seen, and when it was first missing."""

    def see(self, snapshot: Snapshot, claims: Iterable[NodeClaim]) -> None:
        """Add what one decision saw."""
        at = snapshot.taken_at
        if self._at is not None and at < self._at:
            self.omissions["snapshots that are older than the one before"] += 1
            return
        known = {
            id(shape): self._shape(shape) for shape in {id(p.shape): p.shape for p in snapshot.pods}.values()
        }
        there: set[tuple[str, datetime]] = set()
        for pod in snapshot.pods:
            if not pod.shape.moves or pod.deleting:
                continue
            name = pod.key, pod.created_at
            there.add(name)
            observed = self._observed.get(name)
            if observed is None:
                bound = at if pod.node else None
                self._observed[name] = ObservedPod(
                    pod.key, known[id(pod.shape)], pod.created_at, node=pod.node, bound_at=bound
                )
            elif pod.node and observed.bound_at is None:
                self._observed[name] = replace(observed, node=pod.node, bound_at=at)
        for name in self._there - there:
            self._observed[name] = replace(self._observed[name], ended=(self._at or at, at))
        self._there, self._at, self._start = there, at, self._start or at
        self._see_claims(claims, at)

    def see_last(self, data: bytes | None) -> None:
        """Add the cluster's newest snapshot, if it is newer than the last decision: the nodes are the same then."""
        try:
            snapshot = decode(data) if data is not None else None
        except Rejected:
            return
        if snapshot is not None and self._at is not None and snapshot.taken_at > self._at:
            self.see(snapshot, [claim for claim, _, gone in self._claims.values() if gone is None])

    def _shape(self, shape: Shape) -> Shape:
        return self._shapes.setdefault(repr(shape), shape)

    def _see_claims(self, claims: Iterable[NodeClaim], at: datetime) -> None:
        now = {claim.name: claim for claim in claims if claim.instance_id}
        for name, (claim, seen, gone) in list(self._claims.items()):
            if name not in now and gone is None:
                self._claims[name] = claim, seen, at
        self._claims |= {name: (claim, at, None) for name, claim in now.items()}

    def outcome(self, decisions: int) -> Recorded:
        """Return the whole story."""
        assert self.first is not None  # noqa: S101 - the caller has checked
        assert self._start is not None  # noqa: S101
        assert self._at is not None  # noqa: S101
        start, end = self._start, max(self._at, self._start + timedelta(seconds=1))
        inputs = settled(self.first)
        there = {node.name for node in inputs.snapshot.nodes}
        found = [
            slot if slot.node in there else replace(slot, node="")
            for slot in slots(self._observed.values(), start)
        ]
        trace = Trace(inputs, tuple(found), start, end, self._boots(), FrozenMap(self.omissions))
        usd, notes = self._usd(start, end), tuple(self.notes)
        return Recorded(trace, usd, decisions, self.repeated, tuple(self.differences), notes)

    def _boots(self) -> tuple[float, ...]:
        seconds = sorted(
            (claim.initialized_at - claim.created_at).total_seconds()
            for claim, _, _ in self._claims.values()
            if claim.initialized_at is not None and not claim.buffer
        )
        return tuple(seconds) if len(seconds) >= _LEAST_BOOTS else BOOT_SECONDS

    def _usd(self, start: datetime, end: datetime) -> float:
        """Return what the nodes have cost. A node that vanished between two decisions ended halfway between them."""
        costs = []
        for claim, seen, gone in self._claims.values():
            begun = max(claim.launched_at or claim.created_at, start)
            over = claim.terminated_at or (end if gone is None else seen + (gone - seen) / 2)
            costs.append(claim.price_hourly_usd * max(0.0, (min(over, end) - begun) / _HOUR))
        return math.fsum(costs)


def settled(inputs: Inputs) -> Inputs:
    """Return the inputs as the beginning of a simulation: nodes that serve, and no pods but those that stay on them.

    Nodes that are starting or ending, and moves in progress, are left out. NodePools count as read from the cluster.
    """
    snapshot = inputs.snapshot
    serving = [
        (claim, node)
        for claim in inputs.ledger.claims
        if claim.phase is Phase.INITIALIZED and (node := snapshot.node_of(claim)) is not None
        if not node.deleting
    ]
    claimed = {id(node) for claim in inputs.ledger.claims for node in snapshot.nodes_of(claim)}
    kept = {id(node) for _, node in serving}
    nodes = tuple(
        replace(node, taints=tuple(t for t in node.taints if t.identity != DISRUPTED.identity))
        for node in snapshot.nodes
        if id(node) in kept or (id(node) not in claimed and not node.deleting)
    )
    names = {node.name for node in nodes}
    stays = tuple(pod for pod in snapshot.pods if not pod.shape.moves and pod.node in names)
    ledger = replace(inputs.ledger, claims=tuple(claim for claim, _ in serving), moves=(), gangs=())
    seen = replace(snapshot, nodes=nodes, pods=stays, nodeclaims=(), requests=())
    return replace(inputs, snapshot=seen, ledger=as_read(ledger, seen))
