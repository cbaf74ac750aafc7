"""A node that nodesmith chose to terminate keeps its pods until the nodes bought for them are ready."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.termination import next_steps
from nodesmith.decisions.termination.waiting import FIRST_LOOK, LONGEST_WAIT
from nodesmith.model.apimachinery.labels import DISRUPTED, EXCLUDE_FROM_LOAD_BALANCERS
from nodesmith.model.commands import DeletePods, Evict, TerminateInstances, TerminationCommand, Wait
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Condition, Node
from tests import builders
from tests.builders import NOW

CLAIM = builders.claim("default-a", phase=Phase.INITIALIZED, instance_id="i-default-a")
WEB = builders.bind(builders.shape(app="web"), "node-a", 2)
MINUTE = timedelta(minutes=1)


def ending(ago: timedelta, cause: str = "Expired", deadline: datetime | None = None) -> NodeClaim:
    return CLAIM.terminating(cause, "its time has come", NOW - ago, deadline)


def bought(phase: Phase, *pods: str) -> NodeClaim:
    return builders.claim("default-b", phase=phase, nominated=pods or (WEB[0].key,))


def node(*, ready: bool = True) -> Node:
    made = builders.node(
        "node-a",
        provider_id=CLAIM.provider_id,
        taints=[DISRUPTED],
        labels={EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"},
        deleting=True,
    )
    return made if ready else replace(made, conditions={"Ready": Condition("Unknown")})


def steps(claim: NodeClaim, *others: NodeClaim, **fields: Any) -> list[TerminationCommand]:
    shown = {"metadata": {"name": claim.name, "deletionTimestamp": "2026-11-21T11:50:00Z"}}
    known: dict[str, Any] = {"nodes": (node(),), "pods": WEB, "nodeclaims": (shown,)}
    snapshot = builders.snapshot(**(known | fields))
    return next_steps([claim, *others], snapshot, {}, [], NOW)


def evicts(commands: list[TerminationCommand]) -> bool:
    return any(isinstance(command, Evict) for command in commands)


@pytest.mark.parametrize("cause", ["Expired", "Unhealthy"])
def test_pods_stay_until_provisioning_has_had_time_to_look(cause: str) -> None:
    assert not evicts(steps(ending(FIRST_LOOK - timedelta(seconds=1), cause)))
    assert evicts(steps(ending(FIRST_LOOK, cause)))


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.LAUNCHED, Phase.REGISTERED, Phase.GIVEN_UP])
def test_pods_stay_while_the_node_bought_for_one_of_them_is_not_ready(phase: Phase) -> None:
    assert not evicts(steps(ending(3 * MINUTE), bought(phase)))


def test_pods_go_once_the_nodes_bought_for_them_are_ready() -> None:
    assert evicts(steps(ending(3 * MINUTE), bought(Phase.INITIALIZED)))


def test_pods_do_not_wait_for_nodes_bought_for_other_pods() -> None:
    assert evicts(steps(ending(3 * MINUTE), bought(Phase.LAUNCHED, "default/others-0001")))


def test_after_ten_minutes_pods_no_longer_wait() -> None:
    assert not evicts(steps(ending(LONGEST_WAIT - timedelta(seconds=1)), bought(Phase.LAUNCHED)))
    assert evicts(steps(ending(LONGEST_WAIT), bought(Phase.LAUNCHED)))


def test_a_node_that_was_deleted_or_is_not_ready_is_drained_at_once() -> None:
    assert evicts(steps(ending(10 * timedelta(seconds=1), "Deleted"), bought(Phase.LAUNCHED)))
    dead = steps(
        ending(10 * timedelta(seconds=1), "Unhealthy"), bought(Phase.LAUNCHED), nodes=(node(ready=False),)
    )
    assert evicts(dead)


def test_a_node_without_pods_that_must_go_waits_for_nothing() -> None:
    daemons = builders.bind(builders.daemon(), "node-a", 1)
    commands = steps(ending(10 * timedelta(seconds=1)), bought(Phase.LAUNCHED), pods=daemons)
    assert evicts(commands)
    empty = steps(ending(10 * timedelta(seconds=1)), bought(Phase.LAUNCHED), pods=())
    assert [type(command) for command in empty] == [TerminateInstances]


def test_a_deadline_is_kept_whether_or_not_the_replacement_is_ready() -> None:
    late = ending(MINUTE, deadline=NOW + timedelta(seconds=5))
    commands = steps(late, bought(Phase.LAUNCHED))
    (deleted,) = [command for command in commands if isinstance(command, DeletePods)]
    assert [pod.pod for pod in deleted.pods] == [pod.key for pod in WEB]


def test_the_claim_shows_what_it_waits_for() -> None:
    (wait,) = [c for c in steps(ending(3 * MINUTE), bought(Phase.LAUNCHED)) if isinstance(c, Wait)]
    assert wait.claim.reason == "AwaitingReplacement"
    assert wait.claim.message == "its pods stay until the nodes bought for them are ready"


def test_pods_go_at_once_if_the_replacements_of_their_node_are_ready() -> None:
    moved = replace(ending(timedelta(0), "Drifted"), replaced_by=("default-b",))
    assert evicts(steps(moved, bought(Phase.INITIALIZED)))
    assert not evicts(steps(moved, bought(Phase.TERMINATING))), "the replacement is ending itself"
    assert not evicts(steps(moved)), "the replacement is gone"


def test_pods_go_at_once_when_a_node_bought_since_the_termination_began_is_ready() -> None:
    since = replace(bought(Phase.INITIALIZED), created_at=NOW - timedelta(seconds=2))
    assert evicts(steps(ending(timedelta(seconds=4)), since))


def test_pods_go_at_once_when_an_instance_started_since_the_termination_began_is_ready() -> None:
    """Warm capacity is bought long before, and started for the pods."""
    warm = replace(bought(Phase.INITIALIZED), created_at=NOW - timedelta(hours=1))
    started = replace(warm, started_at=NOW - timedelta(seconds=2))
    assert evicts(steps(ending(timedelta(seconds=4)), started))
    assert not evicts(steps(ending(timedelta(seconds=4)), replace(warm, started_at=NOW - MINUTE)))


def test_a_node_bought_for_a_pod_before_it_came_to_another_node_is_not_a_replacement() -> None:
    before = replace(bought(Phase.INITIALIZED), created_at=NOW - timedelta(seconds=60))
    assert not evicts(steps(ending(timedelta(seconds=4)), before))


def test_pods_stay_while_one_of_several_nodes_bought_for_them_is_not_ready() -> None:
    moved = replace(ending(timedelta(0), "Drifted"), replaced_by=("default-b",))
    more = replace(bought(Phase.LAUNCHED), name="default-c")
    assert not evicts(steps(moved, bought(Phase.INITIALIZED), more))
