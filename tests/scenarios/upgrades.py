"""A working day of the small world in which two versions share one ledger, function by function.

The ledger, the notices, the heartbeat and the run records are in a DynamoDB table; the snapshot and the rest of the
bucket are bytes; hints are JSON. Each version writes them in its own format (`tests.formats.versions`). From time to
time, a function switches to the other version, forward or back, which loses the memory of its process, or it dies at
one of its calls.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.dynamodb.healthrecords import (
    DynamoHeartbeats,
    DynamoMarks,
    HealthRecords,
    HealthWriter,
)
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.dynamodb.regionitems import DynamoNotices, DynamoRegionNotices, DynamoRoutes
from nodesmith.controllers.region.routing import Routing
from nodesmith.controllers.runs import Report
from nodesmith.decisions.dispatch import due_concerns
from nodesmith.keys import snapshot_key
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move
from tests import builders
from tests.aws.tables import TABLE
from tests.fakes.routes import FakeRoutes
from tests.fakes.table import FakeTable
from tests.formats.versioned import (
    Traffic,
    VersionedClient,
    VersionedHints,
    VersionedObjects,
    written_snapshot,
)
from tests.formats.versions import BEFORE, NEXT, TODAY, Version
from tests.scenarios.moves import MOVING
from tests.smallworld.world import RETRY, TICK, Boundaries, Killed, Messages, Watched, World, pod_manifest

PAIR = (BEFORE, NEXT)
SWITCHED, DIES = 0.1, 0.02
"""How likely a run is the first of the other version, and how likely it dies at one of its calls."""
CALLS = 30
"""The range of calls within which it dies."""
STALE = timedelta(seconds=90)
HOUR = timedelta(hours=1)
DAY = 2.5 * HOUR
CALM = timedelta(minutes=20)
"""The time after the last event until all invariants must hold."""
LIVING = (*MOVING, Concern.REPAIR)
MESSAGES = Messages(lost=0.02, doubled=0.05, delayed=0.05)


EXPECTED = (
    "launched",
    "registered",
    "initialized",
    "drained",
    "SpotInterrupted",
    "InstanceTerminated",
    "Expired",
    "move: Drifted",
    "move: Empty",
    "move: Underutilized",
)
"""Events that must happen: steps of NodeClaims, causes of their ends, and moves."""


class LedgerView:
    """A view of the ledger for observers of the world: loaded again after each write."""

    def __init__(self, store: DynamoStore, traffic: Traffic) -> None:
        self._store, self._traffic = store, traffic
        self._read: tuple[int, Ledger] | None = None

    @property
    def _ledger(self) -> Ledger:
        if self._read is None or self._read[0] != self._traffic.writes:
            self._read = self._traffic.writes, self._store.load()
        return self._read[1]

    @property
    def claims(self) -> dict[str, NodeClaim]:
        """The claims by name."""
        return {claim.name: claim for claim in self._ledger.claims}

    @property
    def moves(self) -> dict[str, Move]:
        """The moves by id."""
        return {move.id: move for move in self._ledger.moves}

    @property
    def gangs(self) -> dict[str, Gang]:
        """The gangs by id."""
        return {gang.id: gang for gang in self._ledger.gangs}


@dataclass(slots=True)
class Process:
    """The process of a concern until it is switched or dies."""

    version: Version
    client: VersionedClient
    store: DynamoStore
    health: HealthWriter


class UpgradedWorld(World):
    """A small world whose functions run the versions in `pair`, and switch between them."""

    def __init__(
        self,
        dynamodb: Any,
        pods: Mapping[str, Any],
        seed: int,
        pair: tuple[Version, ...],
        life: timedelta = HOUR,
    ) -> None:
        messages = Messages(MESSAGES.lost, MESSAGES.doubled, MESSAGES.delayed, seed)
        small = builders.expression("karpenter.k8s.aws/instance-size", "In", "large", "xlarge")
        pool = builders.nodepool_manifest(requirements=(*builders.EXPRESS, small))
        pool["spec"]["template"]["spec"]["expireAfter"] = f"{life.total_seconds():.0f}s"
        super().__init__(pods, nodepool=pool, messages=messages, boundaries=Boundaries(look=None))
        self._dynamodb, self._pair, self._fate = dynamodb, pair, random.Random(seed)  # noqa: S311
        self.traffic, self.concerns = Traffic(), LIVING
        self._beats = Traffic()
        """Of the forwarder, whose writes do not change the ledger."""
        self.versions: dict[Concern | None, Version] = {}
        """The version of each concern; the key None is the forwarder."""
        self.is_disturbed = True
        """Whether functions are switched, and die."""
        self.switches = self.deaths = 0
        self.seen: Counter[str] = Counter()
        """Events that have happened, each counted once per claim or move."""
        self._known: set[str] = set()
        self._processes: dict[Concern, Process] = {}
        self._changed_at, self._is_killed = self.now, False
        self._begin()
        self.hints = VersionedHints(clock=self.clock, of=self.version_of)

    def _begin(self) -> None:
        """Write what readiness has resolved before."""
        known = self.store
        plain = DynamoStore(VersionedClient(self._dynamodb, TODAY, self.traffic), TABLE, *self._whose())
        for status in known.nodeclasses.values():
            plain.save_nodeclass(status)
        plain.save_cluster(self.cloud.cluster)
        plain.save_contents(known.contents)
        self.store = LedgerView(plain, self.traffic)  # type: ignore[assignment]

    def _whose(self) -> tuple[str, Callable[[], datetime]]:
        return builders.CLUSTER, self.clock

    def version_of(self, concern: Concern | None) -> Version:
        """Return the version of a concern's function, or of the forwarder."""
        return self.versions.setdefault(concern, self._fate.choice(self._pair))

    def _client(self, concern: Concern | None) -> VersionedClient:
        return VersionedClient(self._dynamodb, self.version_of(concern), self.traffic)

    def _process(self, concern: Concern) -> Process:
        known = self._processes.get(concern)
        if known is None:
            client = self._client(concern)
            health = HealthWriter(client, TABLE, builders.CLUSTER, concern, self.clock)
            store = DynamoStore(client, TABLE, *self._whose())
            known = self._processes[concern] = Process(self.version_of(concern), client, store, health)
        return known

    # Deployments and deaths

    def _switch(self, concern: Concern | None) -> None:
        """Switch a function or the forwarder to the other version at random times."""
        if not self.is_disturbed or self._fate.random() >= SWITCHED:
            return
        others = [each for each in self._pair if each is not self.version_of(concern)] or [self._pair[0]]
        self.versions[concern] = others[0]
        self.switches += 1
        if concern is not None:
            self._lose_memory(concern)

    def deploy(self, version: Version) -> None:
        """Deploy one version to all functions and the forwarder at once: an upgrade, or a rollback."""
        for concern in (None, *Concern):
            self.versions[concern] = version
            if concern is not None:
                self._lose_memory(concern)
        self.switches += 1

    def _lose_memory(self, concern: Concern) -> None:
        super()._lose_memory(concern)
        self._processes.pop(concern, None)

    def _may_die(self) -> None:
        boundaries = self.boundaries
        boundaries.fatal = frozenset()
        if self.is_disturbed and self._fate.random() < DIES:
            boundaries.fatal = frozenset({boundaries.passed + self._fate.randrange(1, CALLS)})

    # Runs

    def step(self) -> None:
        """Run the concerns that hints wake and that dispatch finds due, and let one step of time pass."""
        is_tick = self.now >= self._next_tick
        if is_tick:
            self._switch(Concern.ROUTING)
            self.look_for_marks()
        woken = self._deliver()
        if is_tick:
            self._next_tick = self.now + TICK
            woken |= self._due()
        for concern in sorted(woken):
            self.run(concern)
        self.pass_time()

    def _due(self) -> set[Concern]:
        self._switch(Concern.DISPATCH)
        client = self._client(Concern.DISPATCH)
        marks = DynamoMarks(client, TABLE).of([builders.CLUSTER])[builders.CLUSTER]
        records = HealthRecords(client, TABLE).of(builders.CLUSTER)
        return set(due_concerns(builders.CLUSTER, marks, records, STALE, self.now)) & set(self.concerns)

    def run(self, concern: Concern) -> None:
        """Invoke a function once, and record its result."""
        self._switch(concern)
        self._may_die()
        failed_before = len(self._again) + len(self.incoming)
        self._is_killed = False
        try:
            super().run(concern)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            self.harm.append(f"{concern} of version {self.version_of(concern).name} failed: {error!r}")
            self._again.append((self.now + RETRY, concern))
        if not self._is_killed:
            succeeded = len(self._again) + len(self.incoming) <= failed_before
            self._process(concern).health.ran(succeeded, {}, self.dues[concern])

    def _invoke(self, concern: Concern, boundaries: Boundaries) -> datetime | None:
        try:
            with self._in(concern):
                return super()._invoke(concern, boundaries)
        except Killed:
            self._is_killed = True
            self.deaths += 1
            raise

    @contextmanager
    def _in(self, concern: Concern) -> Iterator[None]:
        """Replace the world's ports with those of a concern's process."""
        process, outside = self._process(concern), (self.store, self.blobs, self.notices)
        self.store = process.store  # type: ignore[assignment]
        self.blobs = VersionedObjects(self.blobs.objects, version=process.version)
        self.notices = DynamoNotices(process.client, TABLE, builders.CLUSTER)  # type: ignore[assignment]
        try:
            yield
        finally:
            self.store, self.blobs, self.notices = outside

    def _pass_on(self, passes: Callable[[Routing], Report]) -> None:
        client, self.hints.sender = self._client(Concern.ROUTING), Concern.ROUTING
        marked = FakeRoutes(lambda: (), self._marked)
        ports = DynamoRoutes(client, TABLE), DynamoRegionNotices(client, TABLE, self.clock), self.hints
        routes, notices, hints = (Watched(port, self.boundaries) for port in ports)
        try:
            passes(Routing(routes, notices, marked, hints, self.clock))
        finally:
            self.hints.sender = None

    def observe(self) -> None:
        """Write the snapshot and the heartbeat in the format of the forwarder's version."""
        seen = self._seen
        super().observe()
        if self.now < self.unseen_until:
            return
        self._changed_at = self.now if self._seen != seen else self._changed_at
        version, key = self.version_of(None), snapshot_key(builders.CLUSTER)
        self.blobs.objects[key] = written_snapshot(self.blobs.objects[key], version)
        client = VersionedClient(self._dynamodb, version, self._beats)
        DynamoHeartbeats(client, TABLE, builders.CLUSTER).write_heartbeat(self.now, self._changed_at)

    def pass_time(self) -> None:
        """Let one step of time pass, and record events."""
        self._switch(None)
        super().pass_time()
        for claim in self.store.claims.values():
            self._note(claim.name, "launched", bool(claim.instance_id))
            self._note(claim.name, "registered", claim.registered_at is not None)
            self._note(claim.name, "initialized", claim.phase is Phase.INITIALIZED)
            self._note(claim.name, claim.cause, bool(claim.cause))
            self._note(claim.name, "drained", claim.drained_at is not None)
        for move in self.store.moves.values():
            self._note(move.id, f"move: {move.reason}", True)

    def _note(self, name: str, what: str, is_so: bool) -> None:
        mark = f"{name} {what}"
        if is_so and mark not in self._known:
            self._known.add(mark)
            self.seen[what] += 1

    # What happens

    def plan(self, length: timedelta) -> None:
        """Plan the day: pods come and go, EC2 interrupts instances, systems fail, a NodePool and versions change."""
        at = length / 150
        self.mishaps = [
            (15 * at, lambda _: self._come("noon", 8)),
            (30 * at, lambda _: self._go(8)),
            (45 * at, lambda _: self.deploy(self._pair[-1])),
            (50 * at, lambda _: self._is_taken()),
            (55 * at, lambda _: self.deploy(self._pair[0])),
            (75 * at, lambda _: self._dies()),
            (80 * at, lambda _: self._goes("cluster")),
            (90 * at, lambda _: self._come("late", 6)),
            (92 * at, lambda _: self._is_taken()),
            (100 * at, lambda _: self._goes("cloud")),
            (110 * at, lambda _: self._changes()),
            (125 * at, lambda _: self._leave_a_node()),
            (length, lambda _: self._calm_down()),
        ]

    def _come(self, name: str, count: int) -> None:
        for number in range(count):
            self.add(f"{name}-{number}", memory="2Gi")

    def _go(self, count: int) -> None:
        """End every second pod, so that nodes are left half empty."""
        self.remove(sorted(self.pods)[::2][:count])

    def _leave_a_node(self) -> None:
        """End all pods of one node."""
        node = f"node-{self._victim()}"
        self.remove([name for name, pod in self.pods.items() if pod["spec"].get("nodeName") == node])

    def _victim(self) -> str:
        used = {p["spec"].get("nodeName", "").removeprefix("node-") for p in self.pods.values()}
        return self._fate.choice(sorted(i.id for i in self.cloud.alive() if i.id in used))

    def _is_taken(self) -> None:
        self.warn(self._victim())

    def _dies(self) -> None:
        self.lose(self._victim(), "shutting-down")

    def _goes(self, system: str) -> None:
        self.away[system] = self.now + timedelta(minutes=3)

    def _changes(self) -> None:
        pool = self.cluster.nodepools["default"]
        pool["metadata"]["generation"] += 1
        pool["spec"]["template"]["metadata"] = {"labels": {"team": "web"}}

    def _calm_down(self) -> None:
        """Stop all disturbances, so that the remaining state is final."""
        self.is_disturbed = False
        self.messages = Messages()


@dataclass(frozen=True, slots=True)
class Day:
    """The result of a day."""

    violations: list[str]
    seen: Counter[str]
    switches: int
    deaths: int
    read_of_next: int
    """How many documents of the later version the earlier one has read."""
    runs: int


def day(seed: int, pair: tuple[Version, ...] = PAIR, length: timedelta = DAY) -> Day:
    """Simulate a day, and return its result, including violations at its end.

    In a shorter one, the same happens in faster succession, and nodes expire earlier.
    """
    pods = {f"web-{n:02d}": pod_manifest(f"web-{n:02d}", memory="2Gi") for n in range(12)}
    world = UpgradedWorld(FakeTable(), pods, seed, pair, HOUR * (length / DAY))
    world.plan(length)
    world.observe()
    world.live(length + CALM)
    world.settle()
    met = world.traffic.read_of_next
    return Day(world.violations(), world.seen, world.switches, world.deaths, met, world.runs)


def missing(seen: Mapping[str, int]) -> list[str]:
    """Return the expected events that have not happened in days that should contain a node's whole life."""
    return sorted(set(EXPECTED) - {what for what, count in seen.items() if count})
