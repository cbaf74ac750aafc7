"""Carries out decisions in the simulated cluster: purchases, ends of nodes, and interruptions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.disruption.interruption import answer, risks_after
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning import PlannedNode
from nodesmith.decisions.provisioning.nodepools.tiers import parsed_nodeclasses
from nodesmith.decisions.termination import steps as ending
from nodesmith.model import commands
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, EXCLUDE_FROM_LOAD_BALANCERS, SPOT, Taint
from nodesmith.model.ec2.instancetypes import InstanceType, image_for, instance_types
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.ec2.notices import WARNING, InterruptionCause, Notice
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.ledger.ledger import departure_of
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_local.simulation.cluster import Cluster
from nodesmith_local.simulation.trace import Chances

STOPS_AFTER = timedelta(seconds=10)
"""How long a pod takes to end after its eviction, unless its grace period is shorter."""
GONE_AFTER = timedelta(seconds=30)
"""From the termination of an instance until its Node is gone."""
_HOURS_A_MONTH = 730
Later = Callable[[datetime, Callable[[], None]], None]


@dataclass(slots=True)
class Fleet:
    """The nodes of a simulated cluster. `later` schedules something, `wake` a concern: see `Simulation`."""

    cluster: Cluster
    seed: int
    chances: Chances
    later: Later
    wake: Callable[[str, datetime], None]
    recreate_pod: Callable[[str], None]
    """called with the key of a pod that must end now and be recreated elsewhere"""
    place: Callable[[str, str], None]
    """called with the key of a pod that may wait, and the Node that has room for it"""
    interruptions: int = 0
    evictions: Counter[str] = field(default_factory=Counter)
    """by the cause of the claim's end"""
    _bought: int = 0
    _pool_rank: Counter[tuple[str, ...]] = field(default_factory=Counter)

    # Purchases

    def buy(self, planned: Sequence[PlannedNode]) -> None:
        """Launch planned nodes, each at its cheapest offering, and let them boot."""
        for node in planned:
            self._launch(node)

    def _launch(self, planned: PlannedNode) -> None:
        now, cluster, chosen = self.cluster.now, self.cluster, planned.request.cheapest
        self._bought += 1
        cluster.launched += 1
        kind = self._kinds(planned.claim).get(chosen.instance_type)
        status = cluster.base.ledger.nodeclasses.get(planned.claim.nodeclass.name)
        image = image_for(kind, status.images) if kind is not None and status is not None else None
        instance = Instance(
            id=f"i-{self._bought:017x}",
            claim=planned.claim.name,
            instance_type=chosen.instance_type,
            zone=chosen.zone,
            capacity_type=planned.request.capacity_type,
            image_id=image.id if image else "",
            state="running",
            launched_at=now,
            subnet_id=chosen.subnet_id,
        )
        claim = launched_claim(planned.claim, instance, kind, now)
        cluster.claims[claim.name] = claim
        cluster.started[claim.name] = now
        self.later(now + self._boot(), lambda: self._ready(claim.name))
        if claim.capacity_type == SPOT:
            self._plan_interruption(claim)

    def _kinds(self, claim: NodeClaim) -> dict[str, InstanceType]:
        base = self.cluster.base
        nodeclass = parsed_nodeclasses(base.snapshot).get(claim.nodeclass.name)
        if nodeclass is None:
            return {}
        configuration = NodeConfiguration.of(nodeclass)
        return {kind.name: kind for kind in instance_types(base.catalog, configuration, base.settings)}

    def _boot(self) -> timedelta:
        """Draw how long an instance boots. The n-th instance of a seed boots equally long in every simulation."""
        usual = self.cluster.trace.boot_seconds
        return timedelta(seconds=usual[int(self.draw("boot", str(self._bought)) * len(usual))])

    def draw(self, *about: str) -> float:
        """Return a number from 0 to 1 that depends only on the seed and on `about`."""
        text = "/".join((str(self.seed), *about))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56

    def _ready(self, name: str) -> None:
        """Let a node join, with the pods that it was bought for and that still wait."""
        cluster, now = self.cluster, self.cluster.now
        claim = cluster.claims.get(name)
        if claim is None or claim.phase is not Phase.LAUNCHED:
            return
        node = cluster.join(claim)
        registered = replace(claim.advanced(Phase.REGISTERED, now), node_name=node.name)
        cluster.claims[name] = registered.advanced(Phase.INITIALIZED, now)
        for key in claim.nominated:
            self.place(key, node.name)
        for concern in ("provision", "disrupt", "end"):
            self.wake(concern, now)

    # Interruptions

    def plan_interruptions(self) -> None:
        """Draw the interruptions of the spot instances that run at the beginning."""
        for name in sorted(self.cluster.claims):
            if self.cluster.claims[name].capacity_type == SPOT:
                self._plan_interruption(self.cluster.claims[name])

    def _plan_interruption(self, claim: NodeClaim) -> None:
        """Draw when EC2 interrupts an instance: for each hour of each pool, and each instance in it, independently."""
        hourly = self.chances.interruptions_monthly / _HOURS_A_MONTH
        pool = claim.instance_type, claim.zone
        self._pool_rank[pool] += 1
        rank, now = str(self._pool_rank[pool]), self.cluster.now
        begin = now.replace(minute=0, second=0, microsecond=0)
        hours = int((self.cluster.trace.end - begin) / timedelta(hours=1)) + 1
        for number in range(hours):
            hour = begin + timedelta(hours=number)
            if self.draw("spot", *pool, rank, hour.isoformat()) < hourly:
                time = hour + timedelta(hours=1) * self.draw("minute", *pool, rank, hour.isoformat())
                if time > now:
                    self.later(time, lambda: self._warn(claim.name))
                    return

    def _warn(self, name: str) -> None:
        """Let EC2 announce that it takes an instance in two minutes."""
        cluster, now = self.cluster, self.cluster.now
        claim = cluster.claims.get(name)
        if claim is None or claim.phase is Phase.TERMINATED:
            return
        self.interruptions += 1
        until = now + WARNING
        notice = Notice(InterruptionCause.SPOT, claim.instance_id, until, "EC2 takes the spot instance back")
        inputs = cluster.inputs("notice")
        pools = parsed_nodepools(inputs.snapshot.nodepools)
        response = answer([notice], inputs.ledger, pools, inputs.snapshot, now)
        risks = risks_after(response.interrupted, inputs.ledger, now)
        ledger = cluster.base.ledger
        cluster.base = replace(
            cluster.base,
            ledger=replace(
                ledger,
                unavailable={**ledger.unavailable, **response.unavailable},
                risks={**ledger.risks, **risks},
            ),
        )
        self._save(response.changed)
        self.later(until, lambda: self._take(name))
        for concern in ("provision", "end"):
            self.wake(concern, now)

    def _take(self, name: str) -> None:
        """Let EC2 reclaim an instance, even if pods still run on it."""
        claim = self.cluster.claims.get(name)
        if claim is not None and claim.phase is not Phase.TERMINATED:
            self._terminate(claim)

    # Ends of nodes

    def end(self, claims: Iterable[NodeClaim]) -> None:
        """Record that claims end. They have the state to be written."""
        self._save(claims)
        for concern in ("end", "provision"):
            self.wake(concern, self.cluster.now)

    def _save(self, claims: Iterable[NodeClaim]) -> None:
        for claim in claims:
            self.cluster.claims[claim.name] = claim
            self.cluster.changes += 1

    def drain(self) -> None:
        """Carry out the next steps of all ending nodes."""
        cluster, now = self.cluster, self.cluster.now
        if not any(
            claim.is_ending and claim.phase is not Phase.TERMINATED for claim in cluster.claims.values()
        ):
            return
        claims, snapshot = [cluster.claims[name] for name in sorted(cluster.claims)], cluster.snapshot()
        steps = ending.next_steps(claims, snapshot, {}, (), now, (), cluster.base.ledger.drain_times)
        for command in steps:
            self._carry_out(command)
        moment = ending.next_change(list(cluster.claims.values()), snapshot, now)
        is_moving = any(not isinstance(command, commands.Wait) for command in steps)
        soon = now + (timedelta(seconds=5) if is_moving else timedelta(minutes=1))
        self.wake("end", min(soon, moment) if moment is not None else soon)

    def _carry_out(self, command: commands.TerminationCommand) -> None:
        match command:
            case commands.Close():
                self._close(command.node)
            case commands.Evict() | commands.DeletePods():
                for pod in command.pods:
                    self._evict(command.claim, pod)
            case commands.Advance() | commands.Wait():
                self._save([command.claim])
            case commands.TerminateInstances():
                self._terminate(command.claim)
            case commands.Release():
                self._forget(command.claim.name)
            case _:
                assert_never(command)

    def _close(self, name: str) -> None:
        node = self.cluster.nodes.get(name)
        if node is not None:
            taints = node.taints if is_tainted(node.taints) else (*node.taints, DISRUPTED)
            labels = FrozenMap({**node.labels, EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"})
            self.cluster.nodes[name] = replace(node, taints=taints, labels=labels, deleting=True)
            self.cluster.changes += 1

    def _evict(self, claim: NodeClaim, asked: PodOnNode) -> None:
        pod = self.cluster.pods.get(asked.pod)
        if pod is None or pod.deleting:
            return
        grace = pod.shape.grace_seconds if asked.grace_seconds is None else asked.grace_seconds
        time = self.cluster.now + min(STOPS_AFTER, timedelta(seconds=grace))
        self.cluster.pods[pod.key] = replace(pod, deleting=True, deletion_at=time)
        self._count(claim, pod.key)
        self.recreate_pod(pod.key)

    def _count(self, claim: NodeClaim, key: str) -> None:
        run = self.cluster.runs.get(key)
        if run is not None:
            self.evictions[claim.cause] += 1
            self.cluster.all.evictions += 1
            self.cluster.of_workload[run.slot.workload].evictions += 1

    def _terminate(self, claim: NodeClaim) -> None:
        """End an instance. Pods that still run on it are killed."""
        cluster, now = self.cluster, self.cluster.now
        cluster.bill(claim)
        for key in cluster.movable(claim.node_name):
            pod = cluster.pods[key]
            if not pod.deleting:
                self._count(claim, key)
                cluster.pods[key] = replace(pod, deleting=True, deletion_at=now)
                self.recreate_pod(key)
        if claim.phase is not Phase.TERMINATED:
            claim = replace(claim, phase=Phase.TERMINATED, phase_since=now, terminated_at=now)
        self._save([claim])
        self.later(now + GONE_AFTER, lambda: self._forget(claim.name))

    def _forget(self, name: str) -> None:
        claim = self.cluster.claims.pop(name, None)
        if claim is None:
            return
        self.cluster.bill(claim)
        for key in self.cluster.movable(claim.node_name):
            self.recreate_pod(key)
        self.cluster.remove_node(claim.node_name)
        departure = departure_of(claim)
        if departure is not None:
            self.cluster.departures.append(departure)
        self.wake("disrupt", self.cluster.now)


def is_tainted(taints: Iterable[Taint]) -> bool:
    """Return whether a Node with these taints takes no more pods, because it may be disrupted or ends."""
    return any(taint.identity == DISRUPTED.identity for taint in taints)
