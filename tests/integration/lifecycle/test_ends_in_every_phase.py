"""Deleting any object in any phase leads to the same clean termination, and disturbances of a drain do no harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from nodesmith.composition.runtime import NODES_AT_ONCE
from nodesmith.controllers.runs import Report
from nodesmith.controllers.termination import LOCKED_FOR, SOON, Termination, end_nodes
from nodesmith.errors import Conflict, Transient
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.evictions import DENIED, EvictionRefused, Postponed
from tests import builders
from tests.fakes.cloud import Call
from tests.samples import sampled
from tests.scenarios.crashes import delete_objects, throttled
from tests.smallworld.world import Boundaries, World, pod_manifest

WRITES_OF_AN_END = 5
"""The start, the wait for the budget, the last pods' end, the instance's end, and one write by lifecycle."""
UNBORN = (Phase.PENDING, Phase.DETACHED)
"""EC2 throttles in these phases; a claim that is deleted before it has an instance waits in the second one."""
BORN = (Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED)
ENDING = (Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED)


@dataclass(slots=True)
class Moment(Boundaries):
    """Triggers an action once, in the middle of any run, as soon as `is_now` returns True."""

    is_now: Callable[[], bool] = lambda: False
    happens: Callable[[], None] = lambda: None
    is_over: bool = field(default=False)

    def cross(self, where: str) -> None:
        """Trigger the action when it is time."""
        del where
        if not self.is_over and self.is_now():
            self.is_over = True
            self.happens()


def a_world(moment: Boundaries | None = None, pods: int = 2) -> World:
    return World({f"web-{n}": pod_manifest(f"web-{n}") for n in range(pods)}, boundaries=moment)


def delete_nodepool(world: World) -> None:
    """Delete the NodePool; Kubernetes' garbage collector then deletes the NodeClaims that it owns, also later ones."""
    world.cluster.nodepools.clear()


def terminate(world: World) -> None:
    for instance in world.cloud.alive():
        world.lose(instance.id, "shutting-down")


WAYS: dict[str, Callable[[World], None]] = {
    "Node": delete_objects("Node"),
    "NodeClaim": delete_objects("NodeClaim"),
    "NodePool": delete_nodepool,
    "instance": terminate,
}
MOMENTS = [
    (what, phase)
    for number, what in enumerate(WAYS)
    for turn, phase in enumerate((Phase.PENDING, *BORN, *ENDING))
    if what not in {"Node", "instance"} or phase not in UNBORN  # there is none yet in these phases
    if (number + turn) % sampled(2, whole=1) == 0
]
"""In a sample, each object in about half of the phases, and in each phase half of the objects."""


def is_there(world: World, what: str) -> bool:
    return bool(
        {
            "Node": world.cluster.nodes,
            "NodeClaim": world.cluster.nodeclaims,
            "NodePool": world.cluster.nodepools,
            "instance": world.cloud.alive(),
        }[what]
    )


def set_up(world: World, phase: Phase) -> None:
    """Prepare the world so that a claim reaches a phase and stays in it for a while."""
    if phase in UNBORN:
        world.cloud.script = [throttled] * 4
    if phase is Phase.DETACHED:
        world.mishaps.append((timedelta(seconds=10), delete_objects("NodeClaim")))
    elif phase in ENDING:  # the claim is already being terminated
        world.mishaps.append((timedelta(seconds=100), delete_objects("NodeClaim")))
    if phase is Phase.DRAINED:
        world.mishaps.append((timedelta(seconds=100), attach_a_volume))
        world.mishaps.append((timedelta(seconds=200), lambda w: w.volumes.clear()))


def attach_a_volume(world: World) -> None:
    """Attach a volume that is in use and that the driver is slow to detach."""
    world.volumes = {f"pv-{node}": node for node in world.cluster.nodes}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("what", "phase"), MOMENTS, ids=lambda value: str(value))
def test_any_object_deleted_by_hand_in_any_phase_ends_cleanly(what: str, phase: Phase) -> None:
    moment = Moment()
    world = a_world(moment)
    moment.is_now = lambda: (
        any(c.phase is phase for c in world.store.claims.values()) and is_there(world, what)
    )
    moment.happens = lambda: WAYS[what](world)
    set_up(world, phase)
    world.settle(patience=timedelta(minutes=20))

    assert moment.is_over
    if what != "NodePool":
        assert world.violations() == []
        return
    world.live(timedelta(minutes=5))
    left = (world.cloud.alive(), world.store.claims, world.cluster.nodeclaims, world.cluster.nodes)
    assert left == ([], {}, {}, {}), "only its pending pods are left"
    assert [*world.harm, *world.cluster.violations] == []


