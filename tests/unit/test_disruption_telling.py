"""What is said of moves and of nodes that stay, on the objects where people look."""

from __future__ import annotations

from dataclasses import replace

from nodesmith.decisions.disruption.proposals import BUDGET, Blocker
from nodesmith.decisions.disruption.telling import of_approval, of_blocked
from nodesmith.model.moves import Move, Reason, Stage
from tests.builders import NOW, claim

NODES = [claim(f"default-{number}", node_name=f"n{number}") for number in range(2)]
MOVE = Move("m-0", Reason.UNDERUTILIZED, ("default-0",), Stage.ENDING, NOW, NOW, why="saves $0.1 an hour")


def test_a_budget_that_lets_no_node_go_is_told_of_on_its_nodepool_too() -> None:
    why = "the disruption budgets of NodePool default allow no more nodes to go for now"
    told = of_blocked({each.name: Blocker(BUDGET, "NodePool/default", why) for each in NODES}, NODES)
    on_pool = {event for event in told if event.kind == "NodePool"}
    assert {(event.name, event.reason, event.message) for event in on_pool} == {
        ("default", "DisruptionBlocked", why)
    }
    assert {event.name for event in told} == {"default", "default-0", "n0", "default-1", "n1"}


def test_another_rule_says_nothing_of_the_nodepool() -> None:
    told = of_blocked({"default-0": Blocker("DoNotDisrupt", "Pod/default/a", "pod a is annotated")}, NODES)
    assert [(event.kind, event.reason) for event in told] == [
        ("NodeClaim", "DisruptionBlocked"),
        ("Node", "DisruptionBlocked"),
    ]


def test_a_consolidation_that_stands_is_told_and_drift_is_no_consolidation() -> None:
    told = of_approval(MOVE, NODES[:1])
    assert [(e.kind, e.name, e.reason) for e in told] == [
        ("NodeClaim", "default-0", "ConsolidationApproved"),
        ("Node", "n0", "ConsolidationApproved"),
    ]
    assert of_approval(replace(MOVE, reason=Reason.DRIFTED), NODES) == []
