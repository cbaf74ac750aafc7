"""A held node: the pods of its DaemonSets are bound before all others, despite crashes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import INITIALIZED
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.scenarios import crashes
from tests.scenarios.crashes import Story
from tests.smallworld.world import World

AGENT: dict[str, Any] = {
    "metadata": {"name": "agent", "namespace": "kube-system"},
    "spec": {
        "template": {
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]
            }
        }
    },
}


def holding() -> dict[str, Any]:
    pool = builders.nodepool_manifest()
    pool["metadata"]["annotations"] = {"nodesmith.dev/hold-until-daemonsets": "true"}
    return pool


def daemon_pod(node: str, world: World) -> dict[str, Any]:
    template: dict[str, Any] = AGENT["spec"]["template"]["spec"]
    return {
        "metadata": {
            "name": f"agent-{node}",
            "namespace": "kube-system",
            "uid": f"uid-agent-{node}",
            "creationTimestamp": format_time(world.now),
            "ownerReferences": [{"kind": "DaemonSet", "name": "agent", "controller": True}],
        },
        "spec": {**template, "nodeName": node},
        "status": {},
    }


def bound_after(delay: timedelta) -> Any:
    """Bind the DaemonSet's pods this long after their node was opened to them."""

    def prepare(world: World) -> None:
        world.daemonsets = [AGENT]
        opened: dict[str, Any] = {}

        def bind(w: World) -> None:
            for name, node in w.cluster.nodes.items():
                keys = {taint["key"] for taint in node["spec"].get("taints") or ()}
                if (
                    "karpenter.sh/unregistered" not in keys
                    and w.now - opened.setdefault(name, w.now) >= delay
                ):
                    w.pods.setdefault(f"agent-{name}", daemon_pod(name, w))
            if delay and len(opened) and f"agent-{next(iter(opened))}" in w.pods:
                return
            w.mishaps.append((w.now - builders.NOW + timedelta(seconds=1), bind))

        bind(world)

    return prepare


HELD = Story("a node held for its DaemonSets", nodepool=holding(), prepare=bound_after(timedelta(seconds=40)))


def test_pods_are_bound_only_after_those_of_the_daemonsets() -> None:
    world = HELD.begun()
    cordoned = False
    while world.waiting():
        world.settle(patience=timedelta(seconds=1))
        for node in world.cluster.nodes.values():
            if node["spec"].get("unschedulable"):
                cordoned = True
                assert len(world.waiting()) == 2
                assert INITIALIZED not in node["metadata"]["labels"]
    assert cordoned
    world.settle()
    assert world.violations() == []
    (node,) = world.cluster.nodes.values()
    assert "unschedulable" not in node["spec"]
    assert len(world.cloud.instances) == 1, "free capacity on a held node is used"


def test_a_daemonset_that_never_starts_holds_a_node_for_five_minutes() -> None:
    world = HELD.begun()
    world.mishaps.clear()
    world.settle(patience=timedelta(minutes=5))
    assert len(world.waiting()) == 2
    (claim,) = world.store.claims.values()
    assert (claim.phase, claim.reason) == (Phase.REGISTERED, "DaemonSetPodsPending")
    world.settle(patience=timedelta(minutes=3))
    assert world.violations() == []


@pytest.mark.exhaustive
def test_a_crash_at_any_call_neither_leaves_a_node_cordoned_nor_admits_pods_early() -> None:
    reported = list(crashes.crashes(HELD, crashes.SAMPLE))
    assert len(reported) > crashes.SAMPLE + 1
    assert {tuple(fatal): found for fatal, found in reported if found} == {}


@pytest.mark.parametrize("seconds", [0, 90])
def test_holding_a_node_succeeds_whenever_its_daemonsets_start(seconds: int) -> None:
    story = Story("held", nodepool=holding(), prepare=bound_after(timedelta(seconds=seconds)))
    world = story.lived()
    assert world.violations() == []
    assert not any(node["spec"].get("unschedulable") for node in world.cluster.nodes.values())
