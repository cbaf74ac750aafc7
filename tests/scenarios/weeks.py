"""Days in the life of a large cluster: nodes fail, pods come and go, functions die, systems are unreachable.

The small world of `tests.smallworld.world`, made for long runs: time jumps from one event to the next, and a snapshot
is encoded only after a change. While nothing at all is in progress, only one round of ticks per hour and due runs are
executed; the other rounds are counted.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from nodesmith.adapters.dynamodb.ledgermarks import READ_AGAIN, SETTLED
from nodesmith.decisions.dispatch import own_minute
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.quantities import Resources, parse_resources, total
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.ec2.notices import STATES
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import NODE_REPAIR
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_budget, reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cloud import Call
from tests.fakes.disruptions import ends_at, is_ending
from tests.smallworld.ticking import Noting, TickedWorld
from tests.smallworld.world import (
    BOOT,
    FORGOTTEN,
    READY,
    Killed,
    Messages,
    World,
    node_manifest,
    pod_manifest,
)
from tests.smallworld.world import catalog as small_catalog

Manifest = dict[str, Any]
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
LIVING = frozenset(
    {
        Concern.PROVISIONING,
        Concern.INTERRUPTION,
        Concern.LIFECYCLE,
        Concern.TERMINATION,
        Concern.REPAIR,
        Concern.GARBAGECOLLECTION,
        Concern.READINESS,
    }
)
QUIET_MINUTES = 60
"""The time between executed rounds of ticks while nothing is in progress: a multiple of dispatch's interval."""
OWN_MINUTE = own_minute(builders.CLUSTER)
"""The minute of these in which dispatch wakes all concerns (the fleet's life begins at a full hour)."""
BATCH = timedelta(seconds=1)
"""How long the forwarder waits for further changes before it writes a snapshot."""
AWAY = timedelta(minutes=4)
SHORTAGE = timedelta(hours=1)
MESSAGES = Messages(lost=0.05, doubled=0.05, delayed=0.05, seed=7)
BIG, SMALL = {"cpu": "12", "memory": "12Gi"}, {"cpu": "1", "memory": "1Gi"}


@dataclass(slots=True)
class Usage:
    """The system's use of AWS."""

    runs: Counter[Concern] = field(default_factory=Counter)
    cpu_seconds: dict[Concern, float] = field(default_factory=lambda: dict.fromkeys(LIVING, 0.0))
    calls: Counter[str] = field(default_factory=Counter)
    """By port and method."""
    later: Counter[str] = field(default_factory=Counter)
    """Delayed hints, by concern."""
    claims_read: int = 0
    snapshot_puts: int = 0
    snapshot_bytes: int = 0
    record_bytes: int = 0
    routed: int = 0
    """runs of routing for events; dispatch wakes it beside these"""

    def forget(self) -> None:
        """Reset the counters."""
        self.runs.clear()
        self.calls.clear()
        self.later.clear()
        self.cpu_seconds.update(dict.fromkeys(LIVING, 0.0))
        self.claims_read = self.snapshot_puts = self.snapshot_bytes = self.record_bytes = 0
        self.routed = 0

    def since(self, before: Usage) -> Usage:
        """Return the usage after `before`, except what was written."""
        seconds = {
            concern: spent - before.cpu_seconds[concern] for concern, spent in self.cpu_seconds.items()
        }
        counted = (self.runs - before.runs, seconds, self.calls - before.calls, self.later - before.later)
        return Usage(*counted, self.claims_read - before.claims_read)

    def repeat(self, once: Usage, times: int) -> None:
        """Add `times` runs like a measured one."""
        self.runs.update({concern: count * times for concern, count in once.runs.items()})
        self.calls.update({call: count * times for call, count in once.calls.items()})
        self.later.update({concern: count * times for concern, count in once.later.items()})
        for concern, seconds in once.cpu_seconds.items():
            self.cpu_seconds[concern] += seconds * times
        self.claims_read += once.claims_read * times


