"""A small world in memory: cluster, EC2, ledger, queues, and nodesmith's functions, with one clock.

Its functions can be killed before or after any of their calls; its messages can be lost, duplicated and delayed.
`settle` runs it until nothing changes; `violations` returns the guarantees that did not hold.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from nodesmith.controllers.allocations import BookedMemory, Booking, State
from nodesmith.controllers.disruption.disruption import disrupt
from nodesmith.controllers.disruption.interruption import Interruption, handle_notices
from nodesmith.controllers.disruption.moves.runstate import Disruption, Memory
from nodesmith.controllers.disruption.repair import Repair, repair_nodes
from nodesmith.controllers.garbagecollection import GarbageCollection, GarbageReport, collect_and_book
from nodesmith.controllers.lifecycle import Lifecycle, follow
from nodesmith.controllers.provisioning import Provisioning, Repeats, provision
from nodesmith.controllers.readiness import Readiness, make_ready
from nodesmith.controllers.region.routing import Routing, route, wake_warned
from nodesmith.controllers.runs import Report, SelfHints
from nodesmith.controllers.termination import Drains, Termination, end_nodes
from nodesmith.decisions.garbagecollection import YOUNG
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.labels import UNREGISTERED
from nodesmith.model.apimachinery.quantities import Resources, format_resources
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.costs.allocations import booked_key, hour_of
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.ec2.launches import Instance, fleet_of
from nodesmith.model.ec2.notices import WARNING, InterruptionCause, Notice
from nodesmith.model.functions import INFORMED, RETRY_SECONDS, WOKEN, Concern, Heartbeat
from nodesmith.model.karpenter.nodeclaims import Phase, tags_due
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.karpenter.ownership import KARPENTERS_LEASE, is_karpenters, provider_id
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed, ReducedAttachment
from nodesmith.observation.podgroups import SCHEDULER_PLUGINS_LABEL, reduce_pod_group
from nodesmith.observation.reduction.objects import (
    reduce_budget,
    reduce_buffer,
    reduce_custom,
    reduce_node,
    reduce_request,
)
from nodesmith.observation.reduction.pods import reduce_daemonset, reduce_pod, reduce_pod_template
from nodesmith.ports import Cloud, Store
from nodesmith_local.functions import deployment
from nodesmith_local.functions.loopdetection import LONGEST_CHAIN, RecursiveLoop
from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.fakes.catalogs import FakeCatalogs
from tests.fakes.cloud import Call, FakeCloud, ready_status
from tests.fakes.cluster import FakeCluster, reduced
from tests.fakes.disruptions import counted, ends_at, is_ending
from tests.fakes.hints import FakeHints, Message
from tests.fakes.notices import FakeNotices
from tests.fakes.routes import FakeRoutes
from tests.fakes.store import FakeStore
from tests.smallworld.binding import bind, bind_groups, places
from tests.smallworld.laws import closed, strangers, unanswered, violations

Manifest = dict[str, Any]
SETTINGS = NodeSettings(fragility_tolerance=0)  # use one node where one suffices: the tests follow its life
SHOWN_AFTER = timedelta(seconds=2)
"""The time from the launch of an instance until EC2 describes it."""
BOOT = timedelta(seconds=30)
READY = timedelta(seconds=45)
RESTART = timedelta(seconds=15)
"""The time from the start of a stopped instance until it joins again."""
STOP = timedelta(seconds=20)
"""The time that an instance takes to stop."""
PATIENCE = timedelta(minutes=40)
"""How long a world may take to settle."""
STEP = timedelta(seconds=5)
STALE_AFTER = timedelta(seconds=90)
TICK = timedelta(seconds=60)
RETRY = timedelta(seconds=RETRY_SECONDS[0])
"""The time until a message is delivered again after a failed run."""
REINVOKED = timedelta(minutes=1)
"""The time until Lambda invokes a function again after its process died."""
_SIZES = ("large", "xlarge", "2xlarge", "4xlarge")
SHUTDOWN = timedelta(seconds=30)
"""The time from TerminateInstances until EC2 shows an instance as terminated."""
FORGOTTEN = timedelta(seconds=15)
"""The time from there until the cloud controller deletes its Node."""
COLLECTIONS = 2
"""The number of completed collections after which an instance without a claim must be gone or taken back."""
CONCERNS = (
    Concern.PROVISIONING,
    Concern.INTERRUPTION,
    Concern.LIFECYCLE,
    Concern.TERMINATION,
    Concern.READINESS,
    Concern.GARBAGECOLLECTION,
)


class Killed(BaseException):
    """The death of a process: nodesmith's code must not catch it."""


@dataclass(slots=True)
class Boundaries:
    """Counts the moments before and after each call of a port; dies at the `fatal` ones, once at each.

    At the moments in `visits`, something else runs first, while the function stands still.
    """

    fatal: frozenset[int] = frozenset()
    visits: dict[int, Callable[[], None]] = field(default_factory=dict)
    look: Callable[[], object] | None = field(default=lambda: None)
    """Returns the part of the world's state that distinguishes moments at the same call; None to record no moments."""
    passed: int = 0
    moments: list[tuple[str, object]] = field(default_factory=list)
    before_steps: list[int] = field(default_factory=list)
    """How many moments had passed before each step of the world."""

    def cross(self, where: str) -> None:
        """Pass one moment, or die at it."""
        self.passed += 1
        if self.look is not None:
            self.moments.append((where, self.look()))
        moment = self.passed
        visit = self.visits.pop(moment, None)
        if visit is not None:
            visit()
        if moment in self.fatal:
            raise Killed(where)

    def distinct(self) -> list[int]:
        """Return the passed moments, without those at which call and world equal those of an earlier one."""
        assert self.look is not None, "moments were not recorded"
        first: dict[tuple[str, object], int] = {}
        for number, moment in enumerate(self.moments, start=1):
            first.setdefault(moment, number)
        return sorted(first.values())


