"""The state that the watches have seen so far, shared by their threads and the delivery loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from threading import Condition
from typing import NamedTuple

from nodesmith.model.functions import Concern
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.mirror import (
    ASKERS,
    CAPACITY_BUFFERS,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    PODS,
    VOLUME_CLAIMS,
    WATCHED,
    Change,
    Mirror,
    WatchedKind,
    observed,
)
from nodesmith.observation.observed import Observed, ended_by, ended_by_claim
from nodesmith.observation.workloads import (
    Owner,
    count_owned,
    grown_workloads,
    is_proactive,
    wanted,
    watched_kinds,
)
from nodesmith_forwarder.changes import Changes, Part
from nodesmith_forwarder.clock import Clock
from nodesmith_forwarder.metrics import Tally
from nodesmith_forwarder.metrics.exposition import Family
from nodesmith_forwarder.triggers import has_grown, triggered
from nodesmith_forwarder.windows import Pace, Topic, Windows

_SYNCED = "Whether all watched kinds are up to date."
_UNSYNCED = "How long they have not been up to date."


class Taken(NamedTuple):
    """The state at one moment: how many items each closed window held, and the input of a delta (`Changes.part`).

    `pending` is the number of pods for which a node could help. `is_touched` is True if any change was seen since the
    last time. `may_use_room` is True if there are CapacityBuffers, or workloads that have grown and still lack pods.
    """

    closed: Mapping[Topic, int]
    part: Part | None
    pending: int
    is_touched: bool
    may_use_room: bool


class World:
    """A mirror of every watched kind, the windows of what changed, and the set of kinds that are up to date.

    A kind is current from its first full list until its watch fails. While any kind is not current, no snapshot may be
    taken, because it would claim knowledge that is missing.
    """

    def __init__(self, clock: Clock, pace: Pace, changes: Changes | None = None) -> None:
        self._changes = changes or Changes()
        self.changed = Condition()
        self.windows = Windows(pace)
        self._clock = clock
        self._tally = Tally(clock.now())
        self._mirrors = {kind.name: Mirror(kind) for kind in WATCHED}
        self._current: set[str] = set()
        self._resting: set[str] = set()
        """Kinds that are not watched because nothing refers to them."""
        self._referred = frozenset[str]()
        """The kinds of workloads that CapacityBuffers refer to, or that proactive scale-up reads."""
        self._proactive = frozenset[str]()
        """The namespaces with proactive scale-up."""
        self._owned: Counter[Owner] = Counter()
        """The number of pods of each controller."""
        self._growths: dict[str, int] = {}
        """When a workload that lacked no pods was last seen to grow, in seconds since 1970."""
        self._pending = 0
        self._claiming = 0
        """The number of pods that claim devices."""
        self._unsynced_since: datetime | None = clock.now()
        self._is_touched = False
        self._mounting: Counter[str] = Counter()
        """The number of pending pods that mount each claim."""
        self._ending: Counter[str] = Counter()
        """Nodes that end, by name: how many of their Node and NodeClaim are ending."""
        self._departures: dict[str, int] = {}
        """When a pod was last seen to leave each node, in seconds since 1970."""

    def put(self, kind: WatchedKind, manifests: Iterable[Manifest]) -> None:
        """Store the newest states of objects."""
        with self.changed:
            mirror = self._mirrors[kind.name]
            last_written = mirror.karpenter_wrote
            self._note(mirror.put(manifest) for manifest in manifests)
            if mirror.karpenter_wrote != last_written:
                self._is_touched = True
                if self.windows.note(Concern.READINESS, "karpenter", self._clock.now()):
                    self.changed.notify_all()

    def drop(self, kind: WatchedKind, manifest: Manifest) -> None:
        """Remove an object that is gone."""
        with self.changed:
            self._note([self._mirrors[kind.name].drop(manifest)])

    def keep_only(self, kind: WatchedKind, keys: Collection[str]) -> None:
        """Remove the objects that a full list did not hold."""
        with self.changed:
            self._note(self._mirrors[kind.name].keep_only(keys))

    def needs(self, kind: WatchedKind) -> bool:
        """Return whether decisions read a kind now."""
        if kind.claimed:
            return self._claiming > 0
        return not kind.referred or kind.kind in self._referred

    def mark(self, kind: WatchedKind, *, current: bool, resting: bool = False) -> bool:
        """Record whether a kind is up to date; return True if that has changed.

        A kind that is `resting` is up to date only for as long as nothing needs it.
        """
        with self.changed:
            (self._resting.add if resting else self._resting.discard)(kind.name)
            is_new = current != (kind.name in self._current)
            (self._current.add if current else self._current.discard)(kind.name)
            self._unsynced_since = (self._unsynced_since or self._clock.now()) if self.missing else None
            self.changed.notify_all()
            return is_new

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that are not up to date."""
        return tuple(kind.kind for kind in WATCHED if not self._is_current(kind))

    def _is_current(self, kind: WatchedKind) -> bool:
        return kind.name in self._current and not (kind.name in self._resting and self.needs(kind))

    def take(self) -> Taken | None:
        """Close the windows that are due, and return the current state; None while any kind is not up to date."""
        with self.changed:
            if self.missing:
                return None
            closed, is_touched = self.windows.take(self._clock.now()), self._is_touched
            self._is_touched = False
            part = self._changes.part(
                self._mirrors, self._departures, self._growths, is_proactive=bool(self._proactive)
            )
            return Taken(closed, part, self._pending, is_touched, self._may_use_room())

    def whole(self) -> Observed:
        """Return all observed objects; changes are noted from now on."""
        with self.changed:
            everything = observed(self._mirrors.values(), self._departures, self._growths)
            self._changes.restart(everything)
            return everything

    def _may_use_room(self) -> bool:
        if self._mirrors[CAPACITY_BUFFERS.name].objects:
            return True
        if not self._proactive:
            return False
        everything = observed(self._mirrors.values(), self._departures, self._growths)
        return any(grown_workloads(everything, self._clock.now()))

    def measured(self) -> tuple[list[Family], Observed]:
        """Return the metrics counted so far, and all objects as far as they are currently known."""
        with self.changed:
            now, unsynced_since = self._clock.now(), self._unsynced_since
            unsynced = 0.0 if unsynced_since is None else (now - unsynced_since).total_seconds()
            synced = [
                Family("cluster_state_synced", "gauge", _SYNCED, {(): float(unsynced_since is None)}),
                Family("cluster_state_unsynced_time_seconds", "gauge", _UNSYNCED, {(): unsynced}),
            ]
            return [*self._tally.families(now), *synced], observed(
                self._mirrors.values(), self._departures, self._growths
            )

    def _note(self, changes: Iterable[Change | None]) -> None:
        now, opened = self._clock.now(), False
        for change in changes:
            if change:
                self._is_touched = True
                self._count(change)
                self._note_departure(change, now)
                self._changes.note(change, self._departures)
                self._update_references(change)
                opened = self._note_growth(change, now) or opened
                self._tally.note(change, now)
            for topic, key in self._triggered(change) if change else ():
                opened = self.windows.note(topic, key, now) or opened
        if opened:
            self.changed.notify_all()

    def _triggered(self, change: Change) -> Iterable[tuple[Topic, str]]:
        buffers = self._mirrors[CAPACITY_BUFFERS.name].objects.values()
        return triggered(change, self._is_awaited, self._ending, buffers, self._proactive)

    def _update_references(self, change: Change) -> None:
        if change.kind in ASKERS:
            buffers, namespaces = (self._mirrors[kind.name].objects.values() for kind in ASKERS)
            self._referred = watched_kinds(buffers, namespaces)
        if change.kind == NAMESPACES:
            proactive = filter(is_proactive, self._mirrors[NAMESPACES.name].objects.values())
            self._proactive = frozenset(str(namespace["metadata"]["name"]) for namespace in proactive)

    def _note_growth(self, change: Change, now: datetime) -> bool:
        """Note when a workload began to want more pods than it has; return True if provisioning is to be woken soon.

        A workload that grows again before it has all its pods keeps its earlier time.
        """
        key = f"{change.kind.kind}/{change.key}"
        if change.after is None:
            self._growths.pop(key, None)
        if not has_grown(change, self._proactive):
            return False
        self.windows.shorten(Concern.PROVISIONING, now)
        namespace, _, name = change.key.partition("/")
        lacks = wanted(change.before) > self._owned[(change.kind.kind, namespace, name)]
        if change.before is not None and not (lacks and key in self._growths):
            self._growths[key] = int(now.timestamp())
        return True

    def _count(self, change: Change) -> None:
        for state, step in ((change.before, -1), (change.after, 1)):
            if state is None:
                continue
            if change.kind == PODS:
                count_owned(self._owned, state, step)
                self._pending += step * state.is_provisionable
                if state.devices:
                    self._claiming += step
            if change.kind == PODS and state.is_provisionable:
                _add(self._mounting, (mount.key for mount in state.claims), step)
            elif change.kind in (NODES, NODECLAIMS):
                ending_node = ended_by(state) if change.kind == NODES else ended_by_claim(state)
                _add(self._ending, filter(None, [ending_node]), step)

    def _note_departure(self, change: Change, now: datetime) -> None:
        before = change.before
        if change.kind == PODS and before is not None and before.moved and change.after is None:
            if NODES.name not in self._current or before.node in self._mirrors[NODES.name].objects:
                self._departures[before.node] = int(now.timestamp())
        elif change.kind == NODES and change.after is None:
            self._departures.pop(change.key, None)

    def _is_awaited(self, claim: str) -> bool:
        """Return whether a pending pod waits for a volume claim whose node the scheduler has not selected."""
        volume_claim = self._mirrors[VOLUME_CLAIMS.name].objects.get(claim)
        return claim in self._mounting and not (volume_claim and volume_claim.selected_node)


def _add(counter: Counter[str], keys: Iterable[str], step: int) -> None:
    for key in keys:
        counter[key] += step
        if not counter[key]:
            del counter[key]
