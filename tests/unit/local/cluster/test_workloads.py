"""The controllers' stand-ins: pods are created, counted, replaced and deleted."""

from __future__ import annotations

from nodesmith_formats.kubernetes.objects import dig, labels_of, name_of
from tests.servers.standins import StandIns


def test_a_deployment_becomes_running_pods_and_says_so() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", replicas=3)

    world.settle()

    assert world.phases() == ["Running"] * 3
    status = world.store.get("deployments", "web", "default")["status"]
    assert [
        status[each] for each in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    ] == [3] * 4
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Available": "True",
        "Progressing": "True",
    }
    owner = world.pods()[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    assert labels_of(world.pods()[0])["pod-template-hash"] in owner["name"]


def test_scaling_down_deletes_pods_without_a_node_first() -> None:
    world = StandIns()
    world.add_node("n1", cpu="2")
    world.add_workload("deployments", replicas=4)
    world.settle()
    assert sorted(world.places().values()) == ["", "", "n1", "n1"]

    world.store.patch("deployments", "web", {"spec": {"replicas": 2}}, "default")
    world.settle()

    assert list(world.places().values()) == ["n1", "n1"]


def test_a_deleted_pod_is_replaced() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", replicas=1)
    world.settle()
    (first,) = world.places()

    world.store.delete("pods", first, "default")
    world.pass_time(2)

    (second,) = world.places()
    assert second != first
    assert world.phases() == ["Running"]


def test_a_new_template_rolls_out_without_falling_below_what_must_be_ready() -> None:
    world = StandIns()
    world.add_node("n1", cpu="100")
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    world.add_workload("deployments", replicas=3, strategy=rolling)
    world.settle()
    container = {"name": "c", "image": "i:2"}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}

    world.store.patch("deployments", "web", patch, "default", kind="strategic")
    least, most = 3, 3
    while world.cluster.step():
        ready = [
            p
            for p in world.pods()
            if "deletionTimestamp" not in p["metadata"] and dig(p, "status", "phase") == "Running"
        ]
        live = [p for p in world.pods() if "deletionTimestamp" not in p["metadata"]]
        least, most = min(least, len(ready)), max(most, len(live))
    world.pass_time(2)

    assert (least, most) == (3, 4)
    assert {dig(each, "spec", "containers", 0, "image") for each in world.pods()} == {"i:2"}
    assert sorted(dig(each, "spec", "replicas") for each in world.store.list("replicasets")) == [0, 3]


def test_deleting_a_deployment_deletes_its_dependents() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", replicas=2)
    world.settle()

    world.store.delete("deployments", "web", "default")
    world.pass_time(2)

    assert world.pods() == []
    assert list(world.store.list("replicasets")) == []


def test_a_refused_pod_leads_to_an_event_and_does_not_affect_others() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("deployments", "bad", replicas=1, pod={"priorityClassName": "nobody"})
    world.add_workload("deployments", "good", replicas=1)

    world.settle()

    assert [labels_of(each)["app"] for each in world.pods()] == ["good"]
    failed = [each for each in world.store.list("events") if each["reason"] == "FailedCreate"]
    assert "no PriorityClass with name nobody was found" in failed[0]["message"]


def test_a_limit_range_sets_missing_requests_of_pods() -> None:
    world = StandIns()
    world.add_node("n1")
    limits = [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "300m"}}]
    about = {"name": "limits", "namespace": "default"}
    world.store.create("limitranges", {"metadata": about, "spec": {"limits": limits}})
    container = {"name": "c", "image": "i"}
    world.add_workload("daemonsets", "agent", pod={"containers": [container]})

    world.settle()

    (agent,) = world.pods()
    assert dig(agent, "spec", "containers", 0, "resources", "requests") == {"cpu": "300m"}


