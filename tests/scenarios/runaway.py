"""Clusters in which nodes are bought in vain: something that no snapshot shows keeps pods off them, or removes them.

Each `Runaway` lives for a day. Where nothing is under way, its time passes in larger steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nodesmith.model.apimachinery.labels import INITIALIZED
from nodesmith.model.apimachinery.quantities import parse_quantity
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from tests import builders
from tests.smallworld.binding import Manifest, bind
from tests.smallworld.world import CONCERNS, STEP, World, pod_manifest

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
Scheduler = Callable[["Oddly"], None]


class Oddly(World):
    """A world in which things happen to pods and nodes that snapshots do not show."""

    def __init__(self, scheduler: Scheduler, pods: int = 1, cpu: str = "1", **spec: Any) -> None:
        nodepool = spec.pop("nodepool", None)
        asked = {f"web-{n}": pod_manifest(f"web-{n}", cpu=cpu, **spec) for n in range(pods)}
        super().__init__(asked, nodepool=nodepool)
        self.scheduler = scheduler
        self.concerns = (*CONCERNS, Concern.DISRUPTION)
        self.observe()

    @property
    def bought(self) -> int:
        """The number of instances launched so far."""
        return len(self.cloud.instances)

    @property
    def attempts(self) -> Counter[int]:
        """The attempt numbers of existing claims."""
        return Counter(n for claim in self.store.claims.values() for n in claim.attempts.values())

    def _bind(self) -> None:
        self.scheduler(self)

    def open_nodes(self) -> dict[str, Manifest]:
        """The Nodes to which pods can be bound."""
        return {n: node for n, node in self.cluster.nodes.items() if not node["spec"].get("taints")}

    def fill(self, node: str, kind: str) -> None:
        """Let a foreign pod fill a Node and preempt the pods that run there."""
        for name in self.on(node):
            del self.cluster.pods[f"default/{name}"]
        name, cpu = f"filler-{node}", self.cluster.nodes[node]["status"]["allocatable"]["cpu"]
        made = pod_manifest(name, cpu=cpu, nodeName=node, priority=1000)
        made["metadata"] |= {"creationTimestamp": format_time(self.now), "labels": {"app": "filler"}}
        made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "filler", "controller": True}]
        self.cluster.pods[f"default/{name}"] = {**made, "status": {}}

    def on(self, node: str) -> list[str]:
        """The pods on a Node except the foreign ones."""
        return [n for n, p in self.pods.items() if p["spec"].get("nodeName") == node and "filler" not in n]


def as_usual(world: Oddly) -> None:
    bind(world.pods, world.cluster.nodes)


def after_daemons_larger_than_their_template(world: Oddly) -> None:
    for name in world.open_nodes():
        world.fill(name, "DaemonSet")
    as_usual(world)


def with_preemption_by_pods_of_others(world: Oddly) -> None:
    """Bind pods, and preempt them a moment later."""
    for name in world.open_nodes():
        if world.on(name):
            world.fill(name, "ReplicaSet")
    as_usual(world)


def where_somebody_deletes_nodes(world: Oddly) -> None:
    """Delete NodeClaims as soon as their Nodes are initialized, before any pod is bound."""
    for node in world.open_nodes().values():
        if node["metadata"]["labels"].get(INITIALIZED) == "true":
            own = node["spec"]["providerID"]
            for claim in world.store.claims.values():
                if claim.provider_id == own and claim.name in world.cluster.nodeclaims:
                    world.cluster.request_deletion("NodeClaim", claim.name)


def where_somebody_terminates_instances(world: Oddly) -> None:
    """Terminate instances externally as soon as they have joined."""
    for name in world.open_nodes():
        if world.is_alive(name):
            world.lose(name.removeprefix("node-"), "shutting-down")


def add(world: Oddly, name: str, **asked: str) -> None:
    """Let the ReplicaSet create a pod now."""
    world.add(name, **asked)
    world.cluster.pods[f"default/{name}"]["metadata"]["creationTimestamp"] = format_time(world.now)


@dataclass(frozen=True, slots=True)
class Runaway:
    """One cause. `needed` is how many nodes a perfect autoscaler buys in a day; `reported` is what must be said."""

    scheduler: Scheduler
    reported: str
    needed: int = 0
    pods: int = 1
    cpu: str = "1"
    template: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    controller: Callable[[World], None] | None = None
    joins: bool = True

    def world(self) -> Oddly:
        """Return a cluster with this cause."""
        nodepool = builders.nodepool_manifest()
        template = nodepool["spec"]["template"]
        template["spec"] |= self.template.get("spec", {})
        template |= {"metadata": self.template["metadata"]} if "metadata" in self.template else {}
        made = Oddly(self.scheduler, self.pods, self.cpu, nodepool=nodepool, **self.spec)
        made.boots = lambda _: self.joins
        made.controllers += [self.controller] if self.controller else []
        return made


def pass_a_day(world: Oddly, day: timedelta = DAY) -> None:
    """Let a day pass: in steps of a minute while nothing is under way."""
    end = world.now + day
    while world.now < end:
        world.step()
        if _is_quiet(world):
            world.now += MINUTE - STEP


def _is_quiet(world: Oddly) -> bool:
    def rests(claim: NodeClaim) -> bool:
        long = world.now - claim.phase_since > 10 * MINUTE
        return claim.phase is Phase.INITIALIZED or (claim.phase is Phase.REGISTERED and long)

    return not world.store.moves and all(map(rests, world.store.claims.values()))


def in_vain(cause: Runaway, world: Oddly) -> int:
    """Return how many of the nodes that were bought are more than are needed."""
    return max(0, world.bought - cause.needed)


def said(world: Oddly) -> str:
    """Return what Events and the conditions of NodePools and NodeClaims say."""
    messages = [event.message for event in world.cluster.events]
    for shown in (*world.cluster.nodepools.values(), *world.cluster.nodeclaims.values()):
        conditions = (shown.get("status") or {}).get("conditions") or ()
        messages += [str(c.get("message") or "") for c in conditions]
    return "\n".join(messages)


def never(_: Oddly) -> None:
    """Bind no pod: a webhook rejects each binding."""


def with_a_taint_of_a_daemonset(world: Oddly) -> None:
    """Let a DaemonSet taint each Node that is ready, with a taint that no pod tolerates."""
    for node in world.open_nodes().values():
        node["spec"]["taints"] = [{"key": "example.com/unchecked", "effect": "NoSchedule"}]
    as_usual(world)


def with_images_that_are_missing(world: Oddly) -> None:
    """Bind pods, of which none becomes ready."""
    as_usual(world)
    for pod in world.pods.values():
        pod["status"]["conditions"] = [c for c in pod["status"]["conditions"] if c["type"] != "Ready"]


def where_labels_are_overwritten(world: Oddly) -> None:
    """Let another controller overwrite the label that the pods select, as often as it is restored."""
    for node in world.cluster.nodes.values():
        if node["metadata"]["labels"].get("team"):
            node["metadata"]["labels"]["team"] = "blue"


def flips_the_label_of_the_nodepool(world: World) -> None:
    """Let two controllers set the label of a NodePool's template in turn, every ten minutes."""
    nodepool = world.cluster.nodepools["default"]
    wanted = ("red", "blue")[(world.now - builders.NOW) // (10 * MINUTE) % 2]
    labels = nodepool["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    if labels.get("team") != wanted:
        labels["team"] = wanted
        nodepool["metadata"]["generation"] = nodepool["metadata"].get("generation", 1) + 1


def with_volumes_that_cannot_be_attached(world: Oddly) -> None:
    """Bind pods, and let somebody delete each that has not started within ten minutes."""
    with_images_that_are_missing(world)
    if (world.now - builders.NOW) // STEP % 120 == 119:
        for name in [n for n, pod in world.pods.items() if pod["spec"].get("nodeName")]:
            del world.cluster.pods[f"default/{name}"]


def with_less_than_the_catalogue_says(world: Oddly) -> None:
    """Let each kubelet reserve a third of its CPU for itself."""
    for node in world.cluster.nodes.values():
        offered = node["status"]["capacity"]["cpu"]
        node["status"]["allocatable"]["cpu"] = f"{int(parse_quantity(offered) * 1000 * 2 // 3)}m"
    as_usual(world)


def where_pods_fail_at_once(world: Oddly) -> None:
    """Let pods fail a step after they have started; their Job creates others."""
    for name in [n for n, pod in world.pods.items() if pod["spec"].get("nodeName")]:
        del world.cluster.pods[f"default/{name}"]
    as_usual(world)


CAUSES: Mapping[str, Runaway] = {
    "a DaemonSet larger than its template": Runaway(
        after_daemons_larger_than_their_template, "none of its pods stayed on one for a minute"
    ),
    "a webhook rejects each binding": Runaway(never, "pods that need a node will be placed on it"),
    "a DaemonSet sets a taint that nobody tolerates": Runaway(
        with_a_taint_of_a_daemonset, "none of its pods stayed on one for a minute"
    ),
    "an image is missing": Runaway(with_images_that_are_missing, "", needed=1),
    "a controller overwrites the label that pods select": Runaway(
        where_labels_are_overwritten,
        "none of its pods stayed on one for a minute",
        template={"metadata": {"labels": {"team": "red"}}},
        spec={"nodeSelector": {"team": "red"}},
    ),
    "two controllers set a label of the NodePool in turn": Runaway(
        as_usual,
        "disruption of its nodes is paused",
        needed=1,
        controller=flips_the_label_of_the_nodepool,
    ),
    "nodes never register": Runaway(as_usual, "did not join the cluster", joins=False),
    "a startup taint is never removed": Runaway(
        as_usual,
        "startup taint example.com/agent",
        template={"spec": {"startupTaints": [{"key": "example.com/agent", "effect": "NoSchedule"}]}},
    ),
    "volumes cannot be attached": Runaway(with_volumes_that_cannot_be_attached, "", needed=1),
    "the kubelet reserves a third of the CPU": Runaway(
        with_less_than_the_catalogue_says, "none of its pods stayed on one for a minute", cpu="3"
    ),
    "a Job creates its failing pods anew": Runaway(
        where_pods_fail_at_once, "disruption of its nodes is paused", needed=1
    ),
    "nodes expire before pods have stayed": Runaway(
        as_usual, "disruption of its nodes is paused", needed=1, template={"spec": {"expireAfter": "5m"}}
    ),
}


def scale_up_steeply(world: World) -> None:
    """Let four times as many pods as there are arrive within ten minutes, each on a node of its own."""
    most, steps = 4 * len(world.pods), 10 * MINUTE // STEP

    def arrive(w: World) -> None:
        before, now = ((w.now - builders.NOW) // STEP - ago for ago in (1, 0))
        for number in range(most * before // steps, min(most, most * now // steps)):
            w.add(f"burst-{number}", cpu="14")

    world.controllers.append(arrive)


def interrupt_all(world: World) -> None:
    """Let EC2 interrupt every instance that is up, after six minutes, after eight and after ten."""

    def warn(w: World) -> None:
        for instance in w.cloud.alive():
            if instance.id not in w.cloud.reported:
                w.warn(instance.id)

    world.mishaps += [(minutes * MINUTE, warn) for minutes in (6, 8, 10)]


def lose_a_zone(world: World) -> None:
    """Let all instances of a zone die after six minutes, and none that is launched there join for half an hour."""
    zone = builders.ZONES[0]

    def lose(w: World) -> None:
        for instance in w.cloud.alive():
            if instance.zone == zone:
                w.lose(instance.id, "shutting-down")

    world.mishaps.append((6 * MINUTE, lose))
    world.boots = lambda i: i.zone != zone or not 6 * MINUTE <= world.now - builders.NOW <= 36 * MINUTE


STORMS: Mapping[str, Callable[[World], None]] = {
    "a steep scale-up": scale_up_steeply,
    "interruptions of all nodes": interrupt_all,
    "the loss of a zone": lose_a_zone,
}


def after_a_storm(storm: Callable[[World], None], pods: int, span: timedelta = HOUR) -> Oddly:
    """Return a cluster with pods on nodes of their own, some time after a storm that nothing must stop."""
    world = Oddly(as_usual, pods, "14")
    storm(world)
    world.live(span)
    return world


def tripped(world: World) -> list[str]:
    """Return the NodePools of which a breaker has tripped."""
    health = world.store.health
    return [name for name in sorted(health) if health[name].launches.trips or health[name].moves.trips]
