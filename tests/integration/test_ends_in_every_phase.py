"""Whatever is deleted, in whatever phase, ends cleanly; unexpected changes to a node do no harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from nodesmith.controllers.termination import LOCKED_FOR, Termination, end_nodes
from nodesmith.errors import Conflict, Transient
from nodesmith.model.functions.hints import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.evictions import DENIED, EvictionRefused, Postponed
from nodesmith.runtime import NODES_AT_ONCE
from tests import builders
from tests.crashes import throttled
from tests.fakes.cloud import Call
from tests.world import Boundaries, World, pod_manifest

WRITES_OF_AN_END = 5
"""The writes of a termination: it begins, waits for its budget, its last pods leave, its instance is terminated, and
lifecycle shows it once more."""
UNBORN = (Phase.PENDING, Phase.DETACHED)
"""Phases for which EC2 is throttled: a claim that ends without an instance waits in the second one."""
BORN = (Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED)
ENDING = (Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED)


@dataclass(slots=True)
class Moment(Boundaries):
    """Something happens once, during any run, as soon as `is_now` returns True."""

    is_now: Callable[[], bool] = lambda: False
    happens: Callable[[], None] = lambda: None
    is_over: bool = field(default=False)

    def cross(self, where: str) -> None:
        """Make it happen if it is time."""
        del where
        if not self.is_over and self.is_now():
            self.is_over = True
            self.happens()


def a_world(moment: Boundaries | None = None, pods: int = 2) -> World:
    return World({f"web-{n}": pod_manifest(f"web-{n}") for n in range(pods)}, boundaries=moment)


def delete_objects(kind: str) -> Callable[[World], None]:
    def delete(world: World) -> None:
        there = world.cluster.nodes if kind == "Node" else world.cluster.nodeclaims
        for name in list(there):
            world.cluster.delete(kind, name)

    return delete


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
    for what in WAYS
    for phase in (Phase.PENDING, *BORN, *ENDING)
    if what not in {"Node", "instance"} or phase not in UNBORN  # there is none yet
]


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
    """Run the world until a claim is in a phase in which it stays for a while."""
    if phase in UNBORN:
        world.cloud.script = [throttled] * 4
    if phase is Phase.DETACHED:
        world.mishaps.append((timedelta(seconds=10), delete_objects("NodeClaim")))
    elif phase in ENDING:  # its termination has begun already
        world.mishaps.append((timedelta(seconds=100), delete_objects("NodeClaim")))
    if phase is Phase.DRAINED:
        world.mishaps.append((timedelta(seconds=100), attach_a_volume))
        world.mishaps.append((timedelta(seconds=200), lambda w: w.volumes.clear()))


def attach_a_volume(world: World) -> None:
    """Attach a volume that is in use and that the driver detaches slowly."""
    world.volumes = {f"pv-{node}": node for node in world.cluster.nodes}


@pytest.mark.parametrize(("what", "phase"), MOMENTS, ids=lambda value: str(value))
def test_whatever_users_delete_in_whatever_phase_ends_cleanly(what: str, phase: Phase) -> None:
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
    assert left == ([], {}, {}, {}), "its pods wait, and nothing else is left"
    assert [*world.harm, *world.cluster.violations] == []


@pytest.mark.parametrize("error", [Transient("500: etcd is away"), Conflict("409: object modified")], ids=str)
@pytest.mark.parametrize("seconds", [5, 30, 45, 105, 120, 135])
def test_an_api_server_that_answers_500_or_409_for_a_minute_changes_only_the_timing(
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


def test_an_instance_is_terminated_once_however_often_its_function_dies_or_runs() -> None:
    world = a_world()
    world.mishaps.append((timedelta(seconds=100), delete_objects("NodeClaim")))
    world.settle()
    (gone,) = (i for i in world.cloud.instances.values() if not i.is_alive)
    world.cloud.terminate([gone.id])  # EC2 accepts the call twice
    world.live(timedelta(minutes=3))
    assert world.violations() == []


def test_a_second_node_with_a_provider_id_is_never_opened_and_delays_nothing() -> None:
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


def test_pods_whose_eviction_a_webhook_denies_do_not_use_up_their_budget() -> None:
    """The stubborn pod's Node ends first, and one pod of the budget may go at a time."""
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
    assert "web-1" not in world.pods, "the pod that the webhook keeps has used up the budget"


def test_a_claim_that_waits_for_nodes_ahead_of_it_is_written_once_however_many_rounds_the_drain_takes() -> (
    None
):
    """Six nodes with one pod each, of which one may be missing at a time: six rounds, and each looks at all nodes."""
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
    """A cluster that answers evictions differently, for instance by a webhook."""

    def __init__(self, cluster: Any, evict: Callable[[Any], Any]) -> None:
        self._cluster, self.evict = cluster, evict

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def test_replacements_are_requested_before_the_ending_nodes_are_changed() -> None:
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
    """Count how often each Node was marked as being deleted."""
    return Counter(
        c.about[1] for c in world.cluster.calls if c.method == "request_deletion" and "Node" in c.about
    )


def test_a_run_that_starts_during_another_leaves_the_nodes_to_it_and_has_it_look_again() -> None:
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
    why = [m.hint.why for m in world.hints.sent if m.concern is Concern.TERMINATION]
    assert "other runs were turned away" in why


def test_after_postponed_evictions_the_nodes_are_looked_at_again_at_once() -> None:
    world = a_world()
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    calm = world.cluster
    world.cluster = _Denying(calm, lambda pods: {each.pod: Postponed() for each in pods})  # type: ignore[assignment]
    world.hints.sent.clear()

    world.run(Concern.TERMINATION)

    hints = [m for m in world.hints.sent if m.concern is Concern.TERMINATION]
    assert [m.due_at for m in hints if m.hint.why == "evictions postponed"] == [world.now]
    assert not any(event.reason == "Evicted" for event in calm.events)


def test_nodes_that_wait_for_their_budget_show_it_while_pods_of_others_are_evicted() -> None:
    """Three nodes with one pod each, of which one may be missing at a time."""
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
        parts = builders.CLUSTER, world.store, world.cloud, cluster, world.blobs, world.hints, world.clock
        done = end_nodes(Termination(*parts, spread=pool.map)).counts

    assert (done["Evict"], done["Wait"]) == (1, 2)


def test_a_run_that_died_delays_the_others_for_ten_seconds() -> None:
    world = a_world()
    world.settle()
    delete_objects("Node")(world)
    world.observe()
    assert world.store.take_lock(
        Concern.TERMINATION, world.now, world.now + LOCKED_FOR
    )  # and its process is gone

    world.run(Concern.TERMINATION)

    assert not closings(world)
    (again,) = (m for m in world.hints.sent if m.due_at == world.now + LOCKED_FOR)
    assert again.concern is Concern.TERMINATION
    world.now += LOCKED_FOR
    world.run(Concern.TERMINATION)
    assert closings(world)


def test_a_run_that_failed_does_not_delay_others() -> None:
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