def test_a_stateful_set_makes_its_pods_one_after_the_other() -> None:
    world = StandIns()
    world.add_node("n1", cpu="2")
    world.add_workload("statefulsets", "db", replicas=3, serviceName="db")

    world.settle()

    assert world.places() == {"db-0": "n1", "db-1": "n1", "db-2": ""}
    world.store.patch("statefulsets", "db", {"spec": {"replicas": 1}}, "default")
    world.pass_time(2)
    assert list(world.places()) == ["db-0"]


def test_a_stateful_set_creates_the_next_pod_when_the_last_one_is_ready() -> None:
    world = StandIns()
    world.add_workload("statefulsets", "db", replicas=3, serviceName="db")

    world.settle()

    assert list(world.places()) == ["db-0"]


def test_a_stateful_set_claims_a_volume_for_each_pod() -> None:
    world = StandIns()
    world.add_node("n1")
    gp3 = {"metadata": {"name": "gp3"}, "provisioner": "e", "volumeBindingMode": "WaitForFirstConsumer"}
    world.store.create("storageclasses.storage.k8s.io", gp3)
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"},
    }
    world.add_workload("statefulsets", "db", replicas=2, serviceName="db", volumeClaimTemplates=[claim])

    world.pass_time(10)  # the second pod is created, with its volume, when the first is ready

    assert [name_of(each) for each in world.store.list("persistentvolumeclaims")] == [
        "data-db-0",
        "data-db-1",
    ]
    assert dig(world.pod("db-1"), "spec", "volumes", 0, "persistentVolumeClaim", "claimName") == "data-db-1"


def test_a_daemon_set_has_one_pod_on_every_node_that_takes_it() -> None:
    world = StandIns()
    world.add_node("plain")
    world.add_node("tainted", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    world.add_node("other", role="infra")
    world.add_workload(
        "daemonsets", "agent", cpu="100m", pod={"nodeSelector": {"topology.kubernetes.io/zone": "a"}}
    )
    world.settle()
    assert sorted(world.places().values()) == ["other", "plain"]

    world.add_node("late")
    world.settle()
    assert sorted(world.places().values()) == ["late", "other", "plain"]
    status = world.store.get("daemonsets", "agent", "default")["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)


def test_a_daemon_pod_stays_on_a_cordoned_node() -> None:
    world = StandIns()
    world.add_node("n1")
    world.store.patch("nodes", "n1", {"spec": {"unschedulable": True}})
    world.add_workload("daemonsets", "agent", cpu="100m")

    world.settle()

    assert list(world.places().values()) == ["n1"]


def test_a_job_runs_to_its_completions_and_is_complete() -> None:
    world = StandIns()
    world.add_node("n1")
    world.add_workload("jobs", "sum", completions=3, parallelism=2, pod={"restartPolicy": "Never"})
    world.settle()
    assert world.phases() == ["Running", "Running"]

    world.pass_time(11)
    assert world.phases() == ["Running", "Succeeded", "Succeeded"]
    world.pass_time(11)

    job = world.store.get("jobs", "sum", "default")
    assert world.phases() == ["Succeeded"] * 3
    assert job["status"]["succeeded"] == 3
    assert [(each["type"], each["status"]) for each in job["status"]["conditions"]] == [("Complete", "True")]


def test_an_annotation_sets_how_long_a_pod_runs() -> None:
    world = StandIns(node_grace_seconds=3600)
    world.add_node("n1")
    long = {"local.nodesmith/run-seconds": "600"}
    world.add_workload("jobs", "long", pod={"restartPolicy": "Never"}, annotations=long)
    world.settle()

    world.pass_time(599)
    assert world.phases() == ["Running"]
    world.pass_time(2)
    assert world.phases() == ["Succeeded"]


def test_every_namespace_gets_its_default_service_account() -> None:
    world = StandIns()
    world.store.create("namespaces", {"metadata": {"name": "team"}})

    world.settle()

    assert world.store.get("serviceaccounts", "default", "team")
    assert world.store.get("serviceaccounts", "default", "kube-system")
