"""Eviction: what disruption budgets allow, and how the API server refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.servers import Call

EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
MERGE = "application/merge-patch+json"


def pods(ns: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{ns}/pods{name and '/'}{name}"


def budgets(ns: str, name: str = "") -> str:
    return f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets{name and '/'}{name}"


def running_pod(call: Call, ns: str, name: str = "web", *, ready: bool = True) -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i:1"}]}
    call("POST", pods(ns), {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    call(
        "PATCH", f"{pods(ns, name)}/status", {"status": {"phase": "Running", "conditions": conditions}}, MERGE
    )


def budget(call: Call, ns: str, *, allowed: int, name: str = "web", seen: int = 1, **spec: Any) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}, **spec}
    call("POST", budgets(ns), {"metadata": {"name": name}, "spec": spec})
    status = {
        "disruptionsAllowed": allowed,
        "desiredHealthy": 1,
        "currentHealthy": 1 + allowed,
        "expectedPods": 2,
    }
    call("PATCH", f"{budgets(ns, name)}/status", {"status": {**status, "observedGeneration": seen}}, MERGE)


def test_an_allowed_eviction_deletes_the_pod_gracefully_and_is_counted(call: Call, ns: str) -> None:
    running_pod(call, ns)
    budget(call, ns, allowed=1)

    assert call("POST", f"{pods(ns)}/web/eviction", EVICTION)[0] == 201

    pod = call("GET", pods(ns, "web"))[1]
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    reasons = {each["type"]: each.get("reason") for each in pod["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"
    status = call("GET", budgets(ns, "web"))[1]["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["web"]


def test_an_eviction_that_violates_the_budget_is_429_and_names_the_budget(call: Call, ns: str) -> None:
    running_pod(call, ns)
    budget(call, ns, allowed=0)

    code, status = call("POST", f"{pods(ns)}/web/eviction", EVICTION)

    assert (code, status["reason"]) == (429, "TooManyRequests")
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = status["details"]["causes"][0]
    assert "retryAfterSeconds" not in status["details"]  # otherwise clients would retry automatically
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget web needs 1 healthy pods and has 1 currently"
    assert "deletionTimestamp" not in call("GET", pods(ns, "web"))[1]["metadata"]


def refused(call: Call, ns: str, **status: Any) -> tuple[int, Any]:
    """Evict a pod under a budget with this status, and return the refusal."""
    running_pod(call, ns)
    budget(call, ns, allowed=0)
    call("PATCH", f"{budgets(ns, 'web')}/status", {"status": status}, MERGE)
    return call("POST", f"{pods(ns)}/web/eviction", EVICTION)


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("SyncFailed", " because it failed sync: no scale"),
        ("InsufficientPods", " (InsufficientPods): no scale"),
        ("", ""),
    ],
)
def test_a_budget_with_enough_healthy_pods_reports_the_message_of_its_condition(
    call: Call, ns: str, reason: str, why: str
) -> None:
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "no scale"}
    moment = {"lastTransitionTime": "2026-11-21T08:00:00Z"}
    conditions = [{**condition, **moment}] if reason else []

    code, status = refused(call, ns, currentHealthy=3, conditions=conditions)

    assert code == 429
    message = status["details"]["causes"][0]["message"]
    assert message == f"The disruption budget web does not allow evicting pods currently{why}"


def test_a_budget_with_too_many_unprocessed_evictions_is_403(call: Call, ns: str) -> None:
    many = {f"pod-{number}": "2026-11-21T08:00:00Z" for number in range(2001)}

    code, status = refused(call, ns, disruptedPods=many)

    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["details"] == {"group": "policy", "kind": "poddisruptionbudget", "name": "web"}
    assert "DisruptedPods map too big" in status["message"]


def test_a_pod_with_another_uid_is_neither_evicted_nor_marked(call: Call, ns: str) -> None:
    running_pod(call, ns)
    before = call("GET", pods(ns, "web"))[1]
    options = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}

    code, status = call("POST", f"{pods(ns)}/web/eviction", {**EVICTION, "deleteOptions": options})

    assert (code, status["reason"]) == (409, "Conflict")
    assert "UID in the precondition" in status["message"]
    assert call("GET", pods(ns, "web"))[1] == before
    version = {"preconditions": {"resourceVersion": before["metadata"]["resourceVersion"]}}
    assert call("POST", f"{pods(ns)}/web/eviction", {**EVICTION, "deleteOptions": version})[0] == 201


def test_a_budget_that_has_not_been_processed_yet_allows_no_eviction(call: Call, ns: str) -> None:
    running_pod(call, ns)
    budget(call, ns, allowed=1, seen=0)

    code, status = call("POST", f"{pods(ns)}/web/eviction", EVICTION)

    assert code == 429
    assert "still being processed" in status["details"]["causes"][0]["message"]
    assert status["details"]["retryAfterSeconds"] == 10


def test_two_budgets_for_one_pod_are_an_error(call: Call, ns: str) -> None:
    running_pod(call, ns)
    budget(call, ns, allowed=1)
    budget(call, ns, allowed=1, name="other")

    code, status = call("POST", f"{pods(ns)}/web/eviction", EVICTION)

    assert code == 500
    assert "more than one PodDisruptionBudget" in status["message"]


def test_a_dry_run_of_an_eviction_changes_nothing(call: Call, ns: str) -> None:
    running_pod(call, ns)
    budget(call, ns, allowed=1)

    assert call("POST", f"{pods(ns)}/web/eviction", EVICTION, dryRun="All")[0] == 201

    assert "deletionTimestamp" not in call("GET", pods(ns, "web"))[1]["metadata"]
    assert call("GET", budgets(ns, "web"))[1]["status"]["disruptionsAllowed"] == 1


def test_unhealthy_pods_may_be_evicted_if_the_policy_allows_it(call: Call, ns: str) -> None:
    running_pod(call, ns, ready=False)
    budget(call, ns, allowed=0, unhealthyPodEvictionPolicy="AlwaysAllow")

    assert call("POST", f"{pods(ns)}/web/eviction", EVICTION)[0] == 201


def test_a_pod_without_a_budget_is_evicted_with_its_own_or_the_requested_grace_period(
    call: Call, ns: str
) -> None:
    running_pod(call, ns)

    call("POST", f"{pods(ns)}/web/eviction", {**EVICTION, "deleteOptions": {"gracePeriodSeconds": 5}})

    assert call("GET", pods(ns, "web"))[1]["metadata"]["deletionGracePeriodSeconds"] == 5


def test_a_missing_pod_cannot_be_evicted(call: Call, ns: str) -> None:
    assert call("POST", f"{pods(ns)}/web/eviction", EVICTION)[0] == 404
