"""Services fail while the small world scales up, drains, is interrupted, consolidates or upgrades.

A fault lasts 30 seconds to an hour of the world's time. It acts at the ports, so controllers, decisions and effects are
the real ones. Fakes stand for the adapters, which are not covered: neither their retries nor how they read errors. The
forwarder only stops writing, and the observation function does not stand in for it.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import combinations, product
from typing import Any

from nodesmith.adapters.aws.registrations import LAST_USE, READ_AGAIN
from nodesmith.adapters.catalog.catalogs import decode, encode
from nodesmith.controllers.region.catalog import refresh_catalog
from nodesmith.controllers.region.routing import Routing
from nodesmith.controllers.runs import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, ListPrices
from nodesmith.model.ec2.launches import Deferred, LaunchOutcome, LaunchRequest
from nodesmith.model.functions import MOST_ATTEMPTS, RETRY_SECONDS, Concern, Hint
from nodesmith.model.karpenter.nodepools import SPOT_TYPES
from nodesmith.observation.observed import NOT_READY, UNSCHEDULABLE
from nodesmith_local.chaos.faults import (
    ANSWERED_OF,
    FORWARDER,
    HALVES,
    OF_ANY_SERVICE,
    SKEW,
    SLOW_SECONDS,
    Fault,
    FaultKind,
    Lasting,
    Service,
)
from nodesmith_local.chaos.stalesnapshots import an_hour_ago, cut_in_half
from tests import builders
from tests.fakes.catalogs import FakeCatalogs
from tests.fakes.cloud import Call
from tests.fakes.hints import FakeHints
from tests.objects.forgeries import Document, Forgery
from tests.scenarios import secondcluster
from tests.scenarios.moves import MOVING, shrink
from tests.scenarios.moves import ON_DEMAND as ON_DEMAND_ONLY
from tests.scenarios.secondcluster import SecondCluster
from tests.smallworld.branches import copied
from tests.smallworld.world import (
    REINVOKED,
    RETRY,
    STEP,
    TICK,
    Boundaries,
    Killed,
    World,
    catalog,
    pod_manifest,
)

SECONDS = (30, 300, 3600)
TIMEOUT = timedelta(seconds=60)
"""How long Lambda lets a function run."""
SESSION = timedelta(minutes=45)
"""When a session's credentials are fetched again."""
THROTTLED_FOR = timedelta(minutes=5)
"""The longest time until Lambda tries an event again for which it had no concurrency."""
AFTERWARDS = timedelta(minutes=6)
"""How long a recovered world goes on, with three collections of garbage, before it is judged."""
WARNED_AFTER = timedelta(seconds=15)
"""How long after the beginning of a fault EC2 warns the second cluster of an interruption."""
LONGEST = timedelta(minutes=60)
"""How long a world may take to recover."""
DRAINED_WITHIN = timedelta(seconds=90)
"""How long a drain takes from the next tick on; a notice that ends earlier after a fault cannot be kept."""
_PORTS = {
    "FakeStore": Service.DYNAMODB,
    "DynamoStore": Service.DYNAMODB,
    "FakeNotices": Service.DYNAMODB,
    "DynamoNotices": Service.DYNAMODB,
    "DynamoRegionNotices": Service.DYNAMODB,
    "FakeRoutes": Service.DYNAMODB,
    "DynamoRoutes": Service.DYNAMODB,
    "FakeCloud": Service.EC2,
    "FakeCluster": Service.API_SERVER,
    "FakeBlobs": Service.S3,
    "VersionedObjects": Service.S3,
    "VersionedHints": Service.LAMBDA,
}
_ELSEWHERE = {"FakeRoutes.ids": Service.EC2, "FakeCloud.zonal_shifts": None}
"""Calls of another service than the rest of their port; None for one that no named service answers."""
CENT = 0.01


class Unwell(Boundaries):
    """Boundaries at which the faults of a world act: before a call, or after it has taken effect."""

    def __init__(self, world: ChaosWorld) -> None:
        Boundaries.__init__(self, look=None)
        self.world = world

    def cross(self, where: str) -> None:
        """Pass a moment, or raise what the caller of a faulty service gets."""
        when, _, call = where.partition(" ")
        port, _, method = call.partition(".")
        service = _ELSEWHERE.get(call, _PORTS.get(port))
        if service is None:
            return
        if method == "launch":
            self.world.launching(when)
        else:
            self.world.call(service, when)


