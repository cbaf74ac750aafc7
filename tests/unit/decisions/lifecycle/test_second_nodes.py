"""Two Nodes with one provider id: the one that has registered is its claim's, the other stands for no machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.budgets import remaining
from nodesmith.decisions.disruption.candidates import to_stamp
from nodesmith.decisions.disruption.moves import (
    SECOND_LOOK,
    LookAgain,
    StepInputs,
    empty,
    leftovers,
    next_step,
)
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import look_again, next_change, propose
from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.decisions.readiness.readiness import nodepool_update
from nodesmith.decisions.scheduling.existing import existing_node_of, existing_nodes
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, DO_NOT_DISRUPT, REGISTERED
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.nodes import Condition
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.reduction.objects import reduce_custom
from nodesmith_cli.planning.ledger import fleet_of
from nodesmith_cli.planning.moves import moves_json
from nodesmith_cli.views.explaining.node import subjects
from tests.builders import NOW, node, shape, snapshot
from tests.builders import pods as waiting
from tests.objects.fleets import Worker, fleet, pool, running, worker

SMALL = shape("500m", "1Gi")
PROTECTED = replace(SMALL, annotations=FrozenMap({DO_NOT_DISRUPT: "true"}))
OWN = worker("own")
MOVE = Move("m", Reason.EMPTY, (OWN.claim.name,), Stage.PROPOSED, NOW, NOW)

pytestmark = pytest.mark.parametrize("name", ["a-second", "z-second"])
"""Whichever of the two a snapshot shows first."""


def beside(inputs: Inputs, name: str, of: Worker = OWN, **fields: Any) -> Inputs:
    """Return the inputs in which there is a second Node of this name."""
    nodes = sorted([*inputs.snapshot.nodes, replace(of.node, name=name, **fields)], key=lambda n: n.name)
    return replace(inputs, snapshot=replace(inputs.snapshot, nodes=tuple(nodes)))


def test_a_node_with_a_protected_pod_is_not_taken_for_empty_because_the_second_is(name: str) -> None:
    found = propose(beside(fleet([OWN], running(PROTECTED, {"own": 1})), name))

    assert found.blocked[OWN.claim.name].rule == "DoNotDisrupt"
    assert found.proposals == ()


def test_no_pod_is_moved_to_the_second(name: str) -> None:
    half_empty = worker("half-empty")
    pods = [
        *running(SMALL, {"half-empty": 1}),
        *running(replace(PROTECTED, requests=OWN.node.allocatable), {"own": 1}),
    ]

    found = propose(beside(fleet([OWN, half_empty], pods), name)).proposals

    assert [proposal.sources for proposal in found] == [(half_empty.claim.name,)]
    assert name not in found[0].destinations.values()


def test_the_second_has_no_room_but_its_pods_count(name: str) -> None:
    seen = beside(fleet([OWN], running(SMALL, {"own": 1, name: 2})), name).snapshot
    found = {each.name: each for each in existing_nodes(seen, [OWN.claim])}

    assert found[name].free == NOTHING
    assert found[name].hosted[SMALL] == 2
    assert found["own"].fits(SMALL, 1)
    assert existing_node_of(OWN.claim, found, seen) is found["own"]


def test_a_node_that_is_not_ready_counts_as_disrupted_though_the_second_is_ready(name: str) -> None:
    sick = Worker(replace(OWN.node, conditions={"Ready": Condition("False")}), OWN.claim)
    inputs = beside(fleet([sick, worker("well")]), name)
    one = parse_nodepool(pool(budgets=[{"nodes": "1"}])).value

    assert one is not None
    assert remaining(one, "Empty", inputs.ledger, (), inputs.snapshot, NOW) == 0


def test_limits_count_the_machine_once(name: str) -> None:
    """Its NodePool may have 8 cpus, of which the Node that registered has 4: a pod that waits has room for the rest."""
    limited = pool(limits={"cpu": "8"})
    pods = [
        *running(replace(SMALL, requests=OWN.node.allocatable), {"own": 1}),
        *waiting(shape("3", "2Gi"), 1),
    ]

    assert len(decide(beside(fleet([OWN], pods, pools=[limited]), name)).nodes) == 1


def test_a_nodepool_shows_the_machine_once(name: str) -> None:
    registered = Worker(
        replace(OWN.node, labels=FrozenMap({**OWN.node.labels, REGISTERED: "true"})), OWN.claim
    )
    seen = beside(fleet([registered]), name, labels=OWN.node.labels, capacity=NOTHING).snapshot

    update = nodepool_update(pool(), parse_nodepool(pool()), {}, None, seen, NOW)

    assert update is not None
    assert (update.status["nodes"], update.status["resources"]["cpu"]) == (1, "4")


def scene(name: str, own: bool, second: bool) -> StepInputs:
    """Set it with each Node tainted or not."""
    taints = {True: (DISRUPTED,), False: ()}
    mine = Worker(replace(OWN.node, taints=taints[own]), OWN.claim)
    inputs = beside(fleet([mine]), name, taints=taints[second])
    return StepInputs.of(inputs.snapshot, inputs.ledger, NOW + SECOND_LOOK)


def test_a_move_has_closed_its_node_when_the_one_that_registered_is_tainted(name: str) -> None:
    assert isinstance(next_step(MOVE, scene(name, own=True, second=False)), LookAgain)
    assert not isinstance(next_step(MOVE, scene(name, own=False, second=True)), LookAgain)


def test_a_taint_is_left_behind_on_the_node_that_registered_alone(name: str) -> None:
    assert leftovers(scene(name, own=True, second=False)) == [OWN.claim]
    assert leftovers(scene(name, own=False, second=True)) == []


def test_an_empty_node_is_still_empty_at_the_second_look_though_pods_are_shown_on_the_second(
    name: str,
) -> None:
    mine = Worker(replace(OWN.node, taints=(DISRUPTED,)), OWN.claim)
    inputs = beside(fleet([mine], running(SMALL, {name: 1}), moves=[MOVE]), name)

    assert isinstance(look_again([MOVE], inputs)["m"], Proposal)


def test_what_a_move_has_bought_is_in_use_where_pods_run_on_the_node_that_registered(name: str) -> None:
    def unused(host: str) -> list[NodeClaim]:
        inputs = beside(fleet([OWN], running(SMALL, {host: 1})), name)
        return empty([OWN.claim], StepInputs.of(inputs.snapshot, inputs.ledger, NOW))

    assert unused("own") == []
    assert unused(name) == [OWN.claim]


def test_when_pods_came_or_went_is_reported_by_the_node_that_registered(name: str) -> None:
    earlier, later = NOW - timedelta(minutes=20), NOW - timedelta(seconds=30)
    mine = Worker(replace(OWN.node, last_pod_event_at=earlier), OWN.claim)
    inputs = beside(fleet([mine], pools=[pool(after="10m")]), name, last_pod_event_at=later)
    shown = {"metadata": {"name": OWN.claim.name}}

    assert to_stamp([OWN.claim], replace(inputs.snapshot, nodeclaims=(shown,)), NOW) == {
        OWN.claim.name: earlier
    }
    assert next_change(inputs) is None


def seen_by_a_user(name: str) -> Snapshot:
    """Return a snapshot whose NodeClaim object does not say which Node it has; the Node does."""
    provider_id = OWN.claim.provider_id
    joined = node("own", provider_id=provider_id, labels={REGISTERED: "true"})
    both = sorted([joined, node(name, provider_id=provider_id)], key=lambda each: each.name)
    return snapshot(nodes=tuple(both), nodeclaims=(reduce_custom(manifest(OWN.claim)),))


def test_both_are_shown_to_users_and_the_claim_with_the_one_that_registered(name: str) -> None:
    found = {each.name: each.claim and each.claim.name for each in subjects(seen_by_a_user(name), NOW)}

    assert found == {"own": OWN.claim.name, name: None}


def test_a_plan_counts_the_machine_once_under_the_name_of_the_node_that_registered(name: str) -> None:
    inputs = fleet_of(beside(fleet([OWN], running(SMALL, {"own": 1})), name), NOW)

    assert [claim.node_name for claim in inputs.ledger.claims] == ["own"]
    assert moves_json(propose(inputs), inputs)["moves"][0]["sources"][0]["node"] == "own"
