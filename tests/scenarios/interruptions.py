"""Interruptions in an in-memory world, with random faults drawn from a seed; for tests and for benchmarks."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Flag, auto
from typing import Any

from nodesmith.model.ec2.launches import Instance, LaunchOutcome, LaunchRequest, OfferingKey
from nodesmith.model.ec2.notices import WARNING
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from tests import builders
from tests.fakes.cloud import Call
from tests.fakes.disruptions import is_ending
from tests.samples import spread
from tests.scenarios.crashes import throttled
from tests.smallworld.world import STEP, Boundaries, Messages, World, pod_manifest

SMALL = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
BOOT_SECONDS = 35, 70
OUTAGE = timedelta(seconds=30)
EMPTY_POOLS = 5
APPS = 10
LAST_SECONDS = timedelta(seconds=15)
"""The tolerance before the last moment that leaves a pod its grace period: only then may its budget be ignored."""


class Trouble(Flag):
    """Faults during a notice."""

    NO_CAPACITY = auto()
    """In the first five pools that EC2 tries."""
    THROTTLED = auto()
    """CreateFleet fails for half a minute from the warning on."""
    AWAY = auto()
    """The API server is unreachable for half a minute that begins at any time during the notice."""


TROUBLES = [Trouble(number) for number in range(1, 8)]


class Cluster(World):
    """A world in which nodes boot in 35 to 70 s; while the API server is unreachable, the cluster does not change."""

    def __init__(self, pods: dict[str, Any], seed: int, messages: Messages | None = None) -> None:
        pool = builders.nodepool_manifest(requirements=SMALL)
        pool["spec"]["disruption"] = {"consolidateAfter": "Never"}
        super().__init__(pods, nodepool=pool, messages=messages or Messages())
        self._boots_in = random.Random(seed)  # noqa: S311
        self._boot_times: dict[str, timedelta] = {}
        self.ready_after = self._boot_time
        self.pending_pod_seconds = 0.0

    def _boot_time(self, instance: Instance) -> timedelta:
        if instance.id not in self._boot_times:
            self._boot_times[instance.id] = timedelta(seconds=self._boots_in.uniform(*BOOT_SECONDS))
        return self._boot_times[instance.id]

    @property
    def is_reachable(self) -> bool:
        """Whether the API server answers."""
        return self.away.get("cluster", self.now) <= self.now

    def _move(self) -> None:
        if self.is_reachable:
            super()._move()
        else:
            self._take()
            self._shut_down()
            self.cluster.end_pods()  # kubelets need no API server for that

    def _bind(self) -> None:
        """Bind pods; a new pod counts as pending for a whole step."""
        self.pending_pod_seconds += len(self.waiting()) * STEP.total_seconds()
        super()._bind()

    def observe(self) -> None:
        """Write the snapshot if the API server is reachable."""
        if self.is_reachable:
            super().observe()

    def take_later(self, instance_id: str) -> None:
        """Let EC2 take an instance in two minutes, without a notice."""
        self._taken_at[instance_id] = self.now + WARNING

    def claims(self) -> list[NodeClaim]:
        """Return the ledger's claims, by name."""
        return [self.store.claims[name] for name in sorted(self.store.claims)]

    def running_elsewhere(self, victims: Collection[str]) -> int:
        """Count the pods that run, and are not ending, on living instances other than `victims`."""
        hosts = [pod["spec"].get("nodeName") or "node-" for pod in self.pods.values() if not is_ending(pod)]
        return sum(self.is_alive(host) and host.removeprefix("node-") not in victims for host in hosts)


@dataclass(frozen=True, slots=True)
class Survival:
    """The outcome of one interruption: whether all pods ran again when EC2 took the instance, and what was bought."""

    trouble: Trouble
    replaced: bool
    bought: int
    harm: tuple[str, ...]


def survived(seed: int, trouble: Trouble | None = None) -> Survival:
    """Interrupt one of two nodes, with the given faults, or with random ones: one alone, or several at once."""
    dice = random.Random(seed)  # noqa: S311
    drawn = dice.choice(TROUBLES)
    trouble = drawn if trouble is None else trouble
    pods = {
        f"web-{n}": pod_manifest(f"web-{n}", "3", terminationGracePeriodSeconds=dice.randrange(10, 61))
        for n in range(2)
    }
    world = Cluster(pods, seed)
    world.settle()
    before = len(world.cloud.instances)
    world.live(timedelta(seconds=dice.randrange(0, 60)))  # the next tick may be near or far
    _prepare(world, trouble, dice)
    victim = dice.choice(world.claims()).instance_id
    world.warn(victim)
    world.live(WARNING)
    replaced = world.running_elsewhere({victim}) == len(pods)
    world.live(timedelta(minutes=3))
    return Survival(
        trouble, replaced, len(world.cloud.instances) - before, tuple(sorted({*world.violations()}))
    )


