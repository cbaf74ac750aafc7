"""Nodes that appear, fall silent and go, their pods, disruption budgets, and the loop itself."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from nodesmith_formats.kubernetes.objects import View, condition_of, dig
from nodesmith_local.apiserver import Store
from nodesmith_local.cluster import Cluster, Pace
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.nodelifecycle import NodeLifecycle
from tests.patience import eventually
from tests.servers.standins import StandIns


def taints(world: StandIns, name: str) -> list[tuple[str, str]]:
    found = dig(world.store.get("nodes", name), "spec", "taints") or ()
    return [(each["key"].removeprefix("node.kubernetes.io/"), each["effect"]) for each in found]


def ready(obj: View) -> str | None:
    condition = condition_of(obj, "Ready")
    return str(condition["status"]) if condition else None


def test_a_ready_node_loses_its_initial_taint_and_keeps_its_own() -> None:
    world = StandIns()
    world.add_node("n1", taints=[{"key": "team", "effect": "NoSchedule"}])
    assert ("not-ready", "NoSchedule") in taints(world, "n1")

    world.settle()

    assert taints(world, "n1") == [("team", "NoSchedule")]


def test_a_taint_that_is_removed_meanwhile_is_not_put_back() -> None:
    world = StandIns()
    world.add_node("n1", taints=[{"key": "team", "effect": "NoSchedule"}], ready=False)
    mirrors = Mirrors(world.store, lambda: None)
    lifecycle = NodeLifecycle(world.store, mirrors)
    mirrors.refresh()
    world.store.patch("nodes", "n1", {"spec": {"taints": None}})

    lifecycle.step()
    mirrors.refresh()
    lifecycle.step()

    assert sorted(taints(world, "n1")) == [("not-ready", "NoExecute"), ("not-ready", "NoSchedule")]


def test_a_node_is_tainted_while_it_is_cordoned() -> None:
    world = StandIns()
    world.add_node("n1")
    world.store.patch("nodes", "n1", {"spec": {"unschedulable": True}})
    world.settle()
    assert taints(world, "n1") == [("unschedulable", "NoSchedule")]

    world.store.patch("nodes", "n1", {"spec": {"unschedulable": None}})
    world.settle()
    assert taints(world, "n1") == []


def test_pods_become_ready_after_the_time_that_containers_take() -> None:
    world = StandIns(pace=Pace(start_seconds=2))
    world.add_node("n1")
    world.add_pod("p")
    world.settle()
    assert world.phases() == ["Pending"]

    world.pass_time(1)
    assert world.phases() == ["Pending"]
    world.pass_time(1)
    assert world.phases() == ["Running"]
    assert ready(world.pod("p")) == "True"
    assert dig(world.pod("p"), "status", "containerStatuses", 0, "ready") is True


def test_pods_do_not_start_before_their_node_is_ready() -> None:
    world = StandIns()
    world.add_node("n1", ready=False)
    world.add_pod("p", nodeName="n1", tolerations=[{"operator": "Exists"}])
    world.settle()
    assert world.phases() == ["Pending"]

    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.store.patch("nodes", "n1", {"status": status}, subresource="status")
    world.settle()
    assert world.phases() == ["Running"]


def test_a_deleted_pod_goes_when_it_has_stopped_or_its_grace_has_ended() -> None:
    world = StandIns()
    world.add_node("n1")
    world.store.create(
        "pods",
        {
            "metadata": {"name": "slow", "annotations": {"local.nodesmith/stop-seconds": "600"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}], "terminationGracePeriodSeconds": 20},
        },
    )
    world.add_pod("quick")
    world.settle()
    for name in ("slow", "quick"):
        world.store.delete("pods", name, "default")

    world.pass_time(1)
    assert list(world.places()) == ["slow"]
    world.pass_time(18)
    assert list(world.places()) == ["slow"]
    world.pass_time(1)
    assert world.places() == {}


def test_a_node_that_renews_its_lease_stays_ready() -> None:
    world = StandIns()
    world.add_node("n1")
    for _ in range(20):
        world.beat("n1")
        world.pass_time(10)

    assert ready(world.store.get("nodes", "n1")) == "True"


def test_a_silent_node_becomes_unknown_then_unreachable_and_its_pods_are_evicted_after_five_minutes() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_pod("p")
    world.settle()

    world.pass_time(51)
    assert ready(world.store.get("nodes", "n1")) == "Unknown"
    assert taints(world, "n1") == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    assert ready(world.pod("p")) == "False"
    assert "deletionTimestamp" not in world.pod("p")["metadata"]

    world.pass_time(298)
    assert "deletionTimestamp" not in world.pod("p")["metadata"]
    world.pass_time(3)
    # No kubelet is left to stop it: the pod stays until it is deleted by force or the node object goes.
    assert "deletionTimestamp" in world.pod("p")["metadata"]
    world.pass_time(600)
    assert list(world.places()) == ["p"]


def test_a_silent_node_that_returns_is_ready_only_when_its_kubelet_says_so() -> None:
    world = StandIns()
    world.add_node("n1")
    world.pass_time(51)
    assert ready(world.store.get("nodes", "n1")) == "Unknown"

    world.beat("n1")
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.store.patch("nodes", "n1", {"status": status}, subresource="status", kind="strategic")
    world.settle()

    assert taints(world, "n1") == []


def test_a_no_execute_taint_evicts_pods_without_a_toleration_at_once() -> None:
    world = StandIns(node_grace_seconds=3600)
    world.add_node("n1")
    world.add_pod("p")
    world.add_pod("tough", tolerations=[{"key": "flood", "operator": "Exists"}])
    minute = {"key": "flood", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    world.add_pod("patient", tolerations=[minute])
    world.settle()

    world.store.patch("nodes", "n1", {"spec": {"taints": [{"key": "flood", "effect": "NoExecute"}]}})
    world.pass_time(2)
    assert sorted(world.places()) == ["patient", "tough"]
    world.pass_time(61)
    assert sorted(world.places()) == ["tough"]


def test_pods_of_a_deleted_node_are_deleted_after_the_quarantine() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", replicas=1)
    world.settle()
    (first,) = world.places()

    world.store.delete("nodes", "n1")
    world.pass_time(39)
    assert world.places() == {first: "n1"}
    world.pass_time(2)

    (second,) = world.places()
    assert second != first
    assert world.places()[second] == ""


def test_a_budget_counts_how_many_pods_may_be_evicted() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", replicas=3)
    selector = {"matchLabels": {"app": "web"}}
    for name, rule in (
        ("least", {"minAvailable": 2}),
        ("most", {"maxUnavailable": 2}),
        ("share", {"minAvailable": "50%"}),
        ("none", {"maxUnavailable": 0}),
    ):
        world.store.create(
            "poddisruptionbudgets", {"metadata": {"name": name}, "spec": {"selector": selector, **rule}}
        )

    world.settle()

    allowed = {
        each["metadata"]["name"]: each["status"]["disruptionsAllowed"]
        for each in world.store.list("poddisruptionbudgets")
    }
    assert allowed == {"least": 1, "most": 2, "share": 1, "none": 0}


def test_a_budget_counts_the_owners_desired_replicas_not_the_existing_pods() -> None:
    world = StandIns()
    world.add_node("n1", cpu="2")
    world.add_workload("deployments", replicas=4)
    selector = {"matchLabels": {"app": "web"}}
    spec = {"selector": selector, "maxUnavailable": 1}
    world.store.create("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": spec})

    world.settle()

    status = world.store.get("poddisruptionbudgets", "b", "default")["status"]
    assert (status["expectedPods"], status["desiredHealthy"], status["currentHealthy"]) == (4, 3, 2)
    assert status["disruptionsAllowed"] == 0


def test_events_expire_an_hour_after_their_last_occurrence() -> None:
    world = StandIns()
    world.add_pod("p")
    world.settle()
    assert world.store.list("events")

    world.pass_time(3500)
    assert world.store.list("events")
    world.pass_time(1000)
    assert not world.store.list("events")


def test_a_step_of_a_settled_cluster_writes_nothing() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", replicas=3)
    world.add_workload("daemonsets", "agent")
    world.add_workload("jobs", "sum", pod={"restartPolicy": "Never"})
    world.settle()
    revision = world.store.history.revision

    assert not world.cluster.step()
    assert world.store.history.revision == revision


def test_the_loop_runs_by_itself_and_faster_than_real_time_on_request() -> None:
    begin, speed = time.monotonic(), 100.0
    store = Store(
        lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=speed * (time.monotonic() - begin))
    )
    cluster = Cluster(store, pace=Pace(start_seconds=20)).start(speed)
    try:
        world = StandIns()
        world.store = store
        world.add_node("n1")
        world.add_workload("deployments", replicas=3)
        eventually(lambda: world.phases() == ["Running"] * 3)
    finally:
        cluster.stop()
