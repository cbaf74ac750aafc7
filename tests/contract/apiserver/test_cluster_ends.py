"""The contract of the Cluster port for terminating nodes and pods, for the fake and the adapter."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.kubernetes.evictions import (
    BUDGET,
    SEVERAL_BUDGETS,
    Evicted,
    Eviction,
    EvictionRefused,
    Gone,
    PodOnNode,
)
from nodesmith.model.kubernetes.nodes import NodePatch
from tests.contract.worlds import World, a_claim, a_node, a_pod, there

MINE, OTHER = "aws:///us-east-1a/i-1", "aws:///us-east-1a/i-2"
FOREIGN = "example.com/backup"


def held_node(name: str = "n1", provider_id: str = MINE, *finalizers: str) -> dict[str, Any]:
    node = a_node(name)
    metadata = {**node["metadata"], "finalizers": list(finalizers or (TERMINATION_FINALIZER,))}
    return {**node, "metadata": metadata, "spec": {"providerID": provider_id}}


def is_deleting(world: World, kind: str, name: str) -> bool:
    return "deletionTimestamp" in there(world, kind, name)["metadata"]


def finalizers(world: World, kind: str, name: str) -> list[str]:
    return list(there(world, kind, name)["metadata"].get("finalizers") or ())


# nodes and claims


@pytest.mark.parametrize("provider_id", [MINE, ""], ids=["its own", "any"])
def test_a_deleted_node_stays_until_it_is_released(world: World, provider_id: str) -> None:
    world.put("Node", held_node())
    world.cluster.request_deletion("Node", "n1", provider_id)
    assert is_deleting(world, "Node", "n1")
    before = there(world, "Node", "n1")
    world.cluster.request_deletion("Node", "n1", provider_id)
    assert there(world, "Node", "n1") == before


def test_a_deleted_node_whose_finalizer_was_removed_also_stays(world: World) -> None:
    world.put("Node", held_node("n1", MINE, FOREIGN))
    world.put("Node", {**a_node("n2"), "spec": {"providerID": OTHER}})
    world.cluster.request_deletion("Node", "n1", MINE)
    world.cluster.request_deletion("Node", "n2", OTHER)
    assert is_deleting(world, "Node", "n1")
    assert finalizers(world, "Node", "n1") == [FOREIGN, TERMINATION_FINALIZER]
    assert finalizers(world, "Node", "n2") == [TERMINATION_FINALIZER]


def test_a_deleted_claim_stays_until_it_is_released(world: World) -> None:
    world.cluster.apply_nodeclaim(a_claim())
    world.cluster.request_deletion("NodeClaim", "default-abc", MINE)
    assert is_deleting(world, "NodeClaim", "default-abc")
    world.cluster.apply_nodeclaim(a_claim(providerID=MINE))
    assert there(world, "NodeClaim", "default-abc")["status"]["providerID"] == MINE
    world.cluster.delete_nodeclaim("default-abc")
    assert world.find("NodeClaim", "default-abc") is None


def test_the_conditions_of_a_claims_end_are_of_its_newest_generation(world: World) -> None:
    stages = {"type": "Launched", "status": "True", "observedGeneration": 1}
    drained = {"type": "Drained", "status": "Unknown", "reason": "Draining", "observedGeneration": 1}
    world.cluster.apply_nodeclaim(a_claim(conditions=[stages]))
    world.cluster.request_deletion("NodeClaim", "default-abc", MINE)
    world.cluster.apply_nodeclaim(a_claim(conditions=[stages, drained]))
    ending = there(world, "NodeClaim", "default-abc")
    generation = {c["type"]: c["observedGeneration"] for c in ending["status"]["conditions"]}
    assert ending["metadata"]["generation"] == 2
    assert generation == {"Launched": 1, "Drained": 2}


def test_the_reason_of_a_disruption_is_of_the_newest_generation_also_if_it_was_set_before(
    world: World,
) -> None:
    reason = {"type": "DisruptionReason", "status": "True", "reason": "Expired", "observedGeneration": 1}

    def shown() -> dict[str, Any]:
        (condition,) = there(world, "NodeClaim", "default-abc")["status"]["conditions"]
        return {key: condition[key] for key in ("observedGeneration", "lastTransitionTime")}

    world.cluster.apply_nodeclaim(a_claim(conditions=[reason]))
    before = shown()
    world.cluster.request_deletion("NodeClaim", "default-abc", MINE)
    world.clock.time += timedelta(minutes=1)
    world.cluster.apply_nodeclaim(a_claim(conditions=[reason]))
    assert shown() == {**before, "observedGeneration": 2}


def test_deleting_a_missing_object_is_ignored(world: World) -> None:
    world.cluster.request_deletion("Node", "n1", MINE)
    world.cluster.request_deletion("NodeClaim", "default-abc")
    world.cluster.release_node("n1", MINE)
    assert world.find("Node", "n1") is None


def test_a_node_of_another_instance_is_neither_deleted_nor_released(world: World) -> None:
    world.put("Node", held_node("n1", OTHER))
    world.put("Node", {**held_node("n2"), "spec": {}})
    for name in ("n1", "n2"):
        before = there(world, "Node", name)
        world.cluster.request_deletion("Node", name, MINE)
        assert world.cluster.release_node(name, MINE) == ()
        assert there(world, "Node", name) == before


def test_a_node_without_a_provider_id_is_released_only_as_one_without_it(world: World) -> None:
    world.put("Node", held_node("n1"))
    world.put("Node", {**held_node("n2"), "spec": {}})
    for name in ("n1", "n2"):
        world.cluster.release_node(name, "")
    assert not is_deleting(world, "Node", "n1")
    assert world.find("Node", "n2") is None


@pytest.mark.parametrize("deleting", [True, False])
def test_a_released_node_is_deleted(world: World, deleting: bool) -> None:
    world.put("Node", held_node())
    if deleting:
        world.cluster.request_deletion("Node", "n1", MINE)
    assert world.cluster.release_node("n1", MINE) == ()
    assert world.find("Node", "n1") is None
    assert world.cluster.release_node("n1", MINE) == ()


def test_a_released_node_with_a_foreign_finalizer_stays_without_ours(world: World) -> None:
    world.put("Node", held_node("n1", MINE, TERMINATION_FINALIZER, FOREIGN))
    for _ in range(2):
        assert world.cluster.release_node("n1", MINE) == (FOREIGN,)
    assert is_deleting(world, "Node", "n1")
    assert finalizers(world, "Node", "n1") == [FOREIGN]


def test_registering_a_node_adds_our_finalizer_once(world: World) -> None:
    world.put("Node", held_node("n1", MINE, FOREIGN))
    for _ in range(2):
        assert world.cluster.register_node("n1", NodePatch({}, add_finalizers=(TERMINATION_FINALIZER,)))
    assert finalizers(world, "Node", "n1") == [FOREIGN, TERMINATION_FINALIZER]


def test_a_node_that_is_being_deleted_gets_all_changes_but_no_finalizer(world: World) -> None:
    world.put("Node", held_node("n1", MINE, FOREIGN))
    world.cluster.release_node("n1", MINE)
    assert world.cluster.register_node("n1", NodePatch({"a": "b"}, add_finalizers=(TERMINATION_FINALIZER,)))
    assert finalizers(world, "Node", "n1") == [FOREIGN]
    assert there(world, "Node", "n1")["metadata"]["labels"]["a"] == "b"


def test_labels_are_removed_from_a_node(world: World) -> None:
    world.put("Node", a_node())
    world.cluster.register_node("n1", NodePatch({"a": "b", "c": "d"}))
    world.cluster.register_node("n1", NodePatch({"e": "f"}, remove_labels=("a", "never-there")))
    assert there(world, "Node", "n1")["metadata"]["labels"] == {
        "kubernetes.io/os": "linux",
        "c": "d",
        "e": "f",
    }


# pods


def running(world: World, name: str, *, ready: bool = True, phase: str = "Running", **spec: Any) -> PodOnNode:
    """Create a pod with app=web on node n1, and return its address."""
    pod = a_pod(name, nodeName="n1", **spec)
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    world.put("Pod", {**pod, "metadata": {**pod["metadata"], "labels": {"app": "web"}}, "status": status})
    return PodOnNode(f"default/{name}", "n1")


def budget(world: World, needs: int, healthy: int, name: str = "web", **spec: Any) -> None:
    """Create a budget for app=web, with the counts of its controller."""
    counted = {"expectedPods": healthy, "currentHealthy": healthy, "desiredHealthy": needs}
    allowed = {"disruptionsAllowed": max(0, healthy - needs), "observedGeneration": 1}
    world.put(
        "PodDisruptionBudget",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": needs, "selector": {"matchLabels": {"app": "web"}}, **spec},
            "status": {**counted, **allowed},
        },
    )


def evicted(world: World, *pods: PodOnNode) -> list[Eviction]:
    answers = world.cluster.evict(pods)
    assert list(answers) == [each.pod for each in pods]
    return list(answers.values())


def grace(world: World, name: str) -> int:
    return int(there(world, "Pod", name)["metadata"]["deletionGracePeriodSeconds"])


def end(world: World, name: str) -> datetime:
    return datetime.fromisoformat(there(world, "Pod", name)["metadata"]["deletionTimestamp"])


def test_pods_without_a_budget_terminate_with_their_own_or_the_given_grace_period(world: World) -> None:
    usual, own = running(world, "usual"), running(world, "own", terminationGracePeriodSeconds=120)
    named = PodOnNode(running(world, "named").pod, "n1", 5)
    assert evicted(world, usual, own, named) == [Evicted()] * 3
    assert [grace(world, name) for name in ("usual", "own", "named")] == [30, 120, 5]


def test_no_more_pods_are_evicted_than_the_budget_allows(world: World) -> None:
    pods = [running(world, f"web-{number}") for number in range(20)]
    budget(world, needs=17, healthy=20)
    answers = evicted(world, *pods)
    assert answers.count(Evicted()) == 3
    refused = [answer for answer in answers if isinstance(answer, EvictionRefused)]
    assert {answer.reason for answer in refused} == {BUDGET}
    assert all("The disruption budget web " in answer.message for answer in refused)
    assert sum(is_deleting(world, "Pod", f"web-{number}") for number in range(20)) == 3


def test_an_exhausted_budget_reports_required_and_healthy_pods(world: World) -> None:
    pod = running(world, "web-0")
    budget(world, needs=1, healthy=1)
    (answer,) = evicted(world, pod)
    assert isinstance(answer, EvictionRefused)
    assert "The disruption budget web needs 1 healthy pods and has 1 currently" in answer.message


def test_a_pod_under_two_budgets_is_not_evicted(world: World) -> None:
    pod = running(world, "web-0")
    budget(world, needs=0, healthy=1)
    budget(world, needs=0, healthy=1, name="other")
    (answer,) = evicted(world, pod)
    assert isinstance(answer, EvictionRefused)
    assert answer.reason == SEVERAL_BUDGETS
    assert "more than one PodDisruptionBudget" in answer.message
    assert not is_deleting(world, "Pod", "web-0")


def test_an_unready_pod_is_evicted_if_its_budget_is_satisfied_without_it(world: World) -> None:
    pod = running(world, "sick", ready=False)
    running(world, "well")
    budget(world, needs=1, healthy=1)
    assert evicted(world, pod) == [Evicted()]


@pytest.mark.parametrize(("policy", "goes"), [("AlwaysAllow", True), ("IfHealthyBudget", False)])
def test_an_unready_pod_is_evicted_below_the_budget_only_if_the_policy_allows_it(
    world: World, policy: str, goes: bool
) -> None:
    pod = running(world, "sick", ready=False)
    budget(world, needs=1, healthy=0, unhealthyPodEvictionPolicy=policy)
    (answer,) = evicted(world, pod)
    assert isinstance(answer, Evicted) == goes
    assert is_deleting(world, "Pod", "sick") == goes


def test_a_pending_pod_is_evicted_regardless_of_its_budget(world: World) -> None:
    pod = running(world, "early", ready=False, phase="Pending")
    budget(world, needs=1, healthy=0)
    assert evicted(world, pod) == [Evicted()]


def test_a_terminating_pod_needs_no_budget_and_keeps_its_deletion_time(world: World) -> None:
    pod = running(world, "web-0")
    assert evicted(world, pod) == [Evicted()]
    before = there(world, "Pod", "web-0")
    budget(world, needs=1, healthy=0)
    assert evicted(world, pod) == [Evicted()]
    assert list(world.cluster.delete_pods([PodOnNode(pod.pod, "n1", 600)]).values()) == [Evicted()]
    assert there(world, "Pod", "web-0") == before


@pytest.mark.parametrize("how", ["evict", "delete_pods"])
def test_pods_that_have_terminated_or_moved_count_as_gone_and_are_not_changed(world: World, how: str) -> None:
    over = [running(world, phase.lower(), ready=False, phase=phase) for phase in ("Succeeded", "Failed")]
    moved = PodOnNode(running(world, "moved").pod, "n2")
    world.put("Pod", a_pod("unbound"))
    pods = [*over, moved, PodOnNode("default/unbound", "n1"), PodOnNode("default/nobody", "n1")]
    answers = getattr(world.cluster, how)(pods)
    assert answers == {each.pod: Gone() for each in pods}
    assert not any(is_deleting(world, "Pod", name) for name in ("succeeded", "failed", "moved", "unbound"))


def test_a_forced_deletion_ignores_budgets(world: World) -> None:
    pod = running(world, "web-0")
    budget(world, needs=1, healthy=1)
    assert world.cluster.delete_pods([PodOnNode(pod.pod, "n1", 7)]) == {pod.pod: Evicted()}
    assert grace(world, "web-0") == 7


def test_the_grace_period_of_a_terminating_pod_is_shortened_from_its_start(world: World) -> None:
    pod = running(world, "slow", terminationGracePeriodSeconds=3600)
    evicted(world, pod)
    before = end(world, "slow")
    world.clock.time += timedelta(minutes=10)
    world.cluster.delete_pods([PodOnNode(pod.pod, "n1", 60)])
    assert grace(world, "slow") == 60
    assert (before - end(world, "slow")).total_seconds() == 3540


def test_a_pod_without_a_grace_period_is_gone_at_once(world: World) -> None:
    pod = running(world, "web-0")
    assert world.cluster.delete_pods([PodOnNode(pod.pod, "n1", 0)]) == {pod.pod: Evicted()}
    assert world.find("Pod", "web-0") is None


def test_evicting_no_pods_makes_no_call(world: World) -> None:
    assert world.cluster.evict([]) == world.cluster.delete_pods([]) == {}


def test_several_events_are_published_once_each(world: World) -> None:
    running(world, "web-0")
    reported = [
        ObjectEvent("Pod", "default/web-0", "Evicted", "Node n1 goes"),
        ObjectEvent("Pod", "default/gone", "Evicted", "Node n1 goes"),
        ObjectEvent("Node", "n1", "FailedDraining", "web-0 stays", warning=True),
    ]
    world.cluster.publish(reported)
    world.cluster.publish([*reported, reported[0]])
    assert sorted(world.events()) == [
        ("Node", "n1", "FailedDraining", "web-0 stays", True),
        ("Pod", "default/gone", "Evicted", "Node n1 goes", False),
        ("Pod", "default/web-0", "Evicted", "Node n1 goes", False),
    ]
