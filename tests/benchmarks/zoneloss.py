"""What happens to 100 clusters of one account when an Availability Zone is lost?

Cluster sizes are drawn from 50 to 2,000 nodes, 24,827 together, all nodes full. A third of them are in the zone that is
lost. Within five minutes EC2 sends a notice for each of its 4,965 Spot nodes, with 10 pods each, and takes the instance
two minutes after that. From the start EC2 launches nothing in that zone. One pod in 50 may run only there.

Provisioning, interruption and routing are nodesmith's own, down to EC2's client, on the region of `neighbours`:
Lambda's concurrency, EC2's token buckets and durations of calls are modelled there. Clusters also share the budget of
calls and the document of launches, whose writers collide. A new node joins 45 seconds after its launch, takes the pods
that it was bought for, and then others that are pending. The forwarder reports changes once a second.

A notice is served once each of its node's pods that may run elsewhere has a place on a node that runs or is launched.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from nodesmith.controllers.provisioning import Outcome, provision
from nodesmith.errors import Conflict
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery import labels
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.functions.hints import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.gangs import Gang
from nodesmith.model.ledger.moves import Move
from nodesmith.model.ledger.region import (
    CALLS_PER_SECOND,
    MOST_CALLS,
    SHORT_CALLS_PER_SECOND,
    CallBudget,
    Region,
)
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import ReducedPod, reduce_pod
from nodesmith_local.aws.strict.ec2buckets import MUTATING, RESOURCES, Ec2Buckets, Rate
from tests import builders
from tests.benchmarks.bursts import COMMIT_SECONDS, Ec2
from tests.benchmarks.figures import Figure
from tests.benchmarks.neighbours import (
    EVERY_SECONDS,
    GATHER_SECONDS,
    ITEM_SECONDS,
    OBJECT_SECONDS,
    RENEWAL_SECONDS,
    SEND_SECONDS,
    Cluster,
    SharedCloud,
    SharedEc2,
)
from tests.benchmarks.notices import claim_of, node_of
from tests.benchmarks.sharedregion import Kernel, Lambda
from tests.fakes.store import FakeStore
from tests.world import World, pod_manifest

CLUSTERS, SMALLEST, LARGEST, SKEW, SEED = 100, 50, 2000, 3, 1
LOST = builders.ZONES[0]
SPOT_SHARE, PINNED_EVERY, PODS_A_NODE, APPS = 0.6, 50, 10, 20
STORM_SECONDS, WARNING_SECONDS, PATIENCE_SECONDS = 300.0, 120.0, 600.0
IN_TURN_SECONDS, EACH_SECONDS = 10.0, 15.0
"""One cluster's notices, when clusters lose the zone one after another; the time between two clusters."""
SERVED_SECONDS, BOOT_SECONDS = 60.0, 45.0
CPU_MILLI, MEMORY_MIB = 385, 700
SHARE_ATTEMPTS = 8
"""How often the ledger tries a commit again if other clusters have written what all share."""


@dataclass(slots=True)
class Shared:
    """The document that commits of all clusters write."""

    revision: int = 0
    conflicts: int = 0


@dataclass(slots=True)
class ContendedStore(FakeStore):
    """A ledger whose commits collide with those of other clusters, and are repeated, as in DynamoDB."""

    kernel: Kernel = field(default_factory=Kernel)
    shared: Shared = field(default_factory=Shared)

    def commit(
        self,
        version: int,
        claims: Sequence[NodeClaim],
        decision: str,
        move: Move | None = None,
        gang: Gang | None = None,
        changed: Sequence[NodeClaim] = (),
    ) -> None:
        for _ in range(SHARE_ATTEMPTS):
            known = self.shared.revision
            self.kernel.wait(COMMIT_SECONDS)
            if known == self.shared.revision:
                self.shared.revision += 1
                FakeStore.commit(self, version, claims, decision, move, gang, changed)
                return
            self.shared.conflicts += 1
            self.kernel.wait(ITEM_SECONDS)
        raise Conflict("other clusters have bought nodes at each attempt")