class Watched:
    """A port with a boundary before and after every call."""

    def __init__(self, port: object, boundaries: Boundaries) -> None:
        self._port, self._boundaries = port, boundaries

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the port's method with its boundaries."""
        method = getattr(self._port, name)
        where = f"{type(self._port).__name__}.{name}"

        def call(*args: object, **kwargs: object) -> Any:
            self._boundaries.cross(f"before {where}")
            answer = method(*args, **kwargs)
            self._boundaries.cross(f"after {where}")
            return answer

        return call


@dataclass(frozen=True, slots=True)
class Messages:
    """The behaviour of the queues. Probabilities are from 0 to 1; `seed` is the seed of the random generator."""

    lost: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    seed: int = 0


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """Return a catalogue of a dozen types, so that a thousand worlds take seconds."""
    whole = builders.catalog()
    kept = sorted(f"{family}.{size}" for family in ("c5", "m5", "r5") for size in _SIZES)
    facts = {name: whole.facts[name] for name in kept}
    offerings = {name: tuple(o for o in whole.offerings[name] if o.zone in builders.ZONES) for name in kept}
    return Catalog.of(whole.region, whole.made_at, facts, offerings)


def pod_manifest(name: str, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> Manifest:
    """Return a pending pod as the API server shows it after the scheduler has found no node."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": format_time(builders.NOW),
            "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": True}],
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
            **spec,
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


class World:
    """One cluster and everything that serves it."""

    def __init__(
        self,
        pods: Mapping[str, Manifest],
        *,
        nodepool: Manifest | None = None,
        boundaries: Boundaries | None = None,
        messages: Messages | None = None,
        resolved: bool = True,
    ) -> None:
        self.now = builders.NOW
        self.boundaries = boundaries or Boundaries(
            look=None
        )  # in a large world, recording takes the most time
        self.messages = messages or Messages()
        self._dice = random.Random(self.messages.seed)  # noqa: S311
        self.cloud = FakeCloud(clock=self.clock, cluster=builders.cluster_info(), shown_after=SHOWN_AFTER)
        known = ready_status(builders.nodeclass(), self.cloud.cluster, self.now)
        self.store = FakeStore()
        if resolved:
            pool = parse_nodepool(nodepool or builders.nodepool_manifest()).value
            self.store = FakeStore(
                nodeclasses={"default": known},
                cluster=self.cloud.cluster,
                contents={"NodePool/default": pool.content} if pool else {},
            )
        self.wanted = set(pods)
        """The names of the pods that should exist, including those already replaced."""
        self._specs = {name: dict(pod["spec"]) for name, pod in pods.items()}
        self._labels = {name: dict(pod["metadata"]["labels"]) for name, pod in pods.items()}
        self.cluster = FakeCluster(
            clock=self.clock,
            nodepools={"default": nodepool or builders.nodepool_manifest()},
            nodeclasses={"default": builders.nodeclass_manifest()},
            pods={f"default/{name}": pod for name, pod in pods.items()},
            raise_before=self._refuse_cluster,
            runs=self.is_alive,
        )
        self.cloud.raise_before, self.cloud.raise_after = self._watch_endings, self._begin_shutdown
        self.blobs = FakeBlobs()
        self.begin_booking()
        self.hints = FakeHints(clock=self.clock)
        self.sold = catalog()
        self.is_catalog_damaged = False
        self.runs = 0
        self.boots: Callable[[Instance], bool] = lambda _: True
        """Whether an instance ever joins the cluster."""
        self.ready_after: Callable[[Instance], timedelta] = lambda _: READY
        self.kept_warm = 0
        """How many stopped instances the CapacityBuffers should have once the world has settled."""
        self.daemonsets: list[Manifest] = []
        self.podtemplates: list[Manifest] = []
        self.podgroups: list[Manifest] = []
        self.volumes: dict[str, str] = {}
        """Attached volumes, and the Node of each."""
        self.concerns: tuple[Concern, ...] = CONCERNS
        """The concerns that ticks wake. If disruption is not among them, nothing wakes it."""
        self.metrics = Metrics()
        """The metrics of all functions."""
        self.drains = Drains()
        self.denied: dict[str, datetime] = {}
        """The memory of termination's warm process."""
        self.detached_since: dict[str, datetime] = {}
        self.booked = BookedMemory(hour_of(self.now))
        """The memory of garbage collection's warm process."""
        self.memory = Memory()
        """The memory of disruption's warm process."""
        self.self_hints: dict[Concern, SelfHints] = {}
        self.repeats: dict[Concern, Repeats] = {}
        """The memory of other warm processes, by concern."""
        self.controllers: list[Callable[[World], None]] = []
        """Controllers of the cluster that look at the world after each step of time."""
        self.mishaps: list[tuple[timedelta, Callable[[World], None]]] = []
        """Events that happen to the world, with their time since its beginning."""
        self.away: dict[str, datetime] = {}
        """The time until which a system (`cloud`, `cluster`) is unreachable."""
        self.unseen_until = self.now
        """The time until which nothing writes a snapshot, so that the existing one ages."""
        self._renewed = ""
        """When Karpenter last renewed its lease."""
        self._next_tick = self.now
        self.dues: dict[Concern, datetime | None] = {}
        """When each concern is due without a change, as its last run reported."""
        self.recursive_loops: dict[Concern, RecursiveLoop] = {
            Concern(each.name): each.recursive_loop for each in deployment.FUNCTIONS
        }
        """Each function's setting for chains of messages that lead back to it."""
        self.dropped: list[Message] = []
        """Messages that Lambda dropped because their chain was too long."""
        self._chains: dict[Concern, Counter[Concern]] = {}
        self.harm: list[str] = []
        """Forbidden actions on pods and instances."""
        self.terminations: Counter[str] = Counter()
        """How often EC2 was asked to terminate each instance."""
        self._ends_at: dict[str, datetime] = {}
        self._gone_since: dict[str, datetime] = {}
        self._replaced: set[str] = set()
        self._outlived: Counter[str] = Counter()
        """How many collections an instance without a claim has survived."""
        self.notices = FakeNotices()
        self.others: dict[str, Sequence[str]] = {}
        """The ids of instances of other clusters in the account, by cluster."""
        self.incoming: list[tuple[datetime, str]] = []
        """Events on their way to routing, with their time of arrival."""
        self._taken_at: dict[str, datetime] = {}
        self._again: list[tuple[datetime, Concern]] = []
        self._seen: Observed | None = None
        self._encoded: object = None
        self._written, self._written_at = b"", self.now
        """The cluster when a snapshot was last encoded, that snapshot uncompressed, and its time."""
        self._homes: dict[str, str] = {}
        self._departures: dict[str, int] = {}
        """The nodes of pods in the last snapshot, and when a pod last left each Node."""
        if self.boundaries.look is not None:
            self.boundaries.look = self.held

    def _catalogs(self) -> FakeCatalogs:
        return FakeCatalogs(None if self.is_catalog_damaged else self.sold)

    def clock(self) -> datetime:
        """Return the world's time."""
        return self.now

    def begin_booking(self) -> None:
        """Let cost allocation begin with the hour that has just begun, not with the one before the world."""
        self.blobs.objects[booked_key(builders.CLUSTER)] = State(hour_of(self.now)).to_json()

    @property
    def pods(self) -> dict[str, Manifest]:
        """The pods by name."""
        return {key.partition("/")[2]: pod for key, pod in self.cluster.pods.items()}

    def settle(self, *, patience: timedelta = PATIENCE) -> None:
        """Run until every pod is bound and every claim is initialized or gone, or until `patience` runs out."""
        end = self.now + patience
        self.observe()
        while self.now < end and not self.is_settled():
            self.step()

    def live(self, span: timedelta) -> None:
        """Let functions run and time pass, whether or not anything is left to do."""
        end = self.now + span
        while self.now < end:
            self.step()

    def step(self) -> None:
        """Run the concerns that messages and ticks wake, and let one step of time pass."""
        self.boundaries.before_steps.append(self.boundaries.passed)
        if self.now >= self._next_tick:
            self.look_for_marks()
        woken = self._deliver()
        if self.now >= self._next_tick:
            woken |= set(self.concerns)
            self._next_tick = self.now + TICK
        for concern in sorted(woken):
            self.run(concern)
        self.pass_time()

    def until_tick(self) -> timedelta:
        """Return the time until the next tick."""
        return self._next_tick - self.now

    def add(self, name: str, **asked: Any) -> None:
        """Create a pod."""
        pod = pod_manifest(name, **asked)
        self.wanted.add(name)
        self._specs[name] = dict(pod["spec"])
        self._labels[name] = dict(pod["metadata"]["labels"])
        self.cluster.pods[f"default/{name}"] = pod

    def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Annotate a pod that exists."""
        self.cluster.pods[f"default/{name}"]["metadata"]["annotations"] = dict(annotations)

    def group(self, name: str, *pods: str, least: int) -> None:
        """Put pods that exist into a group of the scheduler plugins, of which so many must be bound at once."""
        about = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
        created = format_time(self.now)
        self.podgroups.append(
            {"metadata": {**about, "creationTimestamp": created}, "spec": {"minMember": least}}
        )
        for pod in pods:
            self._labels[pod][SCHEDULER_PLUGINS_LABEL] = name
            self.cluster.pods[f"default/{pod}"]["metadata"]["labels"][SCHEDULER_PLUGINS_LABEL] = name

    def remove(self, names: Sequence[str]) -> None:
        """Remove these pods as a ReplicaSet that scales down, without replacements."""
        for name in names:
            self.wanted.discard(name)
            self._replaced.add(name)
            del self.cluster.pods[f"default/{name}"]

    def guard(self, app: str = "web", *, expected: int | None = None, **asks: int | str) -> None:
        """Add a PodDisruptionBudget with these fields for an app's pods, of which `expected` are expected."""
        self.cluster.poddisruptionbudgets[f"default/{app}"] = {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {**asks, "selector": {"matchLabels": {"app": app}}},
            "status": {} if expected is None else {"expectedPods": expected},
        }

    def lose(self, instance_id: str, state: str) -> None:
        """End an instance from EC2's side."""
        self.cloud.become(instance_id, state)
        if state == "shutting-down":
            self._ends_at[instance_id] = self.now + SHUTDOWN

    def warn(self, instance_id: str) -> None:
        """Let EC2 announce that it will interrupt a spot instance in two minutes."""
        until = self.now + WARNING
        self.cloud.reported[instance_id] = Notice(
            InterruptionCause.SPOT, instance_id, until, "marked-for-termination"
        )
        self._taken_at[instance_id] = until
        self.incoming.append((self.now, builders.spot_warning(instance_id, self.now)))

    def pass_time(self) -> None:
        """Advance time by one step, with its effects on the world."""
        self.now += STEP
        for mishap in [m for m in self.mishaps if builders.NOW + m[0] <= self.now]:
            self.mishaps.remove(mishap)
            mishap[1](self)
        for controller in self.controllers:
            controller(self)
        self._move()
        self.observe()

    def _move(self) -> None:
        """Let EC2, the kubelets and Kubernetes' own controllers do what is due."""
        self._take()
        self._shut_down()
        self._halt()
        self._boot()
        self._note_haste()
        self.cluster.end_pods()
        self._collect_orphans()
        self._replace()
        self._bind()

    def is_settled(self) -> bool:
        """Return whether there is nothing left to do."""
        bound = all(p["spec"].get("nodeName") for p in self.pods.values())
        claims = self.store.claims
        kept = {name for name, claim in claims.items() if claim.phase is Phase.STOPPED}
        done = all(c.phase in {Phase.INITIALIZED, Phase.STOPPED} and not tags_due(c) for c in claims.values())
        done = done and len(kept) == self.kept_warm
        shown = all(_shows_ready(c) for name, c in self.cluster.nodeclaims.items() if name not in kept)
        dead = [n for n in self.cluster.nodes if not self.is_alive(n)]
        ending = [*self.cluster.nodes.values(), *self.cluster.nodeclaims.values()]
        awaited = self.mishaps or set(self.cluster.nodeclaims) != set(self.store.claims)
        awaited = bool(awaited or dead) or any(each["metadata"].get("deletionTimestamp") for each in ending)
        under_way = self.store.moves or closed(self) or strangers(self) or unanswered(self)
        return bool(bound and done and shown and not (awaited or under_way))

    def run(self, concern: Concern) -> None:
        """Invoke a function once; if it dies or fails, its message comes back a little later."""
        self.runs += 1
        chain = self._chains.pop(concern, Counter[Concern]())
        self.hints.chain, self.hints.sender = chain + Counter([concern]), concern
        self.dues[concern] = self.now
        try:
            self.dues[concern] = self._invoke(concern, self.boundaries)
            if concern is Concern.GARBAGECOLLECTION:
                self._note_leaks()
        except (Killed, Transient, Conflict) as error:
            comes_again = self.now + RETRY
            if isinstance(error, Killed):
                self._lose_memory(concern)
                comes_again = self.now + REINVOKED
            self._again.append((comes_again, concern))
        except Rejected as error:
            raise AssertionError(f"{concern} rejected its input: {error}") from error
        finally:
            self.hints.chain, self.hints.sender = {}, None

    def _lose_memory(self, concern: Concern) -> None:
        """Forget what a process held when it dies."""
        self.self_hints.pop(concern, None)
        self.repeats.pop(concern, None)
        match concern:
            case Concern.TERMINATION:
                self.drains, self.denied = Drains(), {}
            case Concern.DISRUPTION:
                self.memory = Memory()
            case Concern.GARBAGECOLLECTION:
                self.detached_since, self.booked = {}, BookedMemory()
            case _:
                pass

    def visit(self, concern: Concern) -> None:
        """Invoke a function once inside another's run, without boundaries."""
        try:
            self._invoke(concern, Boundaries(look=None))
        except Transient:
            self._again.append((self.now + RETRY, concern))

    def _invoke(self, concern: Concern, boundaries: Boundaries) -> datetime | None:
        """Run a function; return when its concern is due again without a change."""
        store, cloud, cluster, blobs, hints, notices = (
            Watched(port, boundaries)
            for port in (self.store, self.cloud, self.cluster, self.blobs, self.hints, self.notices)
        )
        name, template_offers = builders.CLUSTER, self._catalogs()
        outside = name, store, cloud, cluster, blobs, hints, self.clock
        match concern:
            case Concern.PROVISIONING:
                settings, clock = SETTINGS, self.clock
                repeats = self.repeats.setdefault(concern, Repeats())
                ports = store, cloud, blobs, hints, template_offers, clock, lambda: 0.0
                run = Provisioning(name, settings, *ports, repeats=repeats, metrics=self.metrics)
                return provision(replace(run, last_heartbeat=self.last_heartbeat)).due
            case Concern.DISRUPTION:
                look = disrupt(
                    Disruption(*outside, SETTINGS, template_offers, self.memory, metrics=self.metrics)
                )
                return look.due if look else None
            case Concern.INTERRUPTION:
                return self._interrupt(store, cloud, blobs, hints, notices)
            case Concern.LIFECYCLE:
                own = self.self_hints.setdefault(concern, SelfHints())
                return follow(Lifecycle(*outside, self_hints=own, metrics=self.metrics)).due
            case Concern.TERMINATION:
                own = self.self_hints.setdefault(concern, SelfHints())
                ending = Termination(*outside, self_hints=own, drains=self.drains, denied=self.denied)
                return end_nodes(replace(ending, metrics=self.metrics)).due
            case Concern.GARBAGECOLLECTION:
                collection = GarbageCollection(*outside, detached_since=self.detached_since)
                return self.collect(collection, self._booking(store, blobs, template_offers)).due
            case Concern.REPAIR:
                seen = self.clock, self.last_heartbeat, STALE_AFTER
                repair = Repair(name, store, cluster, blobs, hints, *seen, metrics=self.metrics)
                return repair_nodes(repair).due
            case Concern.READINESS:
                return make_ready(Readiness(*outside)).due
            case _:
                raise AssertionError(f"{concern} does not live in this world")
        return None

    def collect(self, run: GarbageCollection, booking: Booking) -> GarbageReport:
        """Run garbage collection and cost allocation."""
        return collect_and_book(run, booking)

    def _booking(self, store: Any, blobs: Any, catalogs: FakeCatalogs) -> Booking:
        """Return the arguments of cost allocation."""
        ports = store, Watched(self.store.unbooked, Boundaries(look=None)), blobs, blobs, catalogs, self.clock
        return Booking(builders.CLUSTER, "us-east-1", *ports, memory=self.booked, labels=("app",))

    def _interrupt(self, store: Any, cloud: Any, blobs: Any, hints: Any, notices: Any) -> datetime | None:
        """Run interruption."""
        ports = store, cloud, blobs, hints, self._catalogs(), self.clock, lambda: 0.0
        repeats = self.repeats.setdefault(Concern.INTERRUPTION, Repeats())
        buying = Provisioning(builders.CLUSTER, SETTINGS, *ports, repeats=repeats, metrics=self.metrics)
        buying = replace(buying, last_heartbeat=self.last_heartbeat)
        outside = builders.CLUSTER, store, cloud, blobs, hints, notices
        run = Interruption(*outside, lambda: provision(buying), self.clock, self.metrics)
        report = handle_notices(run)
        if report.rejected:
            raise AssertionError(f"interruption rejected its input: {report.rejected}")
        if report.retries_soon:
            self._again.append((self.now + RETRY, Concern.INTERRUPTION))
        return report.due

    def route(self, event: str) -> None:
        """Deliver an event to routing; if routing fails or dies, the event comes again."""
        try:
            self._pass_on(lambda run: route(run, event, builders.ACCOUNT))
        except Transient:
            self.incoming.append((self.now + RETRY, event))
        except Killed:
            self.incoming.append((self.now + REINVOKED, event))

    def look_for_marks(self) -> None:
        """Let routing ask EC2 which spot instances it will interrupt; after a failure, its next tick asks again."""
        with suppress(Transient, Killed):
            self._pass_on(wake_warned)

    def _pass_on(self, passes: Callable[[Routing], Report]) -> None:
        self.hints.sender = Concern.ROUTING
        known = FakeRoutes(lambda: self.store.claims.values(), self._marked, self.others)
        routes, notices, hints = (
            Watched(port, self.boundaries) for port in (known, self.notices, self.hints)
        )
        try:
            passes(Routing(routes, notices, routes, hints, self.clock))
        finally:
            self.hints.sender = None

    def _marked(self) -> list[str]:
        return [
            instance
            for instance, notice in self.cloud.reported.items()
            if notice.cause is InterruptionCause.SPOT
        ]

    def provisioning(
        self,
        *,
        store: Store | None = None,
        cloud: Cloud | None = None,
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> Provisioning:
        """Return the arguments of one run of provisioning, with this world's ports except those given."""
        return Provisioning(
            builders.CLUSTER,
            SETTINGS,
            store or self.store,
            cloud or self.cloud,
            self.blobs,
            self.hints,
            FakeCatalogs(builders.catalog()),
            self.clock,
            stopwatch,
        )

    def _deliver(self) -> set[Concern]:
        """Receive due messages, losing, duplicating and delaying some; return the concerns to wake."""
        woken: set[Concern] = set()
        arrived = [event for at, event in self.incoming if at <= self.now]
        self.incoming = [(at, event) for at, event in self.incoming if at > self.now]
        for event in arrived:
            if self._dice.random() < self.messages.lost:
                continue
            if self._dice.random() < self.messages.delayed:
                self.incoming.append((self.now + timedelta(seconds=self._dice.randrange(5, 60)), event))
                continue
            for _ in range(3 if self._dice.random() < self.messages.doubled else 1):
                self.route(event)
        for concern in self._hinted():
            if self._dice.random() < self.messages.lost:
                continue
            if self._dice.random() < self.messages.delayed:
                later = timedelta(seconds=self._dice.randrange(5, 120))
                self._again.append((self.now + later, concern))
                continue
            woken.add(concern)
            if self._dice.random() < self.messages.doubled:
                self.run(concern)
        return woken

    def _hinted(self) -> list[Concern]:
        """Receive the hints that are due; return their concerns."""
        due = [concern for at, concern in self._again if at <= self.now]
        self._again = [(at, concern) for at, concern in self._again if at > self.now]
        for concern in (*WOKEN, Concern.INTERRUPTION):
            due += [concern for message in self.hints.receive(concern) if self._is_handed_over(message)]
        disrupts = Concern.DISRUPTION in self.concerns
        return [concern for concern in due if disrupts or concern != Concern.DISRUPTION]

    def _is_handed_over(self, message: Message) -> bool:
        """Act as Lambda: extend the chain of a message for its function, or drop the message."""
        is_over = message.chain.get(message.concern, 0) >= LONGEST_CHAIN
        if is_over and self.recursive_loops[message.concern] == "Terminate":
            self.dropped.append(message)
            return False
        known = self._chains.setdefault(message.concern, Counter())
        self._chains[message.concern] = known | Counter(message.chain)
        return True

    def last_heartbeat(self) -> Heartbeat | None:
        """Return the forwarder's newest heartbeat, None while nothing writes a snapshot."""
        return None if self.now < self.unseen_until else Heartbeat(self.now, self._written_at)

    def observe(self) -> None:
        """Write the snapshot, and after a change send the hints, as the forwarder does."""
        if self.now < self.unseen_until:
            return
        self._note_departures()
        departures = {node: at for node, at in self._departures.items() if node in self.cluster.nodes}
        there = self.cluster
        objects = there.pods, there.nodes, there.nodepools, there.nodeclasses, there.nodeclaims
        others = self.podtemplates, self.podgroups, there.capacitybuffers, there.quotas, there.nodeoverlays
        asked = there.requests, there.podtemplates, self._leases(), there.poddisruptionbudgets
        shown = objects, others, asked, self.daemonsets, self.volumes, departures
        if shown != self._encoded:  # encoding takes longer than all else that happens in a quiet step
            self._encoded = _kept(shown)
            self._write(self._observed(self._budgets(), departures))
            self.blobs.keep_version(snapshot_key(builders.CLUSTER), self._dated(), self.now)
        self.blobs.objects[snapshot_key(builders.CLUSTER)] = self._dated()

    def _observed(self, budgets: list[Manifest], departures: dict[str, int]) -> Observed:
        there = self.cluster
        return Observed(
            pods=[pod for pod in reduced(reduce_pod, self.pods.values()) if pod is not None],
            daemonsets=reduced(reduce_daemonset, self.daemonsets),
            nodes=reduced(reduce_node, there.nodes.values()),
            nodepools=reduced(reduce_custom, there.nodepools.values()),
            nodeclasses=reduced(reduce_custom, there.nodeclasses.values()),
            nodeclaims=reduced(reduce_custom, there.nodeclaims.values()),
            capacityquotas=reduced(reduce_custom, there.quotas.values()),
            nodeoverlays=reduced(reduce_custom, there.nodeoverlays.values()),
            poddisruptionbudgets=reduced(reduce_budget, budgets),
            podtemplates=reduced(reduce_pod_template, (*self.podtemplates, *there.podtemplates.values())),
            capacitybuffers=reduced(reduce_buffer, there.capacitybuffers.values()),
            provisioningrequests=reduced(reduce_request, there.requests.values()),
            podgroups=[each for each in reduced(reduce_pod_group, self.podgroups) if each is not None],
            volumeattachments=[ReducedAttachment(name, node, name) for name, node in self.volumes.items()],
            departures=departures,
            leases=self._leases(),
        )

    def _leases(self) -> list[Manifest]:
        """Return Karpenter's lease, reduced, once Karpenter has held it. It dates from its last renewal."""
        if self.cluster.karpenter:
            seconds = int(self.now.timestamp()) // 15 * 15
            self._renewed = format_time(datetime.fromtimestamp(seconds, UTC))
        held = {"name": KARPENTERS_LEASE, "namespace": "kube-system"}
        return [{"metadata": held, "renewed": self._renewed}] if self._renewed else []

    def _write(self, observed: Observed) -> None:
        """Encode a snapshot, and send the hints if a relevant part has changed."""
        self._written = gzip.decompress(encode(builders.CLUSTER, self.now, observed))
        self._written_at = self.now
        if observed != self._seen:
            self._seen = observed
            self._again += [(self.now, concern) for concern in INFORMED]

    def _dated(self) -> bytes:
        """Return the last snapshot as if it had been encoded now."""
        before, after = (
            f'"takenAt":"{at.isoformat(timespec="milliseconds")}"'.encode()
            for at in (self._written_at, self.now)
        )
        assert before in self._written
        return gzip.compress(self._written.replace(before, after, 1), 0, mtime=0)

    def _note_departures(self) -> None:
        moving = {name: pod for name, pod in self.pods.items() if not _is_of_daemonset(pod)}
        homes = {name: pod["spec"].get("nodeName") or "" for name, pod in moving.items()}
        left = {home for name, home in self._homes.items() if homes.get(name) != home and home}
        self._departures.update(dict.fromkeys(left, int(self.now.timestamp())))
        self._homes = homes
        staying = [node for name, node in self.cluster.nodes.items() if name in left]
        if any("deletionTimestamp" not in node["metadata"] for node in staying):
            self._again.append((self.now, Concern.DISRUPTION))

    def _budgets(self) -> list[Manifest]:
        """Return the budgets with the status that their controller would write."""
        reported = []
        for budget in self.cluster.poddisruptionbudgets.values():
            healthy, desired = counted(budget, self.pods.values())
            status = {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": len(self.pods),
                **(budget.get("status") or {}),
                "disruptionsAllowed": max(0, healthy - desired),
            }
            reported.append({**budget, "status": status})
        return reported

    def _refuse(self, system: str) -> None:
        if system in self.away and self.now < self.away[system]:
            raise Transient(f"the {system} is away", "InternalError")

    def _refuse_cluster(self, _: Call) -> None:
        self._refuse("cluster")

    def _watch_endings(self, call: Call) -> None:
        """Record the harm that terminating an instance does to pods that were not drained, and to attached volumes."""
        self._refuse("cloud")
        if call.method != "terminate":
            return
        self.terminations.update(call.about)
        for instance_id in call.about:
            node, instance = f"node-{instance_id}", self.cloud.instances.get(instance_id)
            if instance is None or not instance.is_alive:
                continue
            if node in self.cluster.nodes:
                on_it = [name for name, p in self.pods.items() if p["spec"].get("nodeName") == node]
                self.harm += [f"{name} was not drained from {node}" for name in sorted(on_it)]
                held = [volume for volume, at in self.volumes.items() if at == node]
                self.harm += [f"volume {volume} was attached to {node}" for volume in sorted(held)]

    def _begin_shutdown(self, call: Call) -> None:
        """Begin the shutdown of instances, which takes time."""
        for instance_id in call.about if call.method == "terminate" else ():
            if instance_id in self.cloud.instances and instance_id not in self._ends_at:
                self._ends_at[instance_id] = self.now + SHUTDOWN
                self.cloud.become(instance_id, "shutting-down")

    def _take(self) -> None:
        """Let EC2 interrupt the announced instances, whatever runs there."""
        for instance_id, until in list(self._taken_at.items()):
            if self.now < until:
                continue
            del self._taken_at[instance_id]
            self.cloud.reported.pop(instance_id, None)
            if not self.cloud.instances[instance_id].is_alive:
                continue
            on_it = [n for n, p in self.pods.items() if _runs_beyond(p, f"node-{instance_id}", until)]
            self.harm += [f"{name} was killed without grace on {instance_id}" for name in sorted(on_it)]
            self.lose(instance_id, "shutting-down")
            self.incoming.append((self.now, builders.state_change(instance_id, "shutting-down", self.now)))

    def _note_leaks(self) -> None:
        """Record instances without a claim that have survived two collections."""
        named = {c.instance_id for c in self.store.claims.values()}
        awaited = {c.name for c in self.store.claims.values() if not c.instance_id}
        fleets = {fleet_of(c.launch) for c in self.store.claims.values() if not c.instance_id} - {""}
        karpenters = {provider_id(each) for each in self.cluster.nodeclaims.values() if is_karpenters(each)}
        for instance in self.cloud.alive():
            is_young = self.now - instance.launched_at < YOUNG
            is_karpenters_own = instance.provider_id in karpenters
            is_kept = instance.id in named or is_karpenters_own or is_young
            if is_kept or instance.claim in awaited or instance.fleet in fleets:
                del self._outlived[instance.id]
                continue
            self._outlived[instance.id] += 1
            if self._outlived[instance.id] == COLLECTIONS:
                self.harm.append(f"{instance.id} has no claim and outlived {COLLECTIONS} collections")

    def _note_haste(self) -> None:
        """Record pods whose grace period is cut short on a living instance."""
        for name, pod in self.pods.items():
            own = pod["spec"].get("terminationGracePeriodSeconds", 30)
            given = pod["metadata"].get("deletionGracePeriodSeconds", own)
            if is_ending(pod) and given < own and self.is_alive(pod["spec"].get("nodeName") or "node-"):
                self.harm.append(
                    f"{name} has {given} s of its grace of {own} s until {ends_at(pod):%H:%M:%S}"
                )

    def _shut_down(self) -> None:
        """Remove the Nodes and pods of terminated instances, as kubelet, cloud controller and pod collector do."""
        for instance_id, moment in self._ends_at.items():
            if self.now >= moment:
                self.cloud.become(instance_id, "terminated")
        for name, node in list(self.cluster.nodes.items()):
            # A restored Node has lost its provider id.
            own = node["spec"].get("providerID", name).rpartition("/")[2]
            if self.is_alive(own):
                continue
            node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
            since = self._gone_since.setdefault(name, self.now)
            if self.now - since >= FORGOTTEN:
                self.cluster.delete("Node", name)
        for key, pod in list(self.cluster.pods.items()):
            node = pod["spec"].get("nodeName")
            if node and node not in self.cluster.nodes:
                del self.cluster.pods[key]

    def _replace(self) -> None:
        """Create a new pod for each that ends or is gone, as a ReplicaSet does."""
        for name in sorted(self.wanted - self._replaced):
            pod = self.pods.get(name)
            if pod is not None and not pod["metadata"].get("deletionTimestamp"):
                continue
            self._replaced.add(name)
            successor = f"{name}-r"
            self.wanted.add(successor)
            spec = {k: v for k, v in self._specs[name].items() if k != "nodeName"}
            self._specs[successor], self._labels[successor] = spec, self._labels[name]
            made = {**pod_manifest(successor), "spec": dict(spec)}
            made["metadata"]["labels"] = self._labels[name]
            made["metadata"]["creationTimestamp"] = format_time(self.now)
            self.cluster.pods[f"default/{successor}"] = made

    def _collect_orphans(self) -> None:
        """Delete NodeClaims and Nodes whose owners are gone, as Kubernetes' garbage collector does."""
        uids = {pool["metadata"].get("uid") for pool in self.cluster.nodepools.values()}
        for name, claim in list(self.cluster.nodeclaims.items()):
            owners = {each["uid"] for each in claim["metadata"].get("ownerReferences") or ()}
            if owners and not owners & uids:
                self.cluster.delete("NodeClaim", name)
        uids = {claim["metadata"]["uid"] for claim in self.cluster.nodeclaims.values()}
        for name, node in list(self.cluster.nodes.items()):
            owners = {each["uid"] for each in node["metadata"].get("ownerReferences") or ()}
            if owners and not owners & uids:
                self.cluster.delete("Node", name)

    def _halt(self) -> None:
        """Let instances stop that were asked to. Their kubelets fall silent; their Nodes stay."""
        for instance in self.cloud.alive():
            since, name = self.cloud.stopping_since.get(instance.id), f"node-{instance.id}"
            if instance.state == "stopping" and since is not None and self.now - since >= STOP:
                self.cloud.become(instance.id, "stopped")
                self.incoming.append((self.now, builders.state_change(instance.id, "stopped", self.now)))
            if instance.state in ("stopping", "stopped") and name in self.cluster.nodes:
                self.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]

    def _boot(self) -> None:
        """Let running instances join as Nodes, and Nodes become Ready, each after its time."""
        types = {t.name: t for t in instance_types(catalog(), NodeConfiguration())}
        for instance in filter(self.boots, self.cloud.alive()):
            if instance.state in ("stopping", "stopped"):
                continue
            started_at = self.cloud.started_at.get(instance.id)
            age = self.now - (started_at or instance.launched_at)
            name = f"node-{instance.id}"
            if name not in self.cluster.nodes and age >= (RESTART if started_at else BOOT):
                offered = types[instance.instance_type].allocatable
                self.cluster.nodes[name] = node_manifest(name, instance.provider_id, offered, self.now)
            if name in self.cluster.nodes and age >= self.ready_after(instance):
                self.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    def is_alive(self, node: str) -> bool:
        """Return whether a Node's instance is alive."""
        instance = self.cloud.instances.get(node.removeprefix("node-"))
        return instance is not None and instance.is_alive

    def _bind(self) -> None:
        groups = {group["metadata"]["name"]: group["spec"]["minMember"] for group in self.podgroups}
        bind_groups(self.pods, self.cluster.nodes, groups) if groups else bind(self.pods, self.cluster.nodes)

    def violations(self) -> list[str]:
        """Return the violations of the invariants, see `tests.smallworld.laws`."""
        return violations(self)

    def held(self) -> object:
        """Return the state of ledger, EC2 and cluster, except for the time."""
        claims = ((c.name, c.phase, c.revision) for c in self.store.claims.values())
        instances = ((i.id, i.state) for i in self.cloud.instances.values())
        bound = (places(pod) for pod in self.pods.values())
        moves = ((m.id, m.stage) for m in self.store.moves.values())
        known = (len(self.cloud.templates), len(self.store.unavailable), len(self.store.nodeclasses))
        reported = sorted(self.notices.kept[builders.CLUSTER])
        shown = (len(self.cluster.nodes), len(self.cluster.nodeclaims), self.store.version)
        return (*claims, *instances, *bound, *moves, *known, *reported, *shown)

    def waiting(self) -> Sequence[str]:
        """Return the names of the pods without a node."""
        return [name for name, pod in sorted(self.pods.items()) if not pod["spec"].get("nodeName")]


def _kept(value: Any) -> Any:
    """Return a copy of plain data, which later changes of the original do not reach."""
    match value:
        case dict():
            return {key: _kept(each) for key, each in value.items()}
        case list() | tuple():
            return [_kept(each) for each in value] if isinstance(value, list) else tuple(map(_kept, value))
        case _:
            return value


def _is_of_daemonset(pod: Manifest) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())


def _shows_ready(nodeclaim: Manifest) -> bool:
    conditions = (nodeclaim.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def node_manifest(name: str, provider_id: str, offered: Resources, now: datetime) -> Manifest:
    """Return a Node in its state at joining: not Ready, and tainted."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": format_time(now),
            "labels": {"kubernetes.io/hostname": name},
        },
        "spec": {
            "providerID": provider_id,
            "taints": [{"key": UNREGISTERED.key, "effect": str(UNREGISTERED.effect)}],
        },
        "status": {
            "capacity": format_resources(offered),
            "allocatable": format_resources(offered),
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }


def _runs_beyond(pod: Manifest, node: str, until: datetime) -> bool:
    """Return whether a pod is on a node and would still run after `until`."""
    deletion = pod["metadata"].get("deletionTimestamp")
    return pod["spec"].get("nodeName") == node and not (deletion and parse_time(deletion) <= until)