def _prepare(world: Cluster, trouble: Trouble, dice: random.Random) -> None:
    until = world.now + (OUTAGE if Trouble.THROTTLED in trouble else timedelta())
    empty: set[OfferingKey] = set()

    def answer(request: LaunchRequest) -> LaunchOutcome:
        world.cloud.script.append(answer)
        if world.now < until:
            return throttled(request)
        if Trouble.NO_CAPACITY in trouble:
            _run_out(request, empty)
        world.cloud.stock = {str(pool): 0 for pool in empty}
        return world.cloud._launch(request)

    world.cloud.script.append(answer)
    if Trouble.AWAY in trouble:
        begins = timedelta(seconds=dice.uniform(0, WARNING.total_seconds()))
        since = world.now + begins - builders.NOW
        world.mishaps.append((since, lambda w: w.away.update(cluster=w.now + OUTAGE)))


def _run_out(request: LaunchRequest, empty: set[OfferingKey]) -> None:
    """Make the first pools empty, in the order in which EC2 tries them."""
    for override in sorted(request.overrides, key=lambda o: (o.price_hourly_usd, o.instance_type, o.zone)):
        if len(empty) < EMPTY_POOLS:
            empty.add(OfferingKey(request.capacity_type, override.instance_type, override.zone))


@dataclass(frozen=True, slots=True)
class Storm:
    """The outcome of ten simultaneous interruptions.

    `early` are pods that were forced to leave long before the last moment that left them their grace period.
    """

    pending_pod_seconds: float
    launched: int
    killed: tuple[str, ...]
    early: tuple[str, ...]
    left_over: tuple[str, ...]


def storm(seed: int, *, delete_first: bool, nodes: int = 30, notices: int = 10) -> Storm:
    """Interrupt a third of a full cluster at once: 10 pods per node, grace periods of 10 to 60 s, budgets of 80 %.

    With `delete_first`, use Karpenter's order: the NodeClaims are deleted, pods leave as budgets allow, and wait for
    nodes that are bought meanwhile; nodesmith gets no other notice.
    """
    dice = random.Random(seed)  # noqa: S311
    world = Cluster(_guarded_pods(nodes, dice), seed)
    for app in range(APPS):
        world.guard(f"app-{app}", minAvailable="80%", expected=nodes)
    world.settle()
    before, world.pending_pod_seconds = len(world.cloud.instances), 0.0
    early = _watch_deletions(world, world.now + WARNING)
    for claim in dice.sample(world.claims(), notices):
        if delete_first:
            world.cluster.delete("NodeClaim", claim.name)
            world.take_later(claim.instance_id)
        else:
            world.warn(claim.instance_id)
    world.live(timedelta(minutes=8))
    left_over = [
        found for found in world.violations() if found not in {*world.harm, *world.cluster.violations}
    ]
    return Storm(
        world.pending_pod_seconds,
        len(world.cloud.instances) - before,
        tuple(sorted({*world.harm})),
        tuple(early),
        tuple(left_over),
    )


def _watch_deletions(world: Cluster, deadline: datetime) -> list[str]:
    """Record pods that are deleted in spite of their budget earlier than shortly before their last moment."""
    early: list[str] = []

    def look(call: Call) -> None:
        for key in call.about if call.method == "delete_pods" else ():
            grace = timedelta(seconds=world.cluster.pods[key]["spec"]["terminationGracePeriodSeconds"])
            if world.now < deadline - grace - LAST_SECONDS:
                early.append(f"{key} at {world.now:%H:%M:%S}")

    world.cluster.raise_before = look
    return early


def _guarded_pods(nodes: int, dice: random.Random) -> dict[str, Any]:
    pods = {}
    for app in range(APPS):
        grace = dice.randrange(10, 61)
        for number in range(nodes):
            pod = pod_manifest(f"app-{app}-{number}", "380m", "500Mi", terminationGracePeriodSeconds=grace)
            pod["metadata"]["labels"] = {"app": f"app-{app}"}
            pod["metadata"]["ownerReferences"][0]["name"] = f"app-{app}"
            pods[pod["metadata"]["name"]] = pod
    return dict(
        dice.sample(sorted(pods.items()), len(pods))
    )  # otherwise the pods of one app would share their nodes


def killed_everywhere(sample: int = 0) -> tuple[int, dict[int, list[str]]]:
    """Interrupt one of two nodes, and kill a function once at each boundary, or at about `sample` of them.

    Return the number of boundaries, and the violations by boundary.
    """
    undisturbed = Boundaries()
    assert _killed(undisturbed) == []
    moments = spread(undisturbed.distinct(), sample, "interruption")
    found = {moment: _killed(Boundaries(frozenset({moment}), look=None)) for moment in moments}
    return len(moments), {moment: broken for moment, broken in found.items() if broken}


def _killed(boundaries: Boundaries) -> list[str]:
    world = Cluster({f"web-{n}": pod_manifest(f"web-{n}", "3") for n in range(2)}, seed=0)
    world.settle()
    before = len(world.cloud.instances)
    boundaries.look = world.held if boundaries.look else None
    world.boundaries = boundaries
    world.warn(world.claims()[0].instance_id)
    world.live(timedelta(minutes=8))
    bought = len(world.cloud.instances) - before
    return world.violations() + [f"{bought} instances were bought for one"] * (bought != 1)