class ZonalEc2(SharedEc2):
    """EC2 without capacity in the lost zone. It names each pool that it tried in vain."""

    lessons = 0
    """Calls that taught nothing but the loss of pools."""

    def _launched(self, asked: Mapping[str, Any], asked_at: float) -> dict[str, Any]:
        configs = asked["LaunchTemplateConfigs"]
        rows = [override for config in configs for override in config["Overrides"]]
        first = next((i for i, row in enumerate(rows) if row["AvailabilityZone"] != LOST), len(rows))
        answer: dict[str, Any] = {"FleetId": f"fleet-{asked['ClientToken'][:8]}", "Instances": []}
        if first < len(rows):
            answer = Ec2._launched(
                self, {**asked, "LaunchTemplateConfigs": [{"Overrides": [rows[first]]}]}, asked_at
            )
        else:
            self.lessons += 1
        errors = [
            {
                "LaunchTemplateAndOverrides": {"Overrides": row},
                "ErrorCode": "InsufficientInstanceCapacity",
                "ErrorMessage": "no capacity",
            }
            for row in rows[:first]
        ]
        return {**answer, "Errors": errors}


class ZoneCluster(Cluster):
    """A cluster with its pods, its nodes and what the forwarder reports of them."""

    def __init__(
        self,
        kernel: Kernel,
        lambda_: Lambda,
        buckets: Ec2Buckets,
        name: str,
        nodes: int,
        shared: Shared,
        region: list[Region],
        budget: list[CallBudget],
    ) -> None:
        world = World({})
        known = {each.name: getattr(world.store, each.name) for each in fields(FakeStore)}
        world.store = ContendedStore(
            **{**known, "name": name, "region": region, "budget": budget, "wall_clock": kernel.now},
            kernel=kernel,
            shared=shared,
        )
        super().__init__(kernel, lambda_, buckets, world)
        self.name = name
        self.ec2: ZonalEc2 = ZonalEc2(kernel, buckets)
        self._cloud = SharedCloud(kernel, self.ec2)
        self.pods: dict[str, ReducedPod] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.room: dict[str, int] = {}
        """How many more pods each new node takes."""
        self.covered: dict[str, float] = {}
        """When each pod of a lost node got a place."""
        self.noticed: dict[str, tuple[float, list[str]]] = {}
        """When the notice for each lost node came, and the pods there that may run elsewhere."""
        self.bought: list[NodeClaim] = []
        self.displaced = 0
        self._dirty = False
        self._last: dict[Concern, float] = {}
        self._kinds = _kinds()
        world.store.claims = {claim.name: claim for claim in self._filled(nodes)}
        self._encoded()
        kernel.after(0, self._watch)

    def _filled(self, nodes: int) -> list[NodeClaim]:
        kind, claims = self._kinds["m5.xlarge"], []
        for number in range(nodes):
            zone = builders.ZONES[number % 3]
            spot = (number // 3) % 10 < 10 * SPOT_SHARE
            claim = replace(
                claim_of(number, kind), zone=zone, capacity_type=labels.SPOT if spot else labels.ON_DEMAND
            )
            claims.append(claim)
            self.nodes[claim.node_name] = reduce_node(node_of(claim, kind))
            if zone == LOST and spot:
                for index in range(PODS_A_NODE):
                    pinned = (number * PODS_A_NODE + index) % PINNED_EVERY == 0
                    self._add(f"p-{number}-{index}", (number + index) % APPS, claim.node_name, pinned=pinned)
            else:
                full = _template(0, big=True)
                self.pods[f"b-{number}"] = replace(full, name=f"b-{number}", node=claim.node_name)
        return claims

    def _add(self, name: str, app: int, node: str, *, pinned: bool) -> None:
        pod = _template(app, pinned=pinned)
        self.pods[name] = replace(pod, name=name, uid=f"uid-{name}", node=node, unschedulable=not node)

    def show(self) -> None:
        """Have the forwarder write the snapshot."""
        self.world.now = self._kernel.now()
        self._encoded()

    def _encoded(self) -> None:
        there = self.world.cluster
        observed = Observed(
            pods=list(self.pods.values()),
            nodes=list(self.nodes.values()),
            nodepools=[reduce_custom(pool) for pool in there.nodepools.values()],
            nodeclasses=[reduce_custom(each) for each in there.nodeclasses.values()],
        )
        self.world.blobs.objects[snapshot_key(builders.CLUSTER)] = encode(
            builders.CLUSTER, self.world.now, observed
        )

    def _watch(self) -> None:
        """Act as the forwarder: report changes, and renew the hint while pods are pending."""
        reported = 0.0
        while True:
            self._kernel.wait(GATHER_SECONDS)
            renews = self._kernel.seconds - reported > RENEWAL_SECONDS and self.pending()
            if not (self._dirty or renews):
                continue
            self._dirty, reported = False, self._kernel.seconds
            self.show()
            self._kernel.wait(OBJECT_SECONDS + SEND_SECONDS)
            for concern, seconds in EVERY_SECONDS.items():
                if concern is Concern.PROVISIONING and not self.pending():
                    continue
                if self._kernel.seconds - self._last.get(concern, -math.inf) >= seconds:
                    self._last[concern] = self._kernel.seconds
                    self.wake(concern)

    def pending(self) -> bool:
        """Return whether a pod has no node."""
        return any(not pod.node for pod in self.pods.values())

    def lose(self, claim: NodeClaim) -> None:
        """Have EC2 send a notice for a node, and take it two minutes later."""
        mine = [pod for pod in self.pods.values() if pod.node == claim.node_name]
        free = [pod.name for pod in mine if "nodeSelector" not in pod.shape]
        self.noticed[claim.node_name] = self._kernel.seconds, free
        self.displaced += len(free)
        self._kernel.after(WARNING_SECONDS, partial(self._take, claim))
        self.notify(builders.spot_warning(claim.instance_id, self._kernel.now()))

    def _take(self, claim: NodeClaim) -> None:
        """Take the instance: its pods are pending."""
        del self.nodes[claim.node_name]
        self.world.store.claims.pop(claim.name, None)
        for pod in [pod for pod in self.pods.values() if pod.node == claim.node_name]:
            self._move(pod, "")
        self._bind()
        self._dirty = True

    def _move(self, pod: ReducedPod, node: str) -> None:
        """Replace a pod by its successor."""
        del self.pods[pod.name]
        name = f"{pod.name}-r"
        self.pods[name] = replace(pod, name=name, uid=f"uid-{name}", node=node, unschedulable=not node)

    def _bind(self) -> None:
        for pod in [pod for pod in self.pods.values() if not pod.node and "nodeSelector" not in pod.shape]:
            node = next((name for name, room in self.room.items() if room), None)
            if node is None:
                return
            self.room[node] -= 1
            self.pods[pod.name] = replace(pod, node=node, unschedulable=False)

    def _boot(self, name: str) -> None:
        """Have the node of a launched claim join, and take the pods that the claim was bought for."""
        store = self.world.store
        claim = store.claims.get(name)
        if claim is None:
            return
        kind = self._kinds[claim.instance_type]
        node = f"node-{name}"
        claim = replace(claim, phase=Phase.INITIALIZED, node_name=node, revision=claim.revision + 1)
        store.claims[name] = claim
        self.nodes[node] = reduce_node(node_of(claim, kind))
        self.room[node] = _slots(kind)
        for key in claim.nominated:
            pod = self.pods.get(key.partition("/")[2])
            if pod is not None and pod.node in self.noticed and self.room[node]:
                self.room[node] -= 1
                self._move(pod, node)
        self._bind()
        self._dirty = True

    def _provision(self) -> Outcome:
        repeats = self._repeats.pop() if self._repeats else None
        run = replace(
            self.world.provisioning(stopwatch=lambda: self._kernel.seconds),
            cloud=self._cloud,
            blobs=self._blobs,
            hints=self,
            clock=self._kernel.now,
            remaining_seconds=self._kernel.left,
        )
        run = replace(run, repeats=repeats) if repeats else run
        try:
            outcome = provision(run)
            self._cover(outcome)
            return outcome
        finally:
            self._repeats.append(run.repeats)
            self._note_launches()

    def _cover(self, outcome: Outcome) -> None:
        now, store = self._kernel.seconds, self.world.store
        for target, pods in (outcome.plan.placed or {}).items():
            claim = store.claims.get(target)
            if claim is None or claim.phase is not Phase.PENDING:
                for pod in pods:
                    self.covered.setdefault(pod.partition("/")[2], now)

    def _note_launches(self) -> None:
        """Note new instances, and have their nodes join."""
        known = {claim.name for claim in self.bought}
        for claim in self.world.store.claims.values():
            if claim.instance_id in self.ec2.asked_at and claim.name not in known:
                self.bought.append(claim)
                at = self.ec2.asked_at[claim.instance_id]
                for pod in claim.nominated:
                    self.covered.setdefault(pod.partition("/")[2], at)
                self._kernel.after(BOOT_SECONDS, partial(self._boot, claim.name))

    def waits(self) -> list[float]:
        """Return how long each notice waited until it was served."""
        return [
            max((self.covered.get(pod, math.inf) for pod in pods), default=at) - at
            for at, pods in self.noticed.values()
        ]


def _kinds() -> Mapping[str, InstanceType]:
    return {kind.name: kind for kind in instance_types(builders.catalog(), NodeConfiguration())}


def _template(app: int, *, pinned: bool = False, big: bool = False) -> ReducedPod:
    known = app, pinned, big
    if known not in _TEMPLATES:
        cpu = "3850m" if big else f"{CPU_MILLI}m"
        spec = {"nodeSelector": {labels.ZONE: LOST}} if pinned else {}
        pod = pod_manifest("pod", cpu, f"{MEMORY_MIB}Mi", **spec)
        pod["metadata"]["labels"] = {"app": f"app-{app}"}
        pod["metadata"]["ownerReferences"][0]["name"] = f"app-{app}"
        reduced = reduce_pod(pod)
        assert reduced is not None
        _TEMPLATES[known] = reduced
    return _TEMPLATES[known]


_TEMPLATES: dict[tuple[int, bool, bool], ReducedPod] = {}


def _slots(kind: InstanceType) -> int:
    left = kind.allocatable
    return min(left.cpu_milli // CPU_MILLI, left.memory_bytes // (MEMORY_MIB << 20), left.pods)


@dataclass(frozen=True, slots=True)
class Loss:
    """The result of a simulation."""

    clusters: Sequence[ZoneCluster]
    region: Lambda
    shared: Shared
    buckets: Ec2Buckets


def simulated(concurrency: int, clusters: int = CLUSTERS, *, in_turn: bool = False) -> Loss:
    """Simulate the loss of a zone in all clusters at once, or in one after another."""
    kernel, dice = Kernel(), Random(SEED)  # noqa: S311
    sizes = [round(SMALLEST * (LARGEST / SMALLEST) ** (dice.random() ** SKEW)) for _ in range(clusters)]
    lambda_ = Lambda(kernel, concurrency, Random(SEED))  # noqa: S311
    buckets, shared = Ec2Buckets(kernel.now), Shared()
    names = [f"cluster-{number:03}" for number in range(clusters)]
    region, budget = [Region("", clusters=tuple(names))], [CallBudget()]
    all_ = [
        ZoneCluster(kernel, lambda_, buckets, name, size, shared, region, budget)
        for name, size in zip(names, sizes, strict=True)
    ]
    last = 0.0
    for number, cluster in enumerate(all_):
        begin = EACH_SECONDS * number if in_turn else 0.0
        for claim in cluster.world.store.claims.values():
            if claim.zone == LOST and claim.capacity_type == labels.SPOT:
                at = 5.0 + begin + dice.random() * (IN_TURN_SECONDS if in_turn else STORM_SECONDS)
                last = max(last, at)
                kernel.after(at, partial(cluster.lose, claim))
    gc.collect()
    gc.disable()
    try:
        kernel.run(last + PATIENCE_SECONDS / 2)
    finally:
        gc.enable()
    return Loss(all_, lambda_, shared, buckets)


def figures(clusters: int = CLUSTERS // 10) -> list[Figure]:
    """Lose the zone in all clusters at once, with both limits of concurrency, and in one cluster after another.

    Fewer than 100 clusters share as much less of EC2's buckets, the budget of calls and Lambda's concurrency.
    """
    part = clusters / CLUSTERS
    rates = {
        "nodesmith.model.ledger.region.MOST_CALLS": max(2, round(MOST_CALLS * part)),
        "nodesmith.model.ledger.region.CALLS_PER_SECOND": CALLS_PER_SECOND * part,
        "nodesmith.model.ledger.region.SHORT_CALLS_PER_SECOND": SHORT_CALLS_PER_SECOND * part,
        "nodesmith_local.aws.strict.ec2buckets.MUTATING": _part(MUTATING, part),
        "tests.benchmarks.neighbours.MUTATING": _part(MUTATING, part),
        "nodesmith_local.aws.strict.ec2buckets.RESOURCES": {
            name: _part(rate, part) for name, rate in RESOURCES.items()
        },
    }
    with ExitStack() as patched:
        for name, value in rates.items():
            patched.enter_context(patch(name, value))
        usual, small = (max(4, round(concurrency * part)) for concurrency in (1000, 50))
        together = simulated(usual, clusters)
        scarce = simulated(small, clusters)
        in_turn = simulated(usual, clusters, in_turn=True)
    return [
        Figure("az-loss-served-share", _served(together), "", note=_note(together, usual), at_least=0.99),
        Figure("az-loss-worst-cluster-share", _worst(together), "", at_least=0.9),
        Figure("az-loss-room-ratio", _room(together), "", 1.1, "room of the nodes bought, per displaced pod"),
        Figure("az-loss-served-share-50", _served(scarce), "", note=_note(scarce, small)),
        Figure(
            "az-loss-in-turn-served-share", _served(in_turn), "", note=_note(in_turn, usual), at_least=0.99
        ),
        Figure("az-loss-in-turn-worst-cluster-share", _worst(in_turn), "", at_least=0.9),
    ]


def _part(rate: Rate, part: float) -> Rate:
    return Rate(max(5.0, rate.burst * part), rate.refill_per_second * part)


def _served(loss: Loss) -> float:
    return _share([wait for each in loss.clusters for wait in each.waits()])


def _worst(loss: Loss) -> float:
    return min(_share(each.waits()) for each in loss.clusters if each.noticed)


def _room(loss: Loss) -> float:
    """Return how many pods the bought nodes hold, for each pod of a lost node that may run elsewhere."""
    kinds = _kinds()
    slots = sum(_slots(kinds[claim.instance_type]) for each in loss.clusters for claim in each.bought)
    return slots / sum(each.displaced for each in loss.clusters)


def _share(waits: Sequence[float]) -> float:
    return sum(wait <= SERVED_SECONDS for wait in waits) / max(1, len(waits))


def _note(loss: Loss, concurrency: int) -> str:
    waits = sorted(wait for each in loss.clusters for wait in each.waits())
    p50, p99 = waits[len(waits) // 2], waits[math.ceil(0.99 * len(waits)) - 1]
    in_time = sum(wait <= WARNING_SECONDS for wait in waits) / len(waits)
    ec2 = [each.ec2 for each in loss.clusters]
    refused = sum(n for what, n in loss.region.seen.items() if what.endswith("throttled"))
    left = sum(
        not pod.node and "nodeSelector" not in pod.shape
        for each in loss.clusters
        for pod in each.pods.values()
    )
    return (
        f"{len(loss.clusters)} clusters, {len(waits)} notices, concurrency {concurrency} (at most {loss.region.most} "
        f"runs at once, {refused} events throttled); half within {p50:.0f} s, p99 {p99:.0f} s, {in_time:.1%} within "
        f"their two minutes; {sum(len(each.bought) for each in loss.clusters)} nodes; {sum(e.calls for e in ec2)} "
        f"calls, {sum(e.throttled for e in ec2)} throttled, {sum(e.lessons for e in ec2)} that found nothing; "
        f"{loss.shared.conflicts} commits repeated; {left} pods left without a node"
    )
