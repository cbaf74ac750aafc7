"""The small world, served by Karpenter's algorithm: it buys by first fit and consolidates N nodes into at most one.

Only the decisions are those of `nodesmith.decisions.shadow.karpenter`. What comes of them is up to the world: instances
take their time to join, a scheduler binds pods wherever it likes, pods are evicted with their grace period, and moves
are looked at twice before they begin.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.provisioning import Inputs, PlannedNode, as_read
from nodesmith.decisions.shadow.fleet import hourly_usd
from nodesmith.decisions.shadow.karpenter import first_fit_plan, one_command
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    DISRUPTED,
    INITIALIZED,
    INSTANCE_TYPE,
    NODEPOOL,
    ZONE,
)
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.ec2.launches import Instance, Launched
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.observation.decoding import decode
from tests import builders
from tests.objects.fleets import pool
from tests.smallworld.world import SETTINGS, STEP, Manifest, World, catalog, pod_manifest

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SEARCH_EVERY, SECOND_LOOK = timedelta(seconds=10), timedelta(seconds=15)
APPS = (
    ("api", "500m", "1Gi", 24),
    ("web", "1", "2Gi", 20),
    ("worker", "2", "8Gi", 8),
    ("cache", "1500m", "6Gi", 6),
    ("agent", "250m", "512Mi", 30),
)
"""Name, cpu, memory and most replicas of each Deployment; how many there are follows the time of day."""
JOB = ("etl", "1500m", "3Gi")


@dataclass(slots=True)
class Command:
    """A move: its sources by claim name, the replacements by claim name, and when it may begin."""

    found: Proposal
    due: datetime
    is_begun: bool = False


class KarpenterWorld(World):
    """The world with Karpenter. `spent_usd` is what EC2 charges for all instances so far."""

    def __init__(self, seed: int = 7) -> None:
        requirements = [
            *builders.EXPRESS,
            builders.expression(CAPACITY_TYPE, "In", "on-demand", "spot"),
        ]
        keys = {each["key"]: each for each in requirements}
        self.claims: dict[str, NodeClaim] = {}
        self.command: Command | None = None
        self.spent_usd, self.evictions, self.launches = 0.0, 0, 0
        self.looks: list[Callable[[KarpenterWorld], None]] = []
        self._number = 0
        self._search_at = builders.NOW
        self._dice = random.Random(seed)  # noqa: S311
        self._draws = random.Random(seed + 1)  # noqa: S311
        self._changes: list[tuple[datetime, str, int]] = []
        self._hour = -1
        World.__init__(
            self, {}, nodepool=pool(after="30s", budgets=[{"nodes": "10%"}], requirements=list(keys.values()))
        )
        self.concerns = ()
        self.ready_after = self._ready_after
        self.types = {t.name: t for t in instance_types(catalog(), NodeConfiguration())}

    def run(self, concern: Concern) -> None:
        """Run no function of nodesmith."""

    def _ready_after(self, instance: Instance) -> timedelta:
        return timedelta(seconds=35 + int(instance.id[-6:], 36) % 40)

    # Time

    def live_until(self, end: datetime) -> None:
        """Let time pass, in steps of `STEP` while anything is in progress, and else from one event to the next."""
        self.observe()
        while self.now < end:
            self._plan_hour()
            span = STEP if self._is_busy() else min(self._next(), end) - self.now
            self._pay(span)
            self.now += span
            self._change()
            self._move()
            self.observe()
            self._act()
            self._move()
            self.observe()
            for look in self.looks:
                look(self)

    def _is_busy(self) -> bool:
        waiting = any(not pod["spec"].get("nodeName") for pod in self.pods.values())
        joining = any(claim.phase is not Phase.INITIALIZED for claim in self.claims.values())
        ending = any(i.state == "shutting-down" for i in self.cloud.instances.values())
        return bool(waiting or joining or ending or self.command or self._search_at <= self.now)

    def _next(self) -> datetime:
        minute = self.now + MINUTE
        return max(self.now + STEP, min([minute, *(at for at, _, _ in self._changes[:1])]))

    def _pay(self, span: timedelta) -> None:
        for instance in self.cloud.alive():
            self.spent_usd += self.price_of(instance) * (span / HOUR)

    def price_of(self, instance: Instance) -> float:
        """Return an instance's price in USD an hour."""
        labels = {
            INSTANCE_TYPE: instance.instance_type,
            ZONE: instance.zone,
            CAPACITY_TYPE: instance.capacity_type,
        }
        return hourly_usd(labels, catalog()) or 0.0

    # Pods

    def _plan_hour(self) -> None:
        hour = int((self.now - builders.NOW) / HOUR)
        if hour <= self._hour:
            return
        self._hour = hour
        start, draws = builders.NOW + hour * HOUR, self._draws
        day = 0.55 - 0.45 * math.cos(2 * math.pi * (hour % 24) / 24)
        for name, _, _, most in APPS:
            wanted = max(1, round(most * day * draws.uniform(0.93, 1.07)))
            parts = draws.randint(1, 3)
            before = self._replicas(name)
            for part in range(1, parts + 1):
                at = start + timedelta(seconds=draws.randrange(3600))
                self._changes.append((at, name, before + (wanted - before) * part // parts))
        if hour % 24 in (18, 19, 20, 21):
            for _ in range(draws.randint(0, 6)):
                at = start + timedelta(seconds=draws.randrange(3600))
                self._changes.append((at, "etl", draws.randrange(20, 180)))
        self._changes.sort()

    def _replicas(self, app: str) -> int:
        return len(self._pods_of(app))

    def _pods_of(self, app: str) -> list[str]:
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod["metadata"]["labels"]["app"] == app and not pod["metadata"].get("deletionTimestamp")
        )

    def _change(self) -> None:
        while self._changes and self._changes[0][0] <= self.now:
            _, app, number = self._changes.pop(0)
            if app == "etl":
                name = self._create(*JOB)
                self._changes.append((self.now + number * MINUTE, f"end {name}", 0))
                self._changes.sort()
            elif app.startswith("end "):
                job = app.removeprefix("end ")
                self.remove([each for each in self.pods if each == job or each.startswith(f"{job}-r")])
            else:
                self._scale(app, number)

    def _scale(self, app: str, number: int) -> None:
        there = self._pods_of(app)
        about = next(each for each in APPS if each[0] == app)
        for _ in range(number - len(there)):
            self._create(*about[:3])
        if len(there) > number:
            self.remove(self._draws.sample(there, len(there) - number))

    def _create(self, app: str, cpu: str, memory: str) -> str:
        self._number += 1
        name = f"{app}-{self._number:05d}"
        made = pod_manifest(name, cpu, memory)
        made["metadata"]["labels"] = {"app": app}
        made["metadata"]["creationTimestamp"] = format_time(self.now)
        self.wanted.add(name)
        self._specs[name], self._labels[name] = dict(made["spec"]), {"app": app}
        self.cluster.pods[f"default/{name}"] = made
        self._own(made)
        return name

    def _own(self, pod: Manifest) -> None:
        app = pod["metadata"]["labels"]["app"]
        pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": app, "controller": True}]

    def _replace(self) -> None:
        World._replace(self)
        for name in [each for each in self._replaced if each not in self.pods]:
            self._replaced.discard(name)
            self.wanted.discard(name)
        for pod in self.cluster.pods.values():
            self._own(pod)

    # Karpenter

    def inputs(self) -> Inputs:
        """Return the inputs of a decision now."""
        snapshot = decode(self.blobs.objects[snapshot_key(builders.CLUSTER)])
        snapshot = replace(snapshot, nodeclaims=())
        claims = tuple(self.claims[name] for name in sorted(self.claims))
        ledger = Ledger(claims=claims, nodeclasses=self.store.nodeclasses, cluster=self.cloud.cluster)
        self._number += 1
        return Inputs(
            snapshot, as_read(ledger, snapshot), catalog(), SETTINGS, self.now, f"karpenter-{self._number}"
        )

    def _act(self) -> None:
        self._register()
        self._forget()
        promised = {key for claim in self.claims.values() for key in claim.nominated}
        waiting = {key for key, pod in self.cluster.pods.items() if not pod["spec"].get("nodeName")}
        if waiting - promised:
            plan = first_fit_plan(self.inputs())
            for planned in plan.nodes:
                self._launch(planned, planned.claim.nominated)
        self._disrupt()

    def _launch(self, planned: PlannedNode, nominated: Sequence[str] = ()) -> None:
        self.cloud.ensure_templates(planned.templates)
        (outcome,) = self.cloud.launch([planned.request])
        assert isinstance(outcome, Launched)
        instance, claim = outcome.instance, planned.claim
        self.launches += 1
        self.claims[claim.name] = replace(
            claim,
            phase=Phase.LAUNCHED,
            phase_since=self.now,
            created_at=self.now,
            provider_id=instance.provider_id,
            instance_id=instance.id,
            instance_type=instance.instance_type,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            nominated=tuple(nominated),
            nodepool_hash="",
            nodeclass_hash="",
            expire_after=None,
            allocatable=self.types[instance.instance_type].allocatable,
        )
        self.cluster.nodeclaims[claim.name] = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {
                "name": claim.name,
                "uid": f"uid-{claim.name}",
                "creationTimestamp": format_time(self.now),
                "labels": {NODEPOOL: claim.nodepool},
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
            },
            "status": {"providerID": instance.provider_id},
        }

    def _register(self) -> None:
        """Give Nodes the labels of their NodeClaims, and claims the state of their Nodes."""
        for name, claim in self.claims.items():
            node = self.cluster.nodes.get(f"node-{claim.instance_id}")
            if node is None or claim.phase is Phase.INITIALIZED:
                continue
            is_ready = node["status"]["conditions"][0]["status"] == "True"
            labels = {
                **self.types[claim.instance_type].labels,
                **claim.labels,
                NODEPOOL: claim.nodepool,
                "karpenter.k8s.aws/ec2nodeclass": "default",
                "karpenter.sh/registered": "true",
                INSTANCE_TYPE: claim.instance_type,
                ZONE: claim.zone,
                CAPACITY_TYPE: claim.capacity_type,
                **({INITIALIZED: "true"} if is_ready else {}),
            }
            node["metadata"]["labels"] = {**node["metadata"]["labels"], **labels}
            node["spec"]["taints"] = []
            if is_ready:
                node["status"]["conditions"][0].setdefault("lastTransitionTime", format_time(self.now))
            phase = Phase.INITIALIZED if is_ready else Phase.REGISTERED
            self.claims[name] = replace(
                claim,
                phase=phase,
                phase_since=self.now,
                node_name=node["metadata"]["name"],
                initialized_at=self.now if is_ready else None,
                labels=node["metadata"]["labels"],
                capacity=parse_resources(node["status"]["capacity"]),
                allocatable=parse_resources(node["status"]["allocatable"]),
                nominated=claim.nominated if not is_ready else (),
            )

    def _forget(self) -> None:
        for name, claim in list(self.claims.items()):
            if not self.cloud.instances[claim.instance_id].is_alive:
                del self.claims[name]
                self.cluster.nodeclaims.pop(name, None)
        gone = [id_ for id_, each in self.cloud.instances.items() if each.state == "terminated"]
        for id_ in (each for each in gone if f"node-{each}" not in self.cluster.nodes):
            del self.cloud.instances[id_]
            self._ends_at.pop(id_, None)

    def _disrupt(self) -> None:
        if self.command is not None:
            self._carry_on(self.command)
        elif self.now >= self._search_at:
            found = one_command(self.inputs())
            quiet = STEP if found else MINUTE if not self._is_unsettled() else SEARCH_EVERY
            self._search_at = self.now + max(SEARCH_EVERY, quiet)
            if found is not None:
                self.command = Command(found, self.now + SECOND_LOOK)

    def _is_unsettled(self) -> bool:
        return any(claim.phase is not Phase.INITIALIZED for claim in self.claims.values())

    def _carry_on(self, command: Command) -> None:
        if self.now < command.due:
            return
        sources = [name for name in command.found.sources if name in self.claims]
        if not command.is_begun:
            again = one_command(self.inputs())
            if again is None or again.sources != command.found.sources:
                self.command = None
                return
            command.is_begun, command.found = True, again
            for name in sources:
                self._node(name)["spec"]["taints"] = [{"key": DISRUPTED.key, "effect": str(DISRUPTED.effect)}]
            for planned in again.replacements:
                self._launch(planned)
            return
        replacements = [self.claims.get(planned.claim.name) for planned in command.found.replacements]
        if any(claim is not None and claim.phase is not Phase.INITIALIZED for claim in replacements):
            return
        if self._drained(sources):
            self.cloud.terminate([self.claims[name].instance_id for name in sources])
            self.command = None

    def _node(self, claim: str) -> Manifest:
        return self.cluster.nodes[self.claims[claim].node_name]

    def _drained(self, sources: Sequence[str]) -> bool:
        nodes = {self.claims[name].node_name for name in sources}
        left = [
            (key, pod)
            for key, pod in sorted(self.cluster.pods.items())
            if pod["spec"].get("nodeName") in nodes
        ]
        for key, pod in left:
            if not pod["metadata"].get("deletionTimestamp"):
                self.cluster.evict([PodOnNode(key, pod["spec"]["nodeName"])])
                self.evictions += 1
        return not left