class ChaosWorld(World):
    """A world with faults, and with what functions call before their ports: Parameter Store, STS and schedules."""

    hints: ChaosHints
    is_full = False
    """Whether Lambda has no concurrency left, so that no function starts."""

    def __init__(self, *args: Any, **how: Any) -> None:
        self.lasting: list[Lasting] = []
        self.caller = ""
        self.calls: Counter[Service] = Counter()
        self.met: Counter[str] = Counter()
        """How often each fault was met."""
        self.nodes_skew = timedelta()
        """How far the clocks of half of the nodes are ahead, and those of the others behind."""
        self.skews: dict[str, timedelta] = {}
        """How far each caller's clock is ahead."""
        self.odd_until = builders.NOW
        self.shown: bytes | None = None
        """What the bucket holds in place of the current snapshot."""
        self.forgery: Forgery | None = None
        """How the forwarder changes its snapshots."""
        self.excused: set[str] = set()
        """Harm to pods on instances that EC2 takes back, which nobody could have prevented."""
        self.rejected: Counter[str] = Counter()
        """Messages and objects that no retry could have read."""
        self.causes: Counter[str] = Counter()
        """Why instances that were healthy and had pods were terminated."""
        self._began: datetime | None = None
        self._registered: dict[Concern, datetime] = {}
        self._credentials: dict[Concern, datetime] = {}
        self._failures: Counter[Concern] = Counter()
        self._repeated: set[str] = set()
        """Events that EventBridge has delivered late, and so delivers once more."""
        self.most_alive = 0
        """How many instances were alive at once."""
        self.usual_usd = math.inf
        """The hourly price of the world once nothing is left to do."""
        super().__init__(*args, **how)
        self.boundaries = Unwell(self)
        self.concerns = (*MOVING, Concern.REPAIR)
        self.hints = ChaosHints(clock=self.true_clock, meets=self.call)
        self.cloud.clock = self.cluster.clock = self.true_clock
        self.second = SecondCluster.beside(self.cloud, self.notices, self.store, self.now)
        self.others = {secondcluster.NAME: secondcluster.IDS}

    # Calls

    def ongoing(self, service: Service) -> Iterator[Fault]:
        """Yield the faults of a service that affect the current caller now."""
        for each in self.lasting:
            if each.since <= self.now < each.until and each.fault.affects(service, self.caller):
                yield each.fault

    def call(self, service: Service, when: str) -> None:
        """Raise, wait or do nothing, as the faults of the service ask for."""
        self.calls[service] += when == "before"
        for fault in self.ongoing(service):
            self.met[fault.name] += 1
            if fault.kind is FaultKind.SLOW and when == "before":
                self._stand()
            elif self._is_refused(fault, when) or (fault.kind is FaultKind.LATE and when == "after"):
                raise Transient(f"{service} is {fault.kind}", _CODES[fault.kind])

    def _is_refused(self, fault: Fault, when: str) -> bool:
        if when != "before":
            return False
        if fault.kind is FaultKind.THROTTLED:
            return self.calls[fault.service] % ANSWERED_OF > 0
        return fault.kind in (FaultKind.ERRORS, FaultKind.PARTITIONED)

    def launching(self, when: str) -> None:
        """Let CreateFleet return deferred outcomes, as its adapter does for errors that pass."""
        if when == "after":
            self.cloud.script.clear()
            return
        self.calls[Service.EC2] += 1
        for fault in self.ongoing(Service.EC2):
            self.met[fault.name] += 1
            if fault.kind is FaultKind.SLOW:
                self._stand()
            elif fault.kind is FaultKind.LATE:
                self.cloud.script = [self._launched_late] * 100
            elif self._is_refused(fault, when):
                self.cloud.script = [_thrown_out if fault.kind is FaultKind.THROTTLED else _lost] * 100

    def _launched_late(self, request: LaunchRequest) -> LaunchOutcome:
        self.cloud._launch(request)
        return _lost(request)

    def _stand(self) -> None:
        """Let time pass during a call, in which other functions run. A function that takes too long ends."""
        began, caller, sender, chain = self._began, self.caller, self.hints.sender, self.hints.chain
        if began is None:
            return  # a run inside another's call: it takes its time from that one
        self._began = None
        try:
            for _ in range(int(SLOW_SECONDS / STEP.total_seconds())):
                self.step()
        finally:
            self._began, self.caller = began, caller
            self.hints.sender, self.hints.chain = sender, chain
        if self.now - began > TIMEOUT:
            raise Killed("the function's time is up")

    # Runs

    def true_clock(self) -> datetime:
        """Return the time by which AWS and the API server go."""
        return self.now

    def clock(self) -> datetime:
        """Return the time by the current caller's clock."""
        return self.now + self.skews.get(self.caller, timedelta())

    def _boot(self) -> None:
        super()._boot()
        if self.nodes_skew:
            for number, (_, node) in enumerate(sorted(self.cluster.nodes.items())):
                created = parse_time(node["metadata"]["creationTimestamp"])
                reported = format_time(created + self.nodes_skew * (-1) ** number)
                for condition in node["status"]["conditions"]:
                    condition["lastTransitionTime"] = reported

    @contextmanager
    def calling(self, caller: str) -> Iterator[None]:
        """Let calls in the block be this caller's."""
        before, began = self.caller, self._began
        self.caller = caller
        self._began = self.now if before == "" else None
        try:
            yield
        finally:
            self.caller, self._began = before, began

    def run(self, concern: Concern) -> None:
        """Invoke a function once, unless Lambda cannot; after failures, its message returns ever later."""
        if self.is_full:
            self._again.append((self.now + THROTTLED_FOR, concern))
            return
        with self.calling(concern):
            try:
                super().run(concern)
            except AssertionError as error:
                self._note_rejected(error)
        if self._again[-1:] != [(self.now + RETRY, concern)]:
            self._failures[concern] = 0
            return
        self._again.pop()
        self._failures[concern] += 1
        self._retry(concern)

    def _note_rejected(self, error: AssertionError) -> None:
        """Count input that was rejected, which must not happen unless something odd is so."""
        if "rejected its input" not in str(error) or self.now > self.odd_until:
            raise error
        self.rejected[str(error)[:80]] += 1

    def route(self, event: str) -> None:
        """Deliver an event to routing, which rejects what is no event."""
        try:
            super().route(event)
        except Rejected as error:
            self.rejected[str(error)[:60]] += 1

    def _retry(self, concern: Concern) -> None:
        """Send the hint of a failed run again; Lambda repeats the event if that fails, too."""
        attempt = self._failures[concern]
        if attempt >= MOST_ATTEMPTS:
            self._failures[concern] = 0
            return
        delay = timedelta(seconds=RETRY_SECONDS[min(attempt, len(RETRY_SECONDS)) - 1])
        try:
            with self.calling(concern):
                self.call(Service.SQS, "before")
        except (Transient, Killed):
            delay = REINVOKED
        self._again.append((self.now + delay, concern))

    def _invoke(self, concern: Concern, boundaries: Boundaries) -> datetime | None:
        self._authorize(concern)
        return super()._invoke(concern, boundaries)

    def _authorize(self, concern: Concern) -> None:
        """Read the registration and fetch credentials, if the process has none that are recent enough."""
        for known, service, again, last_use in (
            (self._registered, Service.SSM, READ_AGAIN, LAST_USE),
            (self._credentials, Service.STS, SESSION, SESSION),
        ):
            age = self.now - known.get(concern, builders.NOW - SESSION)
            if age >= again:
                with suppress(Transient) if age < last_use else nullcontext():
                    self.call(service, "before")
                    self.call(service, "after")
                    known[concern] = self.now

    def _lose_memory(self, concern: Concern) -> None:
        super()._lose_memory(concern)
        self._registered.pop(concern, None)
        self._credentials.pop(concern, None)

    def begin_again(self) -> None:
        """Replace the processes of all functions, as a deployment does."""
        for concern in self.concerns:
            self._lose_memory(concern)

    def _pass_on(self, passes: Callable[[Routing], Report]) -> None:
        with self.calling(Concern.ROUTING):
            super()._pass_on(passes)

    def step(self) -> None:
        """Run the concerns that messages wake, and let one step of time pass."""
        if self.now >= self._next_tick:
            self._next_tick = self.now + TICK
            with suppress(Transient, Killed):
                self._tick()
        for concern in sorted(self._deliver()):
            self.run(concern)
        self.pass_time()
        self.second.ask(self.now)
        self.most_alive = max(self.most_alive, len(self.cloud.alive()))

    def _tick(self) -> None:
        """Let the schedule wake dispatch, and dispatch the functions."""
        with self.calling(Concern.DISPATCH):
            self.call(Service.SCHEDULER, "before")
            if self.is_full:
                return
            self.call(Service.SSM, "before")
            self.call(Service.LAMBDA, "before")
            self._again += [(self.now, concern) for concern in self.concerns]
        self.look_for_marks()
        self._refresh()

    def _refresh(self) -> None:
        """Let the catalogue be refreshed while prices cannot be read; at other times it stays as it is."""
        if any(each.fault.service is Service.PRICING for each in self.lasting):
            catalogs = FakeCatalogs(self.sold)
            with self.calling(Concern.CATALOG), suppress(Transient, Killed):
                refresh_catalog(Market(self), catalogs, ListPrices({}), self.now)
            self.sold = catalogs.latest()

    def _deliver(self) -> set[Concern]:
        """Receive messages, unless their service fails to deliver them."""
        arrived = [each for each in self.incoming if each[0] <= self.now]
        if arrived:
            self.caller = Concern.ROUTING
            for fault in self.ongoing(Service.EVENTS):
                self.met[fault.name] += 1
                self.incoming = [each for each in self.incoming if each not in arrived]
                if fault.kind in (FaultKind.SLOW, FaultKind.THROTTLED):
                    self.incoming += [(self.now + TICK, event) for _, event in arrived]
                elif fault.kind is FaultKind.LATE:
                    again = {event for _, event in arrived} - self._repeated
                    self._repeated |= again
                    self.incoming += [*arrived, *((self.now + TICK, event) for event in sorted(again))]
                break
            self.caller = ""
        return super()._deliver()

    def observe(self) -> None:
        """Write the snapshot, unless the forwarder cannot see the cluster or reach the bucket."""
        before, self.caller = self.caller, FORWARDER
        try:
            kinds = {f.kind for s in (Service.S3, Service.API_SERVER) for f in self.ongoing(s)}
            if kinds <= {FaultKind.LATE, FaultKind.SLOW, FaultKind.THROTTLED}:
                super().observe()
                self._forge()
        finally:
            self.caller = before

    # Faults

    def begin(self, faults: Iterable[Fault]) -> None:
        """Let faults begin now. Credentials expire at that moment, so that a fault of STS is met."""
        self.lasting += [Lasting(fault, self.now) for fault in faults]
        self.incoming.append((self.now + WARNED_AFTER, builders.spot_warning(secondcluster.WARNED, self.now)))
        if any(each.fault.service is Service.STS for each in self.lasting):
            self._credentials.clear()

    def upset(self, oddity: str, seconds: float) -> None:
        """Let something odd be so from now on, for so many seconds."""
        self.odd_until = self.now + timedelta(seconds=seconds)
        heal = ODDITIES[oddity](self)
        self.mishaps.append((self.odd_until - builders.NOW, lambda _: heal()))

    @property
    def healed_at(self) -> datetime:
        """When the last fault is over."""
        return max((self.odd_until, *(each.until for each in self.lasting)))

    def _forge(self) -> None:
        """Replace the snapshot that has been written."""
        key = snapshot_key(builders.CLUSTER)
        if self.forgery is not None:
            document = json.loads(gzip.decompress(self.blobs.objects[key]))
            self.forgery(document)
            self.blobs.objects[key] = gzip.compress(json.dumps(document).encode(), 1, mtime=0)
        if self.shown is not None:
            self.blobs.objects[key] = self.shown

    # What is forbidden meanwhile

    def _watch_endings(self, call: Call) -> None:
        before = len(self.harm)
        super()._watch_endings(call)
        self._excuse_taken(before)
        if call.method != "terminate":
            return
        causes = {claim.instance_id: claim.cause for claim in self.store.claims.values()}
        for instance_id in call.about:
            if self._is_healthy(instance_id):
                self.causes[causes.get(instance_id, "Garbage")] += 1

    def _is_healthy(self, instance_id: str) -> bool:
        """Return whether an instance is alive and has a ready Node with pods."""
        node = self.cluster.nodes.get(f"node-{instance_id}")
        instance = self.cloud.instances.get(instance_id)
        if node is None or instance is None or not instance.is_alive or instance_id in self._taken_at:
            return False
        is_used = any(pod["spec"].get("nodeName") == f"node-{instance_id}" for pod in self.pods.values())
        return is_used and any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"]
        )

    def note_forced(self) -> None:
        """Excuse budgets that deletions within an interrupted instance's notice break: EC2 ends those pods anyway."""
        taken = {f"node-{instance_id}" for instance_id in self._taken_at}
        on_them = {name for name, pod in self.pods.items() if pod["spec"].get("nodeName") in taken}
        broken = self.cluster.violations
        self.excused |= {each for each in broken if each.split(":")[0].rpartition(" ")[2] in on_them}

    def _note_haste(self) -> None:
        before = len(self.harm)
        super()._note_haste()
        self._excuse_taken(before)

    def _excuse_taken(self, before: int) -> None:
        """Excuse the harm noted since there was so much, to pods on instances whose notice a fault has delayed."""
        if len(self.harm) > before and self.now < self.healed_at + DRAINED_WITHIN:
            taken = {f"node-{instance_id}" for instance_id in self._taken_at}
            on_them = {name for name, pod in self.pods.items() if pod["spec"].get("nodeName") in taken}
            self.excused |= {each for each in self.harm[before:] if each.split(" ")[0] in on_them}

    def _take(self) -> None:
        self.note_forced()
        before = len(self.harm)
        super()._take()
        if self.now < self.healed_at + DRAINED_WITHIN:
            self.excused |= set(self.harm[before:])

    def harm_to_others(self) -> list[str]:
        """Return what the second cluster of the account has suffered. A failing EventBridge may lose its warning."""
        own = {claim.instance_id for claim in self.store.claims.values()}
        is_lost = any(each.fault.service is Service.EVENTS for each in self.lasting)
        found = self.second.violations(own.__contains__, is_warned=not is_lost)
        if not is_lost and Concern.INTERRUPTION not in self.hints.to_others:
            found.append("the second cluster was not woken")
        return found

    def is_settled(self) -> bool:
        """Return whether there is nothing left to do, and every function knows it."""
        if self.now < self.healed_at or self._taken_at or self.incoming or self._drifted():
            return False
        return self.hourly_usd() <= self.usual_usd and super().is_settled()

    def hourly_usd(self) -> float:
        """Return what all instances that are alive cost, by the prices that the world began with."""
        sold = catalog().offerings
        return sum(
            next(
                o.price_hourly_usd
                for o in sold[i.instance_type]
                if (o.zone, o.capacity_type) == (i.zone, i.capacity_type)
            )
            for i in self.cloud.alive()
        )

    def _drifted(self) -> list[str]:
        """Return the claims that lack a label of their NodePool's current template."""
        template = self.cluster.nodepools["default"]["spec"]["template"]
        labels = (template.get("metadata") or {}).get("labels") or {}
        return [
            claim.name for claim in self.store.claims.values() if not labels.items() <= claim.labels.items()
        ]


