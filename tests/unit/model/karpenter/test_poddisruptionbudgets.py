"""PodDisruptionBudgets: the pods that they select, and budgets that never allow an eviction."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from tests.builders import shape


def budget(expected: int = 3, *, selector: Any = None, **spec: Any) -> PodDisruptionBudget:
    """Return a budget for the pods of `web` whose status is current."""
    chosen = {"matchLabels": {"app": "web"}} if selector is None else selector
    counts = {"expectedPods": expected, "currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1}
    return parse_budget(
        {
            "metadata": {"namespace": "default", "name": "web", "generation": 2},
            "spec": {"selector": chosen, **spec},
            "status": {"observedGeneration": 2, **counts},
        }
    )


def test_a_budget_has_the_counts_of_its_status() -> None:
    found = budget(minAvailable=2)
    assert (found.key, found.namespace) == ("default/web", "default")
    assert (found.disruptions_allowed, found.current_healthy) == (1, 3)
    assert (found.desired_healthy, found.expected_pods) == (2, 3)
    assert (found.min_available, found.max_unavailable) == ("2", "")


def test_a_budget_selects_matching_pods_of_its_namespace() -> None:
    found = budget(maxUnavailable=1)
    assert found.selects(shape())
    assert not found.selects(shape(app="other"))
    assert not found.selects(shape(namespace="elsewhere"))


def test_an_empty_selector_selects_the_namespace_and_none_selects_nothing() -> None:
    everything = budget(selector={})
    assert everything.selects(shape(app="other"))
    assert not everything.selects(shape(namespace="elsewhere"))
    nothing = parse_budget({"metadata": {"namespace": "default", "name": "web"}, "spec": {}})
    assert not nothing.selects(shape())


def test_a_budget_with_match_expressions_selects_matching_pods() -> None:
    found = budget(selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]})
    assert not found.selects(shape())
    assert found.selects(shape(app="other"))


@pytest.mark.parametrize(
    "spec",
    [
        {"maxUnavailable": 0},
        {"maxUnavailable": "0%"},
        {"minAvailable": "100%"},
        {"minAvailable": 3},
        {"minAvailable": 4},
        {"minAvailable": "90%"},  # of three that is three, rounded up
        {},  # kube-controller-manager then expects no pods, so none may go
    ],
)
def test_a_budget_that_keeps_all_expected_pods_never_allows_an_eviction(spec: dict[str, Any]) -> None:
    assert budget(**spec).never_allows


@pytest.mark.parametrize(
    "spec", [{"maxUnavailable": 1}, {"maxUnavailable": "1%"}, {"minAvailable": 2}, {"minAvailable": "60%"}]
)
def test_a_budget_that_leaves_a_pod_to_spare_may_allow_evictions(spec: dict[str, Any]) -> None:
    assert not budget(**spec).never_allows


def test_a_percentage_refers_to_the_expected_pods() -> None:
    assert budget(expected=9, minAvailable="90%").never_allows
    assert not budget(expected=10, minAvailable="90%").never_allows


def test_a_budget_without_pods_does_not_count_as_never_allowing_evictions() -> None:
    assert not budget(expected=0, minAvailable=1).never_allows


def test_a_status_of_an_older_spec_allows_nothing() -> None:
    manifest = {
        "metadata": {"namespace": "default", "name": "web", "generation": 3},
        "spec": {"selector": {}, "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        "status": {"observedGeneration": 2, "disruptionsAllowed": 1, "expectedPods": 3},
    }
    found = parse_budget(manifest)
    assert found.disruptions_allowed == 0
    assert found.always_allow_unhealthy


@pytest.mark.parametrize("value", ["half", "-1", -1, "50 %", 1.5])
def test_an_invalid_amount_is_reported(value: object) -> None:
    with pytest.raises(ValueError, match=r"spec.minAvailable is .*must be a number of pods or a percentage"):
        budget(minAvailable=value)