@dataclass(slots=True)
class Meter(Noting):
    """Counts calls, and makes a function die at the call at which `dies_in` reaches zero."""

    usage: Usage = field(default_factory=Usage)
    claims: Callable[[], int] = lambda: 0
    dies_in: int = 0
    deaths: int = 0

    def cross(self, where: str) -> None:
        """Count a call; die before or after it if it is the chosen one."""
        self.note(where)
        when, _, call = where.partition(" ")
        if when == "before":
            self.usage.calls[call] += 1
            self.usage.claims_read += self.claims() if call == "FakeStore.load" else 0
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                self.deaths += 1
                raise Killed(where)


@dataclass(slots=True)
class Bucket(FakeBlobs):
    """Objects without decision records, which are only counted."""

    usage: Usage = field(default_factory=Usage)

    def put(self, key: str, data: bytes) -> None:
        """Count an object, and store it unless it is a record."""
        self.usage.record_bytes += len(data)
        if "/decisions/" not in key:
            FakeBlobs.put(self, key, data)


class Fleet(TickedWorld):
    """One cluster of many nodes, each with a pod that fills most of it and room for others."""

    def __init__(self, nodes: int, seed: int = 7) -> None:
        pods = {f"big-{n}": pod_manifest(f"big-{n}", **BIG) for n in range(nodes)}
        pods |= {f"small-{n}": pod_manifest(f"small-{n}", **SMALL) for n in range(2 * nodes)}
        self.usage, self.size = Usage(), nodes
        meter = Meter(usage=self.usage)
        pool = builders.nodepool_manifest()
        pool["metadata"]["annotations"] = {NODE_REPAIR: "On"}
        super().__init__(pods, LIVING, noting=meter, nodepool=pool, messages=MESSAGES)
        self.meter, meter.claims = meter, self._claims_to_read
        self.blobs = Bucket(usage=self.usage)
        self.begin_booking()
        self.cluster.poddisruptionbudgets["default/web"] = _budget()
        self._fate = random.Random(seed)  # noqa: S311
        self.faults: Counter[str] = Counter()
        self.worst_recovery = timedelta()
        self._mute: set[str] = set()
        """Instances that never join."""
        self._mutes_due = 0
        self._sick: set[str] = set()
        self._booted: set[str] = set()
        """Nodes that have been Ready."""
        self._reduced: dict[int, tuple[object, object, Any]] = {}
        self._shown: tuple[int, ...] = ()
        self._states: dict[str, str] = {}
        self._types = {t.name: t for t in instance_types(small_catalog(), NodeConfiguration())}
        self._minute = -1
        self._busy_since: datetime | None = self.now
        self._idle: dict[Concern, Usage] = {}
        self._launched_before = 0
        self._running: Concern | None = None
        self._kept: dict[Concern, tuple[datetime, datetime]] = {}
        """The ledger that each warm process holds: when it last changed, and when it was fully read."""

    def _claims_to_read(self) -> int:
        """Return how many claims a run reads: 0 if its process holds the current ledger."""
        concern, changed = self._running, self.ledger_changed_at
        if concern is None:
            return len(self.store.claims)
        known_changed, read_at = self._kept.get(concern, (None, self.now))
        if known_changed == changed and self.now - read_at < READ_AGAIN and self.is_warm(concern):
            return 0
        self._kept.pop(concern, None)
        if self.now - changed >= SETTLED:
            self._kept[concern] = changed, self.now
        return len(self.store.claims)

    @property
    def launched(self) -> int:
        """How many instances have been launched since the counters were reset."""
        return len(self.cloud.instances) - self._launched_before

    def forget_counts(self) -> None:
        """Reset the counters."""
        super().forget_counts()
        self.usage.forget()
        self._launched_before = len(self.cloud.instances)

    # What happens

    def plan(self, days: int, daily: float) -> None:
        """Plan the faults of these days: on each day, this share of the nodes fails, in different ways."""
        for day in range(days):
            for what, count in self._a_day(daily):
                for _ in range(count):
                    self._on(day, what)
        self.mishaps.sort(key=lambda mishap: mishap[0])

    def _a_day(self, daily: float) -> Iterator[tuple[Callable[[World], None], int]]:
        some = math.ceil(self.size * daily / 4)
        yield from (
            (fault, some) for fault in (self._dies, self._is_taken, self._falls_sick, self._never_joins)
        )
        yield from ((fault, 1) for fault in (self._runs_out, self._api_server_goes, self._ec2_goes))
        yield self._function_dies, 10
        yield self._pods_change, 10

    def _on(self, day: int, what: Callable[[World], None]) -> None:
        self.mishaps.append((DAY * day + timedelta(seconds=self._fate.randrange(86_400)), what))

    def _victim(self) -> Instance | None:
        there = [i for i in self.cloud.alive() if f"node-{i.id}" in self.cluster.nodes]
        return self._fate.choice(there) if there else None

    def _dies(self, _: World) -> None:
        victim = self._victim()
        if victim is not None:
            self.faults["instance died"] += 1
            self.lose(victim.id, "shutting-down")

    def _is_taken(self, _: World) -> None:
        victim = self._victim()
        if victim is not None:
            self.faults["instance taken back with a warning"] += 1
            self.warn(victim.id)

    def _falls_sick(self, _: World) -> None:
        victim = self._victim()
        if victim is not None and f"node-{victim.id}" in self._booted - self._sick:
            self.faults["node not ready for good"] += 1
            name = f"node-{victim.id}"
            self._sick.add(name)
            self._say_ready(name, "Unknown")

    def _never_joins(self, world: World) -> None:
        self._mutes_due += 1
        self._dies(world)

    def _runs_out(self, _: World) -> None:
        self.faults["a pool ran out of capacity"] += 1
        family, zone = self._fate.choice(("c5", "m5", "r5")), self._fate.choice(builders.ZONES)
        pattern = f"* {family}.* in {zone}"
        self.cloud.stock[pattern] = 0
        self._later(SHORTAGE, lambda _: self.cloud.stock.pop(pattern, None))

    def _api_server_goes(self, _: World) -> None:
        self.faults["API server away"] += 1
        self.away["cluster"] = self.now + AWAY

    def _ec2_goes(self, _: World) -> None:
        self.faults["EC2 away"] += 1
        self.away["cloud"] = self.now + AWAY

    def _function_dies(self, _: World) -> None:
        self.faults["function to die at a call"] += 1
        self.meter.dies_in = self._fate.randrange(1, 40)

    def _pods_change(self, _: World) -> None:
        """End some small pods for good, and add as many others."""
        self.faults["pods came and went"] += 1
        small = sorted(name for name in self.pods if name.startswith("small") and name in self.wanted)
        for name in self._fate.sample(small, min(len(small), max(1, self.size // 100))):
            self.wanted.discard(name)
            del self.cluster.pods[f"default/{name}"]
            self.add(f"small-{self.now:%d%H%M%S}-{len(self._specs)}", **SMALL)

    def _later(self, after: timedelta, what: Callable[[World], object]) -> None:
        self.mishaps.append((self.now + after - builders.NOW, what))  # type: ignore[arg-type]
        self.mishaps.sort(key=lambda mishap: mishap[0])

    # How time goes

    def live(self, span: timedelta) -> None:
        """Let functions run and time pass, from one event to the next."""
        end = self.now + span
        while self.now < end:
            woken = self._deliver() | self._ticked()
            was_quiet = self._busy_since is None
            used = {concern: self._measured(concern) for concern in sorted(woken)}
            if was_quiet and used.keys() == LIVING and self.is_quiet():
                self._idle = used
            self._pass(min(self._next(), end))

    def _measured(self, concern: Concern) -> Usage:
        before = deepcopy(self.usage)
        self.run(concern)
        return self.usage.since(before)

    def run(self, concern: Concern) -> None:
        """Invoke a function once, and measure it."""
        self.usage.runs[concern] += 1
        started, sent = time.process_time(), len(self.hints.sent)
        self._running = concern
        super().run(concern)
        self._running = None
        self.usage.cpu_seconds[concern] += time.process_time() - started
        self._count_later(sent)

    def route(self, event: str) -> None:
        """Let routing hear of an event, and count that."""
        self.usage.routed += 1
        sent = len(self.hints.sent)
        super().route(event)
        self._count_later(sent)

    def _count_later(self, sent: int) -> None:
        """Count the hints to be delivered later, of those sent since there were so many."""
        for message in self.hints.sent[sent:]:
            self.usage.later[str(message.concern)] += message.due_at > self.now

    def _ticked(self) -> set[Concern]:
        """Return the functions whose tick has come; count skipped ticks as runs that find nothing to do."""
        minute = int((self.now - builders.NOW) / MINUTE)
        if minute == self._minute:
            return set()
        skipped, self._minute = range(self._minute + 1, minute), minute
        self.look_for_marks()
        for each in skipped:
            at = builders.NOW + MINUTE * each
            for concern in sorted(self.due(at)):
                self.usage.repeat(self._idle.get(concern, Usage()), 1)
                self.note(concern, at)
        return self.due(builders.NOW + MINUTE * minute)

    def _next(self) -> datetime:
        """Return when the next event happens: at the latest the next tick, or the hourly one while all is well."""
        quiet = self.is_quiet()
        self._note(quiet)
        tick = builders.NOW + MINUTE * (self._minute + 1)
        if quiet and self._idle:
            rounds = (self._minute - OWN_MINUTE) // QUIET_MINUTES + 1
            tick = builders.NOW + MINUTE * (rounds * QUIET_MINUTES + OWN_MINUTE)
        moments = [tick, *self.next_due(), *(builders.NOW + at for at, _ in self.mishaps[:1]), *self._due()]
        return max(min(moments), self.now + BATCH)

    def _due(self) -> Iterator[datetime]:
        yield from (message.due_at for message in self.hints.waiting)
        yield from (at for at, _ in self._again)
        yield from (at for at, _ in self.incoming)
        yield from self._taken_at.values()
        yield from (at for at in self._ends_at.values() if at > self.now)
        yield from (at + FORGOTTEN for at in self._gone_since.values() if at + FORGOTTEN > self.now)
        yield from (ends_at(pod) for pod in self.cluster.pods.values() if is_ending(pod))
        young = (i.launched_at for i in self.cloud.alive() if self.now - i.launched_at < READY)
        yield from (at + age for at in young for age in (BOOT, READY) if at + age > self.now)

    def is_quiet(self) -> bool:
        """Return whether nothing is in progress, nothing fails, and all was well at the last tick."""
        if self.hints.waiting or self._again or self.incoming or self._taken_at or self._sick:
            return False
        return not any(until > self.now for until in self.away.values()) and not self.unsettled()

    def unsettled(self) -> list[str]:
        """Return everything that is not in its final state: left over, leaked, waiting or half done."""
        claims, cluster = self.store.claims, self.cluster
        alive = {i.id: i for i in self.cloud.alive()}
        known = Counter(claim.instance_id for claim in claims.values())
        found = [f"leaked {i} of {alive[i].claim}" for i in sorted(alive.keys() - known.keys())]
        found += [f"{i} has {n} claims" for i, n in sorted(known.items()) if n > 1]
        found += [f"claim {c.name} is {c.phase}" for c in claims.values() if c.phase is not Phase.INITIALIZED]
        found += [f"claim {c.name} has no instance" for c in claims.values() if c.instance_id not in alive]
        found += [
            f"NodeClaim {name} is left over" for name in sorted(cluster.nodeclaims.keys() - claims.keys())
        ]
        found += [f"claim {name} is not shown" for name in sorted(claims.keys() - cluster.nodeclaims.keys())]
        found += [f"Node {name} is left over" for name in sorted(cluster.nodes) if not self.is_alive(name)]
        found += [f"pod {key} waits" for key, p in cluster.pods.items() if not p["spec"].get("nodeName")]
        return found + [f"pod {key} ends" for key, pod in cluster.pods.items() if is_ending(pod)]

    def _note(self, quiet: bool) -> None:
        """Record how long a recovery took."""
        if not quiet:
            self._busy_since = self._busy_since or self.now
        elif self._busy_since is not None:
            self.worst_recovery = max(self.worst_recovery, self.now - self._busy_since)
            self._busy_since = None

    def _pass(self, until: datetime) -> None:
        self.now = until
        while self.mishaps and builders.NOW + self.mishaps[0][0] <= self.now:
            self.mishaps.pop(0)[1](self)
        self._move()
        self._tell_states()
        if self.now >= self.away.get("cluster", self.now):
            self.observe()

    # What the cluster does

    def _boot(self) -> None:
        nodes = self.cluster.nodes
        for instance in self.cloud.alive():
            name, age = f"node-{instance.id}", self.now - instance.launched_at
            if name in self._booted and name in nodes:
                continue
            if self._mutes_due and instance.id not in self._mute and name not in nodes:
                self._mutes_due -= 1
                self._mute.add(instance.id)
                self.faults["instance never joined"] += 1
            if instance.id in self._mute:
                continue
            if name not in nodes and age >= BOOT:
                offered = self._types[instance.instance_type].allocatable
                nodes[name] = node_manifest(name, instance.provider_id, offered, self.now)
            if name in nodes and age >= READY:
                self._booted.add(name)
                self._say_ready(name, "True")

    def _say_ready(self, name: str, status: str) -> None:
        node = self.cluster.nodes[name]
        since = format_time(self.now)
        condition = {"type": "Ready", "status": status, "reason": "Kubelet", "lastTransitionTime": since}
        self.cluster.nodes[name] = {**node, "status": {**node["status"], "conditions": [condition]}}

    def _watch_endings(self, call: Call) -> None:
        """Record harm as usual, except on nodes whose kubelet is gone, where no pod can end."""
        super()._watch_endings(call)
        self.harm = [each for each in self.harm if each.rpartition(" ")[2] not in self._sick]

    def _shut_down(self) -> None:
        super()._shut_down()
        self._sick &= self.cluster.nodes.keys()
        self._booted &= self.cluster.nodes.keys()
        for name in self._gone_since.keys() - self.cluster.nodes.keys():
            del self._gone_since[name]
        self._ends_at = {i: at for i, at in self._ends_at.items() if at > self.now}

    def _replace(self) -> None:
        pods = self.cluster.pods
        for name in sorted(self.wanted):
            pod = pods.get(f"default/{name}")
            if pod is not None and not pod["metadata"].get("deletionTimestamp"):
                continue
            self.wanted.discard(name)
            stem, _, number = name.partition("~")
            self.add(f"{stem}~{int(number or 0) + 1}", **(BIG if name.startswith("big") else SMALL))

    def _bind(self) -> None:
        waiting = [pod for pod in self.cluster.pods.values() if not pod["spec"].get("nodeName")]
        waiting = [pod for pod in waiting if not is_ending(pod)]
        if not waiting:
            return
        room = self._room()
        names, tried = list(room), dict[Resources, int]()
        for pod in waiting:
            asked = _asked(pod)
            nominated = pod["status"].get("nominatedNodeName", "")
            found = nominated if nominated in room and asked.fits_in(room[nominated]) else None
            if found is None:
                # rooms only shrink here: what was too small for such a pod stays too small
                start = tried.get(asked, 0)
                fitting = (at for at in range(start, len(names)) if asked.fits_in(room[names[at]]))
                tried[asked] = at = next(fitting, len(names))
                found = names[at] if at < len(names) else None
            key = f"default/{pod['metadata']['name']}"
            status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
            if found is not None:
                room[found] = room[found] - asked
                status["conditions"] = [{"type": "Ready", "status": "True"}]
                self.cluster.pods[key] = {**pod, "spec": {**pod["spec"], "nodeName": found}, "status": status}
            elif nominated:
                self.cluster.pods[key] = {**pod, "status": status}

    def _room(self) -> dict[str, Resources]:
        used: dict[str, list[Resources]] = {}
        for pod in self.cluster.pods.values():
            used.setdefault(pod["spec"].get("nodeName", ""), []).append(_asked(pod))
        open_ones = {
            name: node
            for name, node in self.cluster.nodes.items()
            if _is_ready(node) and not node["spec"].get("taints") and not node["spec"].get("unschedulable")
        }
        return {
            name: _parsed(node["status"]["allocatable"]) - total(used.get(name, ()))
            for name, node in open_ones.items()
        }

    def _tell_states(self) -> None:
        """Wake the concerns that EC2's events wake, if an instance has changed its state."""
        states = {i.id: i.state for i in self.cloud.instances.values()}
        for instance_id, state in states.items():
            if state in STATES and state != self._states.get(instance_id):
                reported = self.now, builders.state_change(instance_id, state, self.now)
                self.incoming += [reported] * (reported not in self.incoming)
        self._states = states

    # What the forwarder does

    def observe(self) -> None:
        """Write the snapshot as the forwarder does, and wake the concerns that the change affects."""
        pods = self._all(self.cluster.pods.values(), reduce_pod, _pod_marks)
        nodes = self._all(self.cluster.nodes.values(), reduce_node, _node_marks)
        nodeclaims = self._all(self.cluster.nodeclaims.values(), reduce_custom, id)
        pools = self._all(self.cluster.nodepools.values(), reduce_custom, id)
        classes = self._all(self.cluster.nodeclasses.values(), reduce_custom, id)
        key, parts = snapshot_key(builders.CLUSTER), (nodes, nodeclaims, pools, pods, classes)
        shown = tuple(id(each) for part in parts for each in part)
        if shown != self._shown:
            budgets = [reduce_budget(budget) for budget in self._budgets()]
            observed = Observed(pods, nodes, (), pools, classes, nodeclaims, poddisruptionbudgets=budgets)
            self.blobs.objects[key] = encode(builders.CLUSTER, self.now, observed)
            self.blobs.keep_version(key, self.blobs.objects[key], self.now)
            self.changed_at = self.now
            self._wake(pods)
            self._shown = shown
            self._forget(parts)
            self.usage.snapshot_puts += 1
            self.usage.snapshot_bytes += len(self.blobs.objects[key])

    def _all(
        self, objects: Iterable[Any], reduce: Callable[[Any], Any], marks: Callable[[Any], object]
    ) -> list[Any]:
        """Reduce objects, using cached results for those that are unchanged."""
        found = []
        for each in objects:
            known = self._reduced.get(id(each))
            if known is None or known[0] is not each or known[1] != marks(each):
                known = self._reduced[id(each)] = each, marks(each), reduce(each)
            found.append(known[2])
        return found

    def _forget(self, parts: Iterable[list[Any]]) -> None:
        used = {id(each) for part in parts for each in part}
        self._reduced = {at: known for at, known in self._reduced.items() if id(known[2]) in used}

    def _wake(self, pods: Iterable[Any]) -> None:
        woken = [Concern.LIFECYCLE]
        woken += [Concern.PROVISIONING] * any(pod.is_provisionable for pod in pods)
        woken += [Concern.TERMINATION] * any(claim.is_ending for claim in self.store.claims.values())
        self._again += [(self.now, concern) for concern in woken]


def _budget() -> Manifest:
    return {
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"maxUnavailable": "10%", "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1},
    }


def _asked(pod: Manifest) -> Resources:
    return _requests(tuple(pod["spec"]["containers"][0]["resources"]["requests"].items()))


@lru_cache
def _requests(amounts: tuple[tuple[str, str], ...]) -> Resources:
    return parse_resources({**dict(amounts), "pods": "1"})


def _parsed(amounts: Mapping[str, str]) -> Resources:
    return _of_items(tuple(amounts.items()))


@lru_cache
def _of_items(amounts: tuple[tuple[str, str], ...]) -> Resources:
    return parse_resources(dict(amounts))


def _is_ready(node: Manifest) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


def _pod_marks(pod: Manifest) -> object:
    return pod["spec"].get("nodeName"), pod["status"].get("nominatedNodeName")


def _node_marks(node: Manifest) -> object:
    return tuple(condition["status"] for condition in node["status"]["conditions"])