@dataclass(slots=True)
class ChaosHints(FakeHints):
    """Hints that functions send through Lambda at once or through SQS later, which `meets` may prevent."""

    meets: Callable[[Service, str], None] = lambda _, __: None
    to_others: set[Concern] = field(default_factory=set)
    """The concerns that hints to other clusters invoke."""

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        service = Service.SQS if delay_seconds > 0 else Service.LAMBDA
        self.meets(service, "before")
        if hint.cluster == secondcluster.NAME:
            self.to_others.add(concern)
        else:
            FakeHints.send(self, concern, hint, delay_seconds)
        self.meets(service, "after")


@dataclass(frozen=True, slots=True)
class Market:
    """What the world's region sells, as long as EC2 and Pricing answer the catalogue's function."""

    world: ChaosWorld

    def facts(self) -> Mapping[str, InstanceFacts]:
        facts = self._asked(Service.EC2).facts
        return {name: each for name, each in facts.items() if isinstance(each, InstanceFacts)}

    def zones(self) -> Mapping[str, str]:
        return {o.zone: o.zone_id for offered in self._asked(Service.EC2).offerings.values() for o in offered}

    def offered(self) -> Mapping[str, frozenset[str]]:
        return {
            name: frozenset(o.zone for o in offered)
            for name, offered in self._asked(Service.EC2).offerings.items()
        }

    def on_demand_prices(self) -> Mapping[str, float]:
        sold = self._asked(Service.PRICING)
        return {
            name: o.price_hourly_usd
            for name, offered in sold.offerings.items()
            for o in offered
            if o.capacity_type == ON_DEMAND
        }

    def prices_of(self, sold: str, places: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
        del sold, places
        self._asked(Service.PRICING)
        return {}

    def spot_prices(self, now: datetime, *, windows: bool = False) -> Mapping[tuple[str, str], float]:
        del now
        sold = self._asked(Service.EC2)
        if windows:
            return {}
        return {
            (name, o.zone): o.price_hourly_usd
            for name, offered in sold.offerings.items()
            for o in offered
            if o.capacity_type == SPOT
        }

    def _asked(self, service: Service) -> Catalog:
        self.world.call(service, "before")
        return self.world.sold


_CODES = {
    FaultKind.SLOW: "",
    FaultKind.THROTTLED: "ThrottlingException",
    FaultKind.ERRORS: "InternalError",
    FaultKind.LATE: "ReadTimeoutError",
    FaultKind.PARTITIONED: "ConnectTimeoutError",
}


def _thrown_out(request: LaunchRequest) -> LaunchOutcome:
    return Deferred(request.claim, "RequestLimitExceeded", "Request limit exceeded.", nothing_begun=True)


def _lost(request: LaunchRequest) -> LaunchOutcome:
    return Deferred(request.claim, "ReadTimeoutError", "Read timeout on endpoint URL.")


# Moments


def _small(pods: int, *, spot: bool = False) -> ChaosWorld:
    manifests = {f"web-{n:02d}": pod_manifest(f"web-{n:02d}", memory="2Gi") for n in range(pods)}
    nodepool = builders.nodepool_manifest(requirements=builders.EXPRESS if spot else ON_DEMAND_ONLY)
    nodepool["metadata"]["annotations"] = {SPOT_TYPES: "Never"}
    world = ChaosWorld(manifests, nodepool=nodepool)
    world.settle()
    world.live(timedelta(minutes=2))
    return world


def _several(pods: int = 8, *, spot: bool = False) -> ChaosWorld:
    """Return a world with a node for each two pods, guarded by a budget of one."""
    small = builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")
    nodepool = builders.nodepool_manifest(
        requirements=[*(builders.EXPRESS if spot else ON_DEMAND_ONLY), small]
    )
    nodepool["metadata"]["annotations"] = {SPOT_TYPES: "Never"}
    manifests = {f"web-{n:02d}": pod_manifest(f"web-{n:02d}", cpu="1500m") for n in range(pods)}
    world = ChaosWorld(manifests, nodepool=nodepool)
    world.guard(maxUnavailable=1, expected=pods)
    world.settle()
    world.live(timedelta(minutes=2))
    return world


def _grows(world: ChaosWorld) -> None:
    for number in range(6):
        world.add(f"late-{number}", cpu="3")


def _victim(world: ChaosWorld) -> str:
    used = {p["spec"].get("nodeName") for p in world.pods.values()}
    return min(i.id for i in world.cloud.alive() if f"node-{i.id}" in used)


def _drains(world: ChaosWorld) -> None:
    world.cluster.delete("Node", f"node-{_victim(world)}")


def _interrupted(world: ChaosWorld) -> None:
    world.warn(_victim(world))


def _shrinks(world: ChaosWorld) -> None:
    shrink(world, 2)


def _upgrades(world: ChaosWorld) -> None:
    """Deploy the functions again, and change the NodePool so that all nodes drift."""
    world.begin_again()
    pool = world.cluster.nodepools["default"]
    pool["metadata"]["generation"] = pool["metadata"].get("generation", 1) + 1
    pool["spec"]["template"]["metadata"] = {"labels": {"team": "web"}}


MOMENTS: Mapping[str, tuple[Callable[[], ChaosWorld], Callable[[ChaosWorld], None], Sequence[int]]] = {
    "scale-up": (_several, _grows, (0, 10, 25)),
    "drain": (_several, _drains, (0, 15, 45)),
    "interruption": (partial(_several, spot=True), _interrupted, (0, 10, 60)),
    "consolidation": (partial(_small, 7), _shrinks, (0, 60, 120)),
    "upgrade": (partial(_several, 4), _upgrades, (0, 60, 150)),
}
"""What happens by name: the world before it, the change, and when after it faults begin, in seconds."""
_TO_BE_FOUND = frozenset({"consolidation", "upgrade"})
"""What nodesmith has to notice itself, so that a world may look settled before it has."""


@dataclass(frozen=True, slots=True)
class Before:
    """A world at a moment. Undisturbed, it takes the `usual` time from there.

    It has `most` instances at once on the way, and costs `usd` an hour in the end.
    """

    world: ChaosWorld
    usual: timedelta
    most: int
    usd: float


@cache
def before(moment: str, after: int) -> Before:
    """Return the world so many seconds after the change of a moment."""
    _, happens, _ = MOMENTS[moment]
    world = copied(_prepared(moment))
    happens(world)
    world.observe()
    world.live(timedelta(seconds=after))
    usual = copied(world)
    usual.most_alive = len(usual.cloud.alive())
    if moment in _TO_BE_FOUND:
        usual.live(timedelta(minutes=10))
        usual.settle()
        world.usual_usd = usual.hourly_usd() + CENT
        usual = copied(world)
    usual.settle()
    assert not usual.violations(), (moment, after, usual.violations())
    return Before(world, usual.now - world.now, usual.most_alive, usual.hourly_usd())


@cache
def _prepared(moment: str) -> ChaosWorld:
    return MOMENTS[moment][0]()


# Oddities: each begins at once, and returns what ends it

Heal = Callable[[], None]


def _changed(world: ChaosWorld, **fields: Any) -> Heal:
    """Change fields of the world until it heals."""
    before = {name: getattr(world, name) for name in fields}

    def change(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(world, name, value)

    change(fields)
    return partial(change, before)


def _skewed(world: ChaosWorld) -> Heal:
    """Set half of the functions' clocks ahead, and the others behind."""
    world.skews = {each: SKEW if each in HALVES[0] else -SKEW for each in (*HALVES[0], *HALVES[1])}
    return world.skews.clear


def _shows(data: Callable[[bytes], bytes]) -> Callable[[ChaosWorld], Heal]:
    """Return an oddity in which the bucket holds what `data` makes of the snapshot before."""

    return lambda world: _changed(world, shown=data(world.blobs.objects[snapshot_key(builders.CLUSTER)]))


def _priced(price: Callable[[float], float]) -> Callable[[ChaosWorld], Heal]:
    """Return an oddity in which the catalogue has these prices."""

    def begin(world: ChaosWorld) -> Heal:
        before = world.sold
        offerings = {
            name: tuple(replace(o, price_hourly_usd=price(o.price_hourly_usd)) for o in offered)
            for name, offered in before.offerings.items()
        }
        made = Catalog.of(before.region, before.made_at, dict(before.facts), offerings)
        return _changed(world, sold=decode(encode(made)))

    return begin


def _poisoned(world: ChaosWorld) -> Heal:
    """Send what is no event, and events of instances that are unknown, whose fields are wrong or huge."""
    poison = ["", "[]", "{", "null", '{"detail": 7}', "[" * 5000, json.dumps({"detail-type": "x" * 10_000})]
    poison += [builders.spot_warning(each, world.now) for each in ("i-0", "", "i-" + "9" * 5000, "<script>")]
    world.incoming += [(world.now, event) for event in poison * 3]
    return lambda: None


def _lying(world: ChaosWorld) -> Heal:
    """Let the forwarder show pending pods that do not exist, for more nodes than the cluster may launch."""
    world.store.most_launches = len(world.cloud.instances) - len(secondcluster.IDS) + MOST_LAUNCHES

    def forge(document: Document) -> None:
        names = [f"lie-{number}" for number in range(MOST_LIES)]
        since, nobody = [int(world.now.timestamp())] * MOST_LIES, [-1] * MOST_LIES
        for alike in document["pods"][:1]:
            reported = {"created": since, "flags": [UNSCHEDULABLE | NOT_READY] * MOST_LIES, "names": names}
            document["pods"].append({**alike, **reported, "nodes": nobody})

    return _changed(world, forgery=forge)


MOST_LIES, MOST_LAUNCHES = 80, 20
LIES = "a forwarder that lies"
ODDITIES: Mapping[str, Callable[[ChaosWorld], Heal]] = {
    "functions without concurrency": partial(_changed, is_full=True),
    "clocks that are eight minutes apart": _skewed,
    # Half of the nodes are ahead, and the others behind. Kubelets date their Nodes' conditions.
    "clocks of nodes that are eight minutes apart": partial(_changed, nodes_skew=SKEW),
    "a damaged catalogue": partial(_changed, is_catalog_damaged=True),
    "a snapshot of an hour ago": _shows(an_hour_ago),
    "a truncated snapshot": _shows(cut_in_half),
    "an object that is no snapshot": _shows(lambda _: b"\x00\xff" * 500),
    "prices of zero": _priced(lambda _: 0.0),
    "negative prices": _priced(lambda price: -price),
    "prices of a million": _priced(lambda _: 1e6),
    "poisoned events": _poisoned,
    LIES: _lying,
}

# Combinations


@dataclass(frozen=True, slots=True)
class Combination:
    """Faults that begin together, so many seconds after something has happened."""

    faults: tuple[Fault, ...]
    moment: str
    after: int
    oddity: str = ""
    odd_seconds: float = 0.0

    def __str__(self) -> str:
        if self.oddity:
            return f"{self.oddity} for {self.odd_seconds:g} s, {self.after} s into {self.moment}"
        faults = " and ".join(
            f"{f.name}{' 2' * (f.callers == HALVES[1])} for {f.seconds:g} s" for f in self.faults
        )
        return f"{faults}, {self.after} s into {self.moment}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What broke, and how long after the end of the faults all was done, in seconds beyond the usual time."""

    broken: tuple[str, ...]
    beyond: float
    met: Mapping[str, int]
    """How often each fault was met."""
    without_grace: int = 0
    """Pods that lost their grace or their budget, because EC2 took their instance during a fault or soon after."""


def single_faults() -> Iterator[Combination]:
    """Yield each fault of each service, for each duration and moment."""
    offered = product(Service, OF_ANY_SERVICE, SECONDS, sorted(MOMENTS))
    for number, (service, kind, seconds, moment) in enumerate(offered):
        afters = MOMENTS[moment][2]
        yield Combination(
            (_fault(service, kind, seconds, number),), moment, afters[number // 5 % len(afters)]
        )


def oddities() -> Iterator[Combination]:
    """Yield each oddity, for each duration and moment."""
    for number, (oddity, seconds, moment) in enumerate(product(ODDITIES, SECONDS, sorted(MOMENTS))):
        afters = MOMENTS[moment][2]
        yield Combination((), moment, afters[number // 5 % len(afters)], oddity, seconds)


def pairs_of_faults(count: int, seed: int = 58) -> Iterator[Combination]:
    """Yield so many pairs of faults of two services, each pair of services about as often as any other."""
    dice = random.Random(seed)  # noqa: S311
    pairs = list(combinations(Service, 2))
    for number in range(count):
        moment = dice.choice(sorted(MOMENTS))
        faults = tuple(
            _fault(service, dice.choice(OF_ANY_SERVICE), dice.choice(SECONDS), dice.randrange(2))
            for service in pairs[number % len(pairs)]
        )
        yield Combination(faults, moment, dice.choice(MOMENTS[moment][2]))


def _fault(service: Service, kind: FaultKind, seconds: float, half: int) -> Fault:
    callers = HALVES[half % 2] if kind is FaultKind.PARTITIONED else frozenset[str]()
    return Fault(service, kind, seconds, callers)


def outcome(combination: Combination) -> Outcome:
    """Run a combination to its end."""
    begun = before(combination.moment, combination.after)
    world, lies = copied(begun.world), combination.oddity == LIES
    world.begin(combination.faults)
    if combination.oddity:
        world.upset(combination.oddity, combination.odd_seconds)
    if lies:
        world.usual_usd = begun.usd + CENT
    world.live(world.healed_at - world.now)
    healed_at = world.now
    world.settle(patience=2 * LONGEST if lies else LONGEST)
    seconds = (world.now - healed_at - begun.usual).total_seconds()
    world.live(AFTERWARDS)
    broken = [each for each in world.violations() if each not in world.excused]
    broken += world.harm_to_others()
    if not world.is_settled():
        broken.append("something is left to do")
    broken += [f"{count} × a healthy node was terminated ({why})" for why, count in world.causes.items()]
    # Launches before the lie no longer count against the limit an hour later.
    if world.most_alive > (begun.most + world.store.most_launches if lies else 2 * begun.most + 1):
        broken.append(f"{world.most_alive} instances at once, usually {begun.most}")
    # After a lie, nodes are removed at the pace that the NodePool's disruption budget allows: twenty take an hour.
    beyond = 0.0 if lies else max(0.0, seconds)
    return Outcome(tuple(broken), beyond, dict(world.met), len(world.excused))