@pytest.mark.parametrize("error", [Transient("500: etcd is away"), Conflict("409: object modified")], ids=str)
@pytest.mark.parametrize("seconds", [5, 30, 45, 105, 120, 135])
def test_a_minute_of_500_or_409_from_the_api_server_changes_only_the_timing(
    seconds: int, error: Exception
) -> None:
    world = a_world()
    world.mishaps.append((timedelta(seconds=100), delete_objects("Node")))
    begins = builders.NOW + timedelta(seconds=seconds)

    def refuse(_: Call) -> None:
        if begins <= world.now < begins + timedelta(minutes=1):
            raise error

    world.cluster.raise_before = refuse
    world.settle()
    assert world.violations() == []


def test_an_instance_that_is_terminated_again_causes_no_violation() -> None:
    world = a_world()
    world.mishaps.append((timedelta(seconds=100), delete_objects("NodeClaim")))
    world.settle()
    (gone,) = (i for i in world.cloud.instances.values() if not i.is_alive)
    world.cloud.terminate([gone.id])  # EC2 accepts a repeated termination
    world.live(timedelta(minutes=3))
    assert world.violations() == []


def test_a_second_node_with_a_provider_id_is_never_registered_and_delays_nothing() -> None:
    world = a_world()
    world.settle()
    (name,) = world.cluster.nodes
    twin = {**world.cluster.nodes[name], "metadata": {"name": "twin", "uid": "uid-twin", "labels": {}}}
    twin["metadata"]["creationTimestamp"] = world.cluster.nodes[name]["metadata"]["creationTimestamp"]
    world.cluster.nodes["twin"] = twin
    world.live(timedelta(minutes=2))
    assert "karpenter.sh/registered" not in world.cluster.nodes["twin"]["metadata"]["labels"]
    delete_objects("NodeClaim")(world)
    world.live(timedelta(minutes=10))
    assert not world.harm
    assert all(c.is_ending is False for c in world.store.claims.values())
    assert [i.state for i in world.cloud.instances.values()].count("terminated") == 1


def test_pods_that_a_webhook_protects_do_not_use_up_their_budget() -> None:
    """The Node of the pod that the webhook protects ends first, and the budget allows one pod at a time."""
    big: dict[str, Any] = {"cpu": "3"}
    pods = {f"web-{n}": pod_manifest(f"web-{n}", **big) for n in range(3)}
    small = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=small))
    world.guard(maxUnavailable=1)
    world.settle()
    homes = {name: pod["spec"]["nodeName"] for name, pod in world.pods.items()}
    evict = world.cluster.evict

    def guarded(wanted: Any) -> Any:
        kept = [each for each in wanted if each.pod == "default/web-0"]
        answers = evict([each for each in wanted if each not in kept])
        return {**answers, **{k.pod: EvictionRefused(DENIED, "not on Fridays") for k in kept}}

    world.cluster = _Denying(world.cluster, guarded)  # type: ignore[assignment]
    for name in ("web-0", "web-1"):
        world.cluster.delete("Node", homes[name])
        world.live(timedelta(seconds=10))
    world.live(timedelta(minutes=6))
    assert "web-0" in world.pods
    assert "web-1" not in world.pods, "the pod that the webhook protects used up the budget"


def test_a_waiting_nodeclaim_is_written_once_however_many_rounds_a_drain_takes() -> None:
    """Six nodes of one pod each, and a budget of one unavailable pod: six rounds, each visible to all nodes."""
    pods = {f"web-{n}": pod_manifest(f"web-{n}", cpu="3") for n in range(6)}
    small = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=small))
    world.cluster.poddisruptionbudgets["default/web"] = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    world.settle()
    old = set(world.cluster.nodeclaims)
    before = len(world.cluster.calls)
    delete_objects("Node")(world)
    world.settle()
    assert (len(old), world.violations()) == (6, [])
    writes = Counter(
        call.about[0]
        for call in world.cluster.calls[before:]
        if call.method == "apply_nodeclaim" and call.about[0] in old
    )
    assert max(writes.values()) <= WRITES_OF_AN_END


class _Denying:
    """A cluster with other answers to evictions, such as those of a webhook."""

    def __init__(self, cluster: Any, evict: Callable[[Any], Any]) -> None:
        self._cluster, self.evict = cluster, evict

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def terminating(world: World, cluster: Any, **settings: Any) -> Report:
    """Return what termination reports about one run with another port of the cluster."""
    parts = builders.CLUSTER, world.store, world.cloud, cluster, world.blobs, world.hints, world.clock
    return end_nodes(Termination(*parts, **settings))


