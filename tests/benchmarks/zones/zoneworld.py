"""A cluster of the benchmark `zoneloss`: its pods, its nodes, its ledger, and EC2 without capacity in a zone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from nodesmith.controllers.provisioning import Outcome
from nodesmith.errors import Conflict
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery import labels
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.moves import Move
from nodesmith.model.ledger.region import (
    CallBudget,
    Region,
)
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import ReducedPod, reduce_pod
from nodesmith_local.aws.strict.ec2buckets import Ec2Buckets
from tests import builders
from tests.benchmarks.aws.bursts import COMMIT_SECONDS, Ec2
from tests.benchmarks.aws.sharedregion import Kernel, Lambda
from tests.benchmarks.decisions.notices import claim_of, node_of
from tests.benchmarks.zones.neighbours import (
    EVERY_SECONDS,
    GATHER_SECONDS,
    ITEM_SECONDS,
    OBJECT_SECONDS,
    RENEWAL_SECONDS,
    SEND_SECONDS,
    Cluster,
    SharedBlobs,
    SharedCloud,
    SharedEc2,
)
from tests.fakes.blobs import FakeBlobs
from tests.fakes.store import FakeStore
from tests.smallworld.world import World, pod_manifest

LOST = builders.ZONES[0]
SPOT_SHARE, PINNED_EVERY, PODS_A_NODE, APPS = 0.6, 50, 10, 20
WARNING_SECONDS, BOOT_SECONDS = 120.0, 45.0
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
    ended_at: dict[str, float] = field(default_factory=dict)
    """When the end of each node was recorded, in seconds."""
    committed_at: dict[str, float] = field(default_factory=dict)
    """When a new node was first committed for each pod, in seconds."""

    def save(self, claim: NodeClaim) -> NodeClaim:
        saved = FakeStore.save(self, claim)
        if claim.cause:
            self.ended_at.setdefault(claim.node_name, self.kernel.seconds)
        return saved

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
                pods = (pod.partition("/")[2] for claim in claims for pod in claim.nominated)
                self.committed_at = dict.fromkeys(pods, self.kernel.seconds) | self.committed_at
                return
            self.shared.conflicts += 1
            self.kernel.wait(ITEM_SECONDS)
        raise Conflict("other clusters have bought nodes at each attempt")


@dataclass(slots=True)
class LateBlobs(SharedBlobs):
    """A bucket in which a snapshot is encoded when it is read, since most are replaced before that."""

    snapshot: Callable[[], bytes] | None = None
    """encodes the newest one; None if that is done"""

    def get(self, key: str) -> bytes | None:
        SharedBlobs.get(self, key)  # takes its time
        if key == snapshot_key(builders.CLUSTER) and self.snapshot is not None:
            self.objects[key], self.snapshot = self.snapshot(), None
        return FakeBlobs.get(self, key)


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
        self._kinds = kinds_by_name()
        world.store.claims = {claim.name: claim for claim in self._filled(nodes)}
        self._blobs: LateBlobs = LateBlobs(objects=world.blobs.objects, wait=kernel.wait)
        self.show()
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
        there, now = self.world.cluster, self._kernel.now()
        observed = Observed(
            pods=list(self.pods.values()),
            nodes=list(self.nodes.values()),
            nodepools=[reduce_custom(pool) for pool in there.nodepools.values()],
            nodeclasses=[reduce_custom(each) for each in there.nodeclasses.values()],
        )

        def encoded() -> bytes:
            with self._kernel.unmeasured():  # it is the forwarder's work, not the reader's
                return encode(builders.CLUSTER, now, observed)

        self.world.now, self._blobs.snapshot = now, encoded

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
        self.room[node] = slots_of(kind)
        for key in claim.nominated:
            pod = self.pods.get(key.partition("/")[2])
            if pod is not None and pod.node in self.noticed and self.room[node]:
                self.room[node] -= 1
                self._move(pod, node)
        self._bind()
        self._dirty = True

    def _provision(self) -> Outcome:
        try:
            outcome = super()._provision()
            self._cover(outcome)
            return outcome
        finally:
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

    def stages(self) -> list[tuple[float, float, float]]:
        """Return what each served notice that new nodes serve waited for: its record, a call, and EC2, in seconds."""
        store, found = self.world.store, []
        assert isinstance(store, ContendedStore)
        for node, (at, pods) in self.noticed.items():
            last = max(pods, key=lambda pod: self.covered.get(pod, math.inf), default="")
            committed = store.committed_at.get(last, math.inf)
            if committed <= self.covered.get(last, -math.inf):  # else it got room that was free
                ended = store.ended_at[node]
                found.append((ended - at, committed - ended, self.covered[last] - committed))
        return found


def kinds_by_name() -> Mapping[str, InstanceType]:
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


def slots_of(kind: InstanceType) -> int:
    left = kind.allocatable
    return min(left.cpu_milli // CPU_MILLI, left.memory_bytes // (MEMORY_MIB << 20), left.pods)
