"""Pods with volumes get nodes where their volumes are, or may come to be; kube-scheduler binds both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Event
from typing import Any

from nodesmith.model.labels import ZONE
from tests.e2e.conftest import Start
from tests.e2e.manifests import deployment, nodeclass, nodepool
from tests.e2e.system import CLUSTER, Manifest, System
from tests.e2e.test_first_pods import assert_kube_scheduler_bound
from tests.e2e.volumemaker import attached_volumes, made_volumes
from tests.storage import claim, storage_class, volume

A, B, C = (f"us-east-1{letter}" for letter in "abc")


def stateful_set(name: str, replicas: int, class_name: str) -> Manifest:
    """Give a StatefulSet that starts all its pods at once, each with a volume of its own."""
    made: dict[str, Any] = dict(deployment(name, replicas))
    template = made["spec"]["template"]["spec"]
    template["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    asked = {"metadata": {"name": "data"}, "spec": claim("data", storageClassName=class_name)["spec"]}
    also = {"serviceName": name, "podManagementPolicy": "Parallel", "volumeClaimTemplates": [asked]}
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], **also}}


def classes() -> Sequence[Manifest]:
    kinds = (storage_class("gp3"), storage_class("only-c", allowed=[{"topology.ebs.csi.aws.com/zone": [C]}]))
    return [{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **each} for each in kinds]


def held_volume(name: str, zone: str, claim_name: str) -> Sequence[Manifest]:
    """Give a volume that was made before, and the claim that is to be bound to it."""
    held = volume(name, zone, claim=f"default/{claim_name}")
    holder = claim(claim_name, volumeName=name)
    del held["status"], holder["status"], holder["metadata"]["ownerReferences"]
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", **held},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **holder},
    ]


def explained(system: System, kind: str, name: str) -> str:
    done = system.nodesmith("explain", kind, name)
    return done.stdout + done.stderr


def names(objects: Sequence[Manifest]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def attached_to(system: System) -> set[str]:
    found = system.cluster.objects.list("volumeattachments")
    return {each["spec"]["nodeName"] for each in found if each.get("status", {}).get("attached")}


def zones_of(system: System, app: str) -> Counter[str]:
    return Counter(system.node_of(pod)["metadata"]["labels"][ZONE] for pod in system.pods(app))


def test_pods_go_to_the_zones_of_their_bound_volumes_and_those_that_wait_where_their_class_allows(
    start: Start,
) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(), *classes())
    for number, zone in enumerate([B, B, A]):
        system.apply(*held_volume(f"pv-{number}", zone, f"data-bound-{number}"))

    with made_volumes(system.cluster.objects) as made:
        system.apply(stateful_set("bound", 3, "gp3"), stateful_set("waiting", 2, "only-c"))
        system.until_running(5, seconds=90)
        system.until_settled()

    assert zones_of(system, "bound") == {B: 2, A: 1}
    assert zones_of(system, "waiting") == {C: 2}
    assert len(made) == 2
    assert 3 <= len(system.nodes()) <= 5, "where it costs the same, no node holds all pods of a kind"
    assert_kube_scheduler_bound(system)
    assert system.violations() == []


def test_a_pod_whose_class_comes_later_is_served_then_and_nothing_is_bought_before(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool())
    system.until_nodepools_ready()

    with made_volumes(system.cluster.objects):
        system.apply(stateful_set("late", 1, "gp3"))
        reason = "storageclass.storage.k8s.io 'gp3' of persistentvolumeclaim 'data-late-0' not found"
        system.until("the reason is told", lambda: reason in explained(system, "pod", "default/late-0"))
        assert system.instances() == []

        system.apply(*classes())
        system.until_running(1)

    system.until_settled()
    assert len(system.nodes()) == 1


def test_an_instance_is_not_terminated_before_its_volumes_are_detached(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(), *classes())
    objects, may_detach = system.cluster.objects, Event()

    with made_volumes(objects), attached_volumes(objects, may_detach) as detached:
        system.apply(stateful_set("db", 1, "gp3"))
        system.until_running(1, seconds=90)
        system.until_settled()
        system.until("the volume is attached", lambda: attached_to(system) == names(system.nodes()))
        (node,) = system.nodes()
        name, doomed = node["metadata"]["name"], node["spec"]["providerID"].rpartition("/")[2]
        system.kubectl("delete", "node", name, "--wait=false")
        system.until("it is told", lambda: "is still attached" in explained(system, "node", name))
        assert doomed in {i["InstanceId"] for i in system.instances()}
        may_detach.set()
        system.until(
            "its instance is terminated", lambda: doomed not in {i["InstanceId"] for i in system.instances()}
        )
        assert len(detached) == 1
        system.until_running(1, seconds=90)
        system.until("the node is gone", lambda: name not in names(system.nodes()))
        system.until("the volume is attached again", lambda: attached_to(system) == names(system.nodes()))
    assert_kube_scheduler_bound(system)
