"""Simulated lives of a small cluster with random user actions, failures and delays; all invariants must hold.

At every step, no instance was terminated with a pod on it, no budget was violated, and no instance without a claim
survived two completed garbage collections. At the end, after a quiet period, there is no instance without a claim, no
object without an owner, no pod without a place, and no finalizer that is never removed.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nodesmith.decisions.garbagecollection import YOUNG
from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.functions import Concern
from tests import builders
from tests.samples import sampled
from tests.smallworld.world import (
    COLLECTIONS,
    CONCERNS,
    STEP,
    TICK,
    Boundaries,
    Manifest,
    Messages,
    World,
    pod_manifest,
)

RUNS = sampled(24, whole=1000)
"""The number of simulated lives."""
PARTS = 4
LONGEST_AWAY = timedelta(minutes=3)
_MOST_PODS = 8
_Begin = Callable[..., None]


def messages(lost: float, doubled: float, seed: int) -> Messages:
    """Return queues with these probabilities of loss, delay and duplication."""
    return Messages(lost=lost, doubled=doubled, delayed=lost, seed=seed)


def beginning(fewest: int, most: int, **more: Any) -> Callable[[_Begin], _Begin]:
    """Draw a life's initial state: pods, queues that may fail, whether a budget guards the pods, and `more`."""
    chances = {"lost": st.sampled_from((0.0, 0.0, 0.3)), "doubled": st.sampled_from((0.0, 0.3))}
    queues = st.builds(messages, **chances, seed=st.integers(0, 2**16))
    begins: Any = initialize(pods=st.integers(fewest, most), queues=queues, guarded=st.booleans(), **more)
    return begins  # type: ignore[no-any-return]


