"""What would delay a node's termination, known before it begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodesmith.decisions.termination.waiting import Waiting, obstacles, why_not_gone
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from nodesmith.model.kubernetes.pods import Pod, Shape
from tests.builders import NOW, bind, claim, daemon, node, shape, snapshot


def budget(app: str = "web", healthy: int = 2, expected: int = 2, **spec: Any) -> PodDisruptionBudget:
    counts = {"currentHealthy": healthy, "expectedPods": expected, "desiredHealthy": 2}
    return parse_budget(
        {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}, **(spec or {"minAvailable": 2})},
            "status": {**counts, "disruptionsAllowed": max(0, healthy - 2)},
        }
    )


def protected(of: Shape, value: str) -> Shape:
    return replace(of, annotations={"karpenter.sh/do-not-disrupt": value})


def found(pods: list[Pod], *budgets: PodDisruptionBudget) -> list[Waiting]:
    return obstacles("n1", snapshot(pods=pods, nodes=(node("n1"),), budgets=budgets), NOW)


def test_a_node_whose_pods_may_go_has_no_obstacle() -> None:
    assert found(bind(shape(), "n1", 3)) == []
    assert found(bind(shape(app="web"), "n1", 3), budget(healthy=3, expected=3, maxUnavailable=1)) == []


def test_a_budget_that_allows_nothing_for_now_is_not_an_obstacle() -> None:
    assert found(bind(shape(app="web"), "n1"), budget(healthy=2, expected=3)) == []


def test_a_budget_that_never_allows_an_eviction_is_named_with_its_figures() -> None:
    (waiting,) = found(bind(shape(app="web"), "n1", 2), budget())
    assert (waiting.reason, waiting.on) == ("PodDisruptionBudget", "PodDisruptionBudget/default/web")
    assert "2 of 2 healthy, 2 needed (minAvailable 2), 0 may go; it never allows any" in waiting.message
    assert waiting.fix == "raise its maxUnavailable, or lower its minAvailable"


def test_two_budgets_for_one_pod_and_a_pod_that_asks_not_to_be_disrupted_are_obstacles() -> None:
    two = bind(shape(app="web"), "n1")
    stays = bind(protected(shape(app="db"), "true"), "n1")
    later = bind(protected(shape(app="job"), "4h"), "n1")
    both = (budget(healthy=9, expected=9), replace(budget(healthy=9, expected=9), key="default/other"))
    assert [waiting.reason for waiting in found([*two, *stays, *later], *both)] == [
        "DoNotDisrupt",
        "MultiplePodDisruptionBudgets",
    ]


def test_only_pods_that_would_have_to_go_from_this_node_count() -> None:
    elsewhere = bind(shape(app="web"), "n2")
    ending = bind(shape(app="web"), "n1", deleting=True)
    stays = bind(daemon("web", tolerations=[{"operator": "Exists"}]), "n1")
    assert found([*elsewhere, *ending, *stays], budget()) == []


def test_the_messages_are_those_that_are_published_once_the_termination_has_begun() -> None:
    pods = bind(shape(app="web"), "n1", 2)
    (foreseen,) = found(pods, budget())
    ending = claim(phase=Phase.TERMINATING, provider_id="aws:///a/i-1", terminating_at=NOW)
    seen = snapshot(pods=pods, nodes=(node("n1", provider_id="aws:///a/i-1"),), budgets=(budget(),))
    assert why_not_gone(ending, seen, NOW) == foreseen
