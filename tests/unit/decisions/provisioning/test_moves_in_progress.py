"""How provisioning treats moves in progress: their sources take no pods, their replacements are reserved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.provisioning.plan import Plan
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Move, Reason, Stage
from tests import builders
from tests.builders import NOW

OLD = builders.claim("default-old", phase=Phase.INITIALIZED, initialized_at=NOW - timedelta(hours=1))
MOVED = builders.bind(builders.shape(), "node-old", 3)
NEW = builders.claim("default-new", phase=Phase.REGISTERED, nominated=tuple(pod.key for pod in MOVED))
MOVE = Move("m", Reason.UNDERUTILIZED, (OLD.name,), Stage.PROPOSED, NOW, NOW)
REPLACING = MOVE.at(Stage.REPLACING, NOW, replacements=(NEW.name,))
PENDING = builders.pods(builders.shape(app="late"), 2)


def planned(
    *pods: Pod, move: Move | None = None, claims: tuple[NodeClaim, ...] = (OLD, NEW), **old: Any
) -> Plan:
    nodes = [builders.node("node-old", provider_id=OLD.provider_id, **old)]
    if NEW in claims:
        nodes.append(builders.node("node-new", provider_id=NEW.provider_id))
    ledger = builders.ledger(claims=claims, moves=(move,) if move else ())
    seen = builders.snapshot(pods=(*MOVED, *pods), nodes=tuple(nodes))
    return decide(builders.inputs(snapshot=seen, ledger=ledger))


def test_a_source_of_a_move_takes_no_pods_even_before_its_taint_shows() -> None:
    assert set(planned(*PENDING[:1], claims=(OLD,)).placed or {}) == {"node-old"}
    plan = planned(*PENDING[:1], claims=(OLD,), move=MOVE)
    assert (plan.placed, len(plan.nodes)) == ({}, 1)


def test_no_node_is_bought_for_pods_of_a_source_before_it_ends() -> None:
    assert planned(claims=(OLD,), move=MOVE, taints=[DISRUPTED]).is_idle


def test_no_node_is_bought_for_pods_of_a_node_with_a_stray_taint() -> None:
    assert planned(claims=(OLD,), taints=[DISRUPTED]).is_idle


def test_the_replacement_of_a_move_is_reserved_for_its_pods() -> None:
    plan = planned(*PENDING, move=REPLACING)
    assert {name: len(keys) for name, keys in (plan.placed or {}).items()} == {"node-new": 1}
    assert len(plan.nodes) == 1


def test_the_replacement_of_an_abandoned_move_is_available_to_all_pods() -> None:
    plan = planned(*PENDING, move=REPLACING.at(Stage.ABANDONED, NOW), taints=[DISRUPTED])
    assert {name: len(keys) for name, keys in (plan.placed or {}).items()} == {"node-new": 2}


def test_pods_of_an_ended_source_wait_for_their_replacement() -> None:
    ending = OLD.terminating(Reason.UNDERUTILIZED, "two nodes are cheaper as one", NOW)
    plan = planned(claims=(ending, NEW), move=REPLACING.at(Stage.ENDING, NOW))
    assert plan.waiting == {pod.key: NEW.name for pod in MOVED}
    assert plan.nodes == ()


def test_pods_that_have_moved_already_do_not_count_twice() -> None:
    moved = [replace(pod, node="node-new") for pod in MOVED]
    ledger = builders.ledger(claims=(OLD, NEW), moves=(REPLACING.at(Stage.ENDING, NOW),))
    nodes = (
        builders.node("node-old", provider_id=OLD.provider_id),
        builders.node("node-new", provider_id=NEW.provider_id),
    )
    seen = builders.snapshot(pods=(*moved, PENDING[0]), nodes=nodes)
    plan = decide(builders.inputs(snapshot=seen, ledger=ledger))
    assert set(plan.placed or {}) == {"node-new"}
