"""Provisioning when one namespace has more distinct pods than fit into one decision."""

from __future__ import annotations

import json

import pytest

from nodesmith.keys import unplaced_key
from nodesmith.model.functions import Concern
from tests.builders import CLUSTER
from tests.smallworld.world import Manifest, World, pod_manifest

RULES = [{"topologyKey": "kubernetes.io/hostname"}] * 40
"""Anti-affinity without a selector: it excludes no pod, and costs 121 steps per shape."""
DISTINCT = frozenset(f"default/own-{number:02d}" for number in range(40))
SHOP = frozenset({"shop/a", "shop/b", "shop/c"})


def distinct_pods(cpu: str, few_cpu: str = "1") -> World:
    """Return a world with distinct pods in one namespace that cost 4,840 steps, and three pods in another."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": RULES}}
    distinct = {
        name: pod_manifest(name, cpu, f"{100 + number}Mi", affinity=apart)
        for number, name in enumerate(sorted(key.partition("/")[2] for key in DISTINCT))
    }
    few = {name: in_namespace("shop", pod_manifest(name, few_cpu)) for name in "abc"}
    return World({**distinct, **few})


def in_namespace(namespace: str, pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def nominated(world: World) -> set[str]:
    return {pod for claim in world.store.claims.values() for pod in claim.nominated}


def provision(world: World) -> None:
    world.observe()
    world.run(Concern.PROVISIONING)


def test_all_pods_are_served_in_one_run_that_decides_again_for_those_left_over() -> None:
    world = distinct_pods("100m")
    provision(world)
    assert nominated(world) > SHOP
    assert len(nominated(world) & DISTINCT) == 34, "the others fit on the nodes bought for these"
    reported = json.loads(world.blobs.objects[unplaced_key(CLUSTER)])
    assert reported["unplaced"] == [], "no pod waits for another decision"


@pytest.mark.parametrize("runs", [1, 3])
def test_pods_that_fit_no_node_are_each_tried_and_then_left_to_the_next_run(runs: int) -> None:
    world = distinct_pods("10000", "10000")
    seen: set[str] = set()
    for _ in range(runs):
        provision(world)
        reported = json.loads(world.blobs.objects[unplaced_key(CLUSTER)])
        (waiting,) = [
            group for group in reported["unplaced"] if group["reason"].startswith("waits for its turn")
        ]
        assert set(reported["tried"]) == {*DISTINCT, *SHOP}, "no pod was left out of both decisions"
        seen |= {*DISTINCT} - set(waiting["pods"])
        assert set(waiting["pods"]) < DISTINCT
    assert not [m for m in world.hints.waiting if m.concern is Concern.PROVISIONING]
    assert runs == 1 or seen == DISTINCT


def test_once_other_namespaces_are_served_a_namespace_gets_all_steps() -> None:
    world = distinct_pods("10000")
    provision(world)
    reported = json.loads(world.blobs.objects[unplaced_key(CLUSTER)])
    assert nominated(world) == SHOP
    assert {pod for group in reported["unplaced"] for pod in group["pods"]} == DISTINCT
    assert not [group for group in reported["unplaced"] if "turn" in group["reason"]]
