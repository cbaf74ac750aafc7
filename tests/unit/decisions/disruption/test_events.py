"""Events about moves and about nodes that stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodesmith.decisions.disruption.proposals import BUDGET, NOT_YET, UNREAD, Blocker, Proposals
from nodesmith.decisions.reporting.events import of_approval, of_staying
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.ledger.moves import Move, Reason, Stage
from tests.builders import NOW, claim, nodepool_manifest

NODES = [claim(f"default-{number}", node_name=f"n{number}") for number in range(2)]
MOVE = Move("m-0", Reason.UNDERUTILIZED, ("default-0",), Stage.ENDING, NOW, NOW, message="saves $0.1 an hour")


def events_of(**blocked: Blocker) -> list[ObjectEvent]:
    """Return the Events for blocked nodes, given the blockers by number."""
    return of_staying(Proposals(blocked={f"default-{n[1:]}": rule for n, rule in blocked.items()}), NODES)


def pools(policy: str) -> dict[str, NodePool]:
    manifest = nodepool_manifest()
    manifest["spec"]["disruption"] = {"consolidateAfter": "0s", "consolidationPolicy": policy}
    return parsed_nodepools((manifest,))


def test_an_exhausted_budget_is_also_reported_on_its_nodepool() -> None:
    why = "the disruption budgets of NodePool default allow no more disruptions for now"
    rule = Blocker(BUDGET, "NodePool/default", why)
    reported = events_of(_0=rule, _1=rule)
    on_pool = {event for event in reported if event.kind == "NodePool"}
    assert {(event.name, event.reason, event.message) for event in on_pool} == {
        ("default", "DisruptionBlocked", why)
    }
    assert {event.name for event in reported} == {"default", "default-0", "n0", "default-1", "n1"}


def test_other_rules_are_not_reported_on_the_nodepool() -> None:
    reported = events_of(_0=Blocker("DoNotDisrupt", "Pod/default/a", "pod a is annotated"))
    assert [(event.kind, event.reason) for event in reported] == [
        ("NodeClaim", "DisruptionBlocked"),
        ("Node", "DisruptionBlocked"),
    ]


@pytest.mark.parametrize("rule", ["Ending", "Moving", "NoNode", "Nominated", "NotInitialized"])
def test_momentary_blockers_are_reported_after_lasting_ones(rule: str) -> None:
    policy = Blocker("Policy", "NodePool/default", "its NodePool consolidates empty nodes only")
    reported = events_of(_0=Blocker(rule, "NodeClaim/default-0", "it passes"), _1=policy)
    assert [(event.name, event.reason) for event in reported] == [
        ("default-1", "Unconsolidatable"),
        ("n1", "Unconsolidatable"),
        ("default-0", "DisruptionBlocked"),
        ("n0", "DisruptionBlocked"),
    ]


def test_nodes_with_recent_pod_events_get_no_event() -> None:
    assert events_of(_0=Blocker(NOT_YET, "NodePool/default", "pods came or went less than 30s ago")) == []


def test_nodes_whose_nodepool_is_about_to_be_read_get_no_event() -> None:
    assert events_of(_0=Blocker(UNREAD, "NodePool/default", "its NodePool 'default' has changed")) == []


def test_a_node_whose_pods_cannot_be_placed_more_cheaply_reports_why() -> None:
    found = Proposals(needed={"default-1": "it cannot be replaced by anything cheaper"})
    assert [(event.name, event.reason, event.message) for event in of_staying(found, NODES)] == [
        ("default-1", "Unconsolidatable", "it cannot be replaced by anything cheaper"),
        ("n1", "Unconsolidatable", "it cannot be replaced by anything cheaper"),
    ]


def test_only_policy_balanced_reports_a_validated_consolidation() -> None:
    reported = of_approval(MOVE, NODES[:1], pools("Balanced"))
    assert [(e.kind, e.name, e.reason) for e in reported] == [
        ("NodeClaim", "default-0", "ConsolidationApproved"),
        ("Node", "n0", "ConsolidationApproved"),
    ]
    assert of_approval(MOVE, NODES[:1], pools("WhenEmptyOrUnderutilized")) == []
    assert of_approval(replace(MOVE, reason=Reason.DRIFTED), NODES, pools("Balanced")) == []
