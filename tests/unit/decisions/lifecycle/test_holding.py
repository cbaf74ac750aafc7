"""Nodes held for their DaemonSets: cordoned at registration, and uncordoned once the DaemonSets' pods are bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.writes import patched_node
from nodesmith.decisions.lifecycle import initialization_patch, next_steps, registration_patch
from nodesmith.decisions.scheduling.existing import existing_nodes
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.commands import Command, Initialize, Nominate, Open, Register, Wait
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, NodePatch
from nodesmith.model.kubernetes.pods import Pod, Shape
from tests import builders
from tests.builders import NOW

WEB = builders.pods(builders.shape("1"), 1)
LAUNCHED = builders.claim(nominated=(WEB[0].key,))
HELD = replace(
    LAUNCHED,
    phase=Phase.REGISTERED,
    node_name="node-1",
    registered_at=NOW - timedelta(seconds=30),
    held_until=NOW + timedelta(minutes=4, seconds=30),
)
NODE = builders.node("node-1", provider_id=LAUNCHED.provider_id, labels=builders.JOINED)
CORDONED = replace(NODE, taints=(REGISTERED_UNSCHEDULABLE,))
AGENT, LOGS = builders.daemon("agent"), builders.daemon("logs")


def holding(value: str = "true") -> dict[str, Any]:
    pool = builders.nodepool_manifest()
    pool["metadata"]["annotations"] = {"nodesmith.dev/hold-until-daemonsets": value}
    return pool


def steps(
    claim: NodeClaim,
    *running: Pod,
    daemonsets: Sequence[Shape] = (AGENT, LOGS),
    now: datetime = NOW,
    node: Any = CORDONED,
    pool: dict[str, Any] | None = None,
) -> list[Command]:
    seen = builders.snapshot(
        pods=[*WEB, *running],
        nodes=(node,),
        daemonsets=tuple(daemonsets),
        nodeclaims=(manifest(claim),),
        nodepools=(pool or holding(),),
    )
    return next_steps([claim], seen, {}, (), now)


def test_a_held_node_is_cordoned_when_it_is_opened_and_its_pods_are_not_nominated() -> None:
    opened, register = steps(LAUNCHED, node=NODE)
    assert isinstance(opened, Open)
    assert isinstance(register, Register)
    assert opened.claim.held_until == register.claim.held_until == NOW + timedelta(minutes=5)
    assert registration_patch(opened.claim, replace(NODE, labels={})).unschedulable is True
    assert registration_patch(opened.claim, NODE).unschedulable is None, (
        "it was cordoned as it was registered"
    )


def test_without_the_annotation_nodes_are_not_cordoned() -> None:
    nominate, opened, register = steps(LAUNCHED, node=NODE, pool=builders.nodepool_manifest())
    assert isinstance(nominate, Nominate)
    assert isinstance(opened, Open)
    assert isinstance(register, Register)
    assert register.claim.held_until is None
    assert registration_patch(opened.claim, NODE).unschedulable is None
    assert initialization_patch(register.claim).unschedulable is None


def test_a_held_node_waits_for_each_daemonset_and_names_missing_ones() -> None:
    (wait,) = steps(HELD, *builders.bind(LOGS, "node-1"))
    assert isinstance(wait, Wait)
    assert wait.claim.reason == "DaemonSetPodsPending"
    assert wait.claim.message == "the Node is held for the pods of the DaemonSets kube-system/agent"


def test_a_long_list_is_shortened() -> None:
    (wait,) = steps(HELD, daemonsets=[builders.daemon(f"d{n}") for n in range(8)])
    assert wait.claim.message.endswith("kube-system/d3, kube-system/d4 and 3 more")


def test_once_all_are_bound_pods_are_nominated_and_the_node_is_uncordoned() -> None:
    nominate, initialize = steps(HELD, *builders.bind(LOGS, "node-1"), *builders.bind(AGENT, "node-1"))
    assert isinstance(nominate, Nominate)
    assert isinstance(initialize, Initialize)
    patch = initialization_patch(initialize.claim)
    assert patch.unschedulable is False
    assert patch.remove_taints == (REGISTERED_UNSCHEDULABLE,)


def test_pods_of_daemonsets_on_other_nodes_do_not_count() -> None:
    (wait,) = steps(HELD, *builders.bind(LOGS, "node-2"), *builders.bind(AGENT, "node-1"))
    assert "kube-system/logs" in wait.claim.message


def test_a_held_node_does_not_wait_for_a_daemonset_that_does_not_run_on_it() -> None:
    elsewhere = builders.daemon("gpu", nodeSelector={"gpu": "true"})
    dedicated = replace(CORDONED, taints=(*CORDONED.taints, Taint("team", "NoSchedule", "a")))
    assert isinstance(steps(HELD, daemonsets=[elsewhere])[-1], Initialize)
    assert isinstance(steps(HELD, daemonsets=[AGENT], node=dedicated)[-1], Initialize)


def test_without_daemonsets_a_node_is_uncordoned_as_soon_as_it_is_ready() -> None:
    assert isinstance(steps(HELD, daemonsets=())[-1], Initialize)


def test_after_its_timeout_a_node_is_uncordoned_even_if_daemonsets_are_missing() -> None:
    assert isinstance(steps(HELD, now=NOW + timedelta(minutes=4))[-1], Wait)
    assert isinstance(steps(HELD, now=NOW + timedelta(minutes=5))[-1], Initialize)


def test_other_reasons_for_waiting_are_named_first() -> None:
    (wait,) = steps(HELD, node=replace(CORDONED, conditions={}))
    assert wait.claim.reason == "NodeNotReady"


def test_a_held_node_has_capacity_for_pods_after_it_is_uncordoned() -> None:
    seen = builders.snapshot(nodes=(CORDONED,), daemonsets=(AGENT,))
    (existing,) = existing_nodes(seen, [HELD])
    assert existing.admits(WEB[0].shape)
    by_hand = existing_nodes(seen, [replace(HELD, held_until=None)])[0]
    assert not by_hand.admits(WEB[0].shape), "a node that a user has cordoned has none"


@pytest.mark.parametrize(
    ("value", "seconds"), [("true", 300), ("false", 0), ("90s", 90), ("1h", 3600), ("10m", 600)]
)
def test_the_annotation_enables_holding_and_sets_its_timeout(value: str, seconds: int) -> None:
    pool = parse_nodepool(holding(value))
    assert pool.value is not None
    assert (pool.value.options.daemonset_hold, pool.problems) == (timedelta(seconds=seconds), ())


@pytest.mark.parametrize("value", ["", "yes", "True", "0s", "2h", "-1m"])
def test_an_invalid_annotation_is_reported_and_no_node_is_held(value: str) -> None:
    pool = parse_nodepool(holding(value))
    assert pool.value is not None
    assert pool.value.options.daemonset_hold == timedelta()
    assert "must be true, false, or the longest time a node may be held" in pool.problems[0].remedy


def test_cordoning_and_uncordoning_a_node_changes_nothing_else() -> None:
    node: dict[str, Any] = {
        "metadata": {"name": "n"},
        "spec": {"providerID": "p", "taints": [{"key": "a", "effect": "NoSchedule"}]},
    }
    cordoned = patched_node(node, NodePatch({}, unschedulable=True))
    assert cordoned is not None
    assert cordoned["spec"] == {**node["spec"], "unschedulable": True}
    assert patched_node(cordoned, NodePatch({}))["spec"] == cordoned["spec"]  # type: ignore[index]
    assert patched_node(cordoned, NodePatch({}, unschedulable=False))["spec"] == node["spec"]  # type: ignore[index]