class Lives(RuleBasedStateMachine):
    """One cluster with one NodePool."""

    @beginning(1, 4, age=st.sampled_from((0, 4, 8, 12)))
    def begin(self, pods: int, queues: Messages, guarded: bool, age: int) -> None:
        """Start with an age in steps, so that most lives have nodes before anything happens to them."""
        self.set_up(pods, queues, guarded)
        self.world.observe()
        self.world.live(age * STEP)

    def set_up(self, pods: int, queues: Messages, guarded: bool, nodepool: Manifest | None = None) -> None:
        """Create the world."""
        manifests = {f"web-{n}": pod_manifest(f"web-{n}") for n in range(pods)}
        self.count, self.was_restored, unwatched = pods, False, Boundaries(look=None)
        self.world = World(manifests, nodepool=nodepool, boundaries=unwatched, messages=queues)
        if guarded:
            self.world.guard(maxUnavailable=1)

    @rule(steps=st.integers(1, 20))
    def time_passes(self, steps: int) -> None:
        self.kept = deepcopy(self.world.store)
        self.world.live(steps * STEP)

    @rule()
    def a_step_passes(self) -> None:
        self.world.step()

    @rule(moment=st.integers(1, 40))
    def a_function_is_killed(self, moment: int) -> None:
        """Kill the function at the given number of calls from now."""
        boundaries = self.world.boundaries
        boundaries.fatal = frozenset({*boundaries.fatal, boundaries.passed + moment})

    @rule(concern=st.sampled_from(CONCERNS))
    def a_function_runs_for_no_reason(self, concern: Concern) -> None:
        self.world.run(concern)

    @precondition(lambda self: self.count < _MOST_PODS)
    @rule(cpu=st.sampled_from(("500m", "1", "3")))
    def a_pod_is_created(self, cpu: str) -> None:
        self.world.add(f"web-{self.count}", cpu=cpu)
        self.count += 1

    @rule(kind=st.sampled_from(("Node", "NodeClaim")), which=st.integers(0, 3))
    def a_user_deletes_an_object(self, kind: str, which: int) -> None:
        cluster = self.world.cluster
        names = sorted(cluster.nodes if kind == "Node" else cluster.nodeclaims)
        if names:
            cluster.delete(kind, names[which % len(names)])

    @rule(kind=st.sampled_from(("Node", "NodeClaim")), which=st.integers(0, 3), deleted=st.booleans())
    def a_user_removes_finalizers(self, kind: str, which: int, deleted: bool) -> None:
        """Remove finalizers, and delete the object or not. A running kubelet recreates its Node without our labels."""
        objects = self.world.cluster.nodes if kind == "Node" else self.world.cluster.nodeclaims
        names = sorted(objects)
        if names:
            name = names[which % len(names)]
            there = objects[name]
            objects[name] = {**there, "metadata": {**there["metadata"], "finalizers": []}}
            if deleted or there["metadata"].get("deletionTimestamp"):
                del objects[name]

    @rule(which=st.integers(0, 3), state=st.sampled_from(("terminated", "shutting-down")))
    def an_instance_ends(self, which: int, state: str) -> None:
        alive = sorted(self.world.cloud.alive(), key=lambda i: i.id)
        if alive:
            self.world.lose(alive[which % len(alive)].id, state)

    @rule(which=st.integers(0, 7))
    def a_pod_ends(self, which: int) -> None:
        names = sorted(self.world.cluster.pods)
        if names:
            del self.world.cluster.pods[names[which % len(names)]]

    @rule(minutes=st.integers(1, LONGEST_AWAY // TICK), system=st.sampled_from(("cluster", "cloud")))
    def a_system_is_down(self, minutes: int, system: str) -> None:
        self.world.away[system] = self.world.now + timedelta(minutes=minutes)

    @rule(seconds=st.integers(5, 90))
    def the_forwarder_is_down(self, seconds: int) -> None:
        """Functions that run meanwhile see the cluster as it was before."""
        self.world.unseen_until = self.world.now + timedelta(seconds=seconds)

    @rule(empty=st.sampled_from(("spot *", "* in us-east-1a", "*")))
    def capacity_runs_out(self, empty: str) -> None:
        self.world.cloud.stock = {empty: 0}

    @rule()
    def capacity_comes_back(self) -> None:
        self.world.cloud.stock = {}

    @precondition(lambda self: hasattr(self, "kept"))
    @rule()
    def the_ledger_is_restored(self) -> None:
        """Restore the ledger from before time last passed. Instances launched since then have no claim."""
        self.world.store = deepcopy(self.kept)
        self.was_restored = True

    @rule(which=st.integers(0, 3))
    def a_node_is_restored_without_its_provider_id(self, which: int) -> None:
        """Restore a Node that had joined. A kubelet creates its Node with the provider id."""
        nodes = self.world.cluster.nodes
        names = sorted(n for n, node in nodes.items() if node["metadata"]["labels"].get(REGISTERED) == "true")
        if names:
            name = names[which % len(names)]
            spec = {part: value for part, value in nodes[name]["spec"].items() if part != "providerID"}
            nodes[name] = {**nodes[name], "spec": spec}

    @rule(minutes=st.integers(1, 5))
    def volumes_stay_attached(self, minutes: int) -> None:
        """Attach volumes to registered Nodes; before registration, no pod could have brought a volume."""
        nodes = self.world.cluster.nodes.items()
        joined = [name for name, node in nodes if node["metadata"]["labels"].get(REGISTERED) == "true"]
        self.world.volumes = {f"pv-{name}": name for name in joined}
        later = self.world.now - builders.NOW + timedelta(minutes=minutes)
        self.world.mishaps.append((later, lambda world: world.volumes.clear()))

    @invariant()
    def no_pod_is_harmed(self) -> None:
        if hasattr(self, "world"):
            assert [*self.world.harm, *self.world.cluster.violations] == []

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.cloud.stock = {}
        if self.was_restored:  # what the ledger lost is found by garbage collection once all systems answer
            self.world.live(LONGEST_AWAY + COLLECTIONS * TICK + YOUNG)
        self.world.settle(patience=timedelta(hours=3))
        # consolidation handles empty instances
        broken = [found for found in self.world.violations() if not found.startswith("idle instance")]
        assert broken == []
        assert self.world.is_settled()


def lives(part: int) -> Any:
    """Return a part of all lives as its own test, since they take minutes and workers share them."""
    machine: Any = type(f"Lives{part}", (Lives,), {})
    case = machine.TestCase
    case.settings = settings(
        max_examples=RUNS // PARTS,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return pytest.mark.exhaustive(case)


TestLives1, TestLives2, TestLives3, TestLives4 = (lives(part) for part in range(PARTS))