def test_provisioning_is_woken_before_terminating_nodes_are_changed() -> None:
    world = a_world()
    world.settle()
    delete_objects("Node")(world)
    woken: list[bool] = []

    def note(call: Call) -> None:
        if call.method == "register_node":
            woken.append(Concern.PROVISIONING in world.hints.concerns())

    world.hints.sent.clear()
    world.observe()
    world.cluster.raise_before = note
    world.run(Concern.TERMINATION)

    assert woken == [True]


def closings(world: World) -> Counter[str]:
    """Count how often the deletion of each Node was requested."""
    return Counter(
        c.about[1] for c in world.cluster.calls if c.method == "request_deletion" and "Node" in c.about
    )


def test_a_concurrent_run_leaves_the_nodes_to_the_first_which_then_wakes_termination() -> None:
    moment = Moment()
    world = a_world(moment)
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    moment.is_now = lambda: any(c.phase is Phase.TERMINATING for c in world.store.claims.values())
    moment.happens = lambda: world.visit(Concern.TERMINATION)
    world.hints.sent.clear()

    world.run(Concern.TERMINATION)

    assert moment.is_over
    assert set(closings(world).values()) == {1}
    why = [m.hint.reason for m in world.hints.sent if m.concern is Concern.TERMINATION]
    assert "other runs were turned away" in why


def test_postponed_evictions_wake_termination_at_once() -> None:
    world = a_world()
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    calm = world.cluster
    cluster: Any = _Denying(calm, lambda pods: {each.pod: Postponed() for each in pods})
    world.hints.sent.clear()

    done = terminating(world, cluster).counts

    assert (done["Evict"], done["Postponed"]) == (0, 2)
    hints = [m for m in world.hints.sent if m.concern is Concern.TERMINATION]
    assert [m.due_at for m in hints if m.hint.reason == "evictions postponed"] == [world.now]
    assert [m.due_at for m in hints if m.hint.reason == "nodes end"] == [world.now + SOON], (
        "the Nodes are tainted"
    )
    assert not any(event.reason == "Evicted" for event in calm.events)


def test_nodes_that_wait_for_a_budget_report_it_while_other_nodes_pods_are_evicted() -> None:
    """Three nodes of one pod each, and a budget of one unavailable pod."""
    world = World(
        {f"web-{n}": pod_manifest(f"web-{n}", cpu="3") for n in range(3)},
        nodepool=builders.nodepool_manifest(
            requirements=[
                *builders.EXPRESS,
                builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4"),
            ]
        ),
    )
    world.guard(maxUnavailable=1)
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    is_said = Event()

    def note(call: Call) -> None:
        if call.method == "apply_nodeclaim" and closings(world):
            is_said.set()

    def evict_late(pods: Any) -> Any:
        assert is_said.wait(60)
        return calm.evict(pods)

    calm = world.cluster
    calm.raise_after = note
    cluster: Any = _Denying(calm, evict_late)
    with ThreadPoolExecutor(NODES_AT_ONCE) as pool:
        done = terminating(world, cluster, spread=pool.map).counts

    assert (done["Evict"], done["Wait"]) == (1, 2)


def test_a_run_that_died_delays_other_runs_for_ten_seconds() -> None:
    world = a_world()
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    assert world.store.take_lock(
        Concern.TERMINATION, world.now, world.now + LOCKED_FOR
    )  # whose process then died

    world.run(Concern.TERMINATION)

    assert not closings(world)
    (again,) = (m for m in world.hints.sent if m.due_at == world.now + LOCKED_FOR)
    assert again.concern is Concern.TERMINATION
    assert world.dues[Concern.TERMINATION] == world.now
    world.now += LOCKED_FOR
    world.run(Concern.TERMINATION)
    assert closings(world)
    assert world.dues[Concern.TERMINATION] == world.now


def test_a_run_that_failed_delays_no_other_run() -> None:
    world = a_world()
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    world.away["cluster"] = world.now + timedelta(minutes=1)
    world.run(Concern.TERMINATION)
    world.away.clear()
    world.cluster.calls.clear()
    world.run(Concern.TERMINATION)
    assert closings(world)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_has_not_started_leaves_an_ending_node_whatever_its_budget_says(phase: str) -> None:
    world = a_world(pods=1)
    world.guard(minAvailable=1, expected=1)
    world.settle()
    # Its image cannot be pulled. The API server deletes such a pod; one that runs and is not ready must stay.
    broken = {"phase": phase, "conditions": [{"type": "Ready", "status": "False"}]}
    world.cluster.pods["default/web-0"]["status"] = broken
    (node,) = world.cluster.nodes
    world.cluster.delete("Node", node)
    world.settle(patience=timedelta(minutes=15))
    assert (node not in world.cluster.nodes) == (phase == "Pending")
    assert world.harm == []
