"""Pods with volumes get nodes in zones that their volumes allow, and kube-scheduler binds both.

The tests share a cluster. Each test's pods select nodes of its own NodePool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Event
from typing import Any

from nodesmith.model.apimachinery.labels import ZONE
from tests.e2e.lifecycle.test_first_pods import assert_kube_scheduler_bound
from tests.e2e.lifecycle.volumemaker import attached_volumes, made_volumes
from tests.e2e.systems.system import CLUSTER, Manifest, System
from tests.objects.manifests import deployment, nodeclass, nodepool
from tests.objects.storage import claim, storage_class, volume

A, B, C = (f"us-east-1{letter}" for letter in "abc")


def stateful_set(name: str, replicas: int, class_name: str, team: str) -> Manifest:
    """Return a StatefulSet that starts all its pods at once on a team's nodes, each pod with its own volume."""
    made: dict[str, Any] = dict(deployment(name, replicas, nodeSelector={"team": team}))
    template = made["spec"]["template"]["spec"]
    template["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    asked = {"metadata": {"name": "data"}, "spec": claim("data", storageClassName=class_name)["spec"]}
    also = {"serviceName": name, "podManagementPolicy": "Parallel", "volumeClaimTemplates": [asked]}
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], **also}}


def kind_of_storage(name: str, *zones: str) -> Manifest:
    allowed = [{"topology.ebs.csi.aws.com/zone": list(zones)}] if zones else []
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **storage_class(name, allowed=allowed)}


def pool_of(team: str) -> Manifest:
    return nodepool(team, labels={"team": team})


def nodes_of(system: System, team: str) -> list[Manifest]:
    return [node for node in system.nodes() if node["metadata"]["labels"]["team"] == team]


def held_volume(name: str, zone: str, claim_name: str) -> Sequence[Manifest]:
    """Return an existing volume, and the claim that will be bound to it."""
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


def instance_ids(system: System) -> set[str]:
    return {instance["InstanceId"] for instance in system.instances()}


def names(objects: Sequence[Manifest]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def attached_to(system: System) -> set[str]:
    found = system.cluster.objects.list("volumeattachments")
    return {each["spec"]["nodeName"] for each in found if each.get("status", {}).get("attached")}


def zones_of(system: System, app: str) -> Counter[str]:
    return Counter(system.labels_of_nodes(app, ZONE))


def test_pods_run_in_the_zones_of_their_bound_volumes_or_in_those_their_storage_class_allows(
    shared: System,
) -> None:
    system = shared
    system.apply(nodeclass(CLUSTER), pool_of("zones"), kind_of_storage("gp3"), kind_of_storage("only-c", C))
    for number, zone in enumerate([B, B, A]):
        system.apply(*held_volume(f"pv-{number}", zone, f"data-bound-{number}"))

    with made_volumes(system.cluster.objects) as made:
        system.apply(stateful_set("bound", 3, "gp3", "zones"), stateful_set("waiting", 2, "only-c", "zones"))
        system.until_running(3, "bound", seconds=90)
        system.until_running(2, "waiting", seconds=90)
        system.until_settled()

    assert zones_of(system, "bound") == {B: 2, A: 1}
    assert zones_of(system, "waiting") == {C: 2}
    assert len(made) == 2
    assert 3 <= len(nodes_of(system, "zones")) <= 5, "at equal cost, no node holds all pods of one kind"
    assert_kube_scheduler_bound(system)
    system.until_settled()


def test_a_pod_whose_storage_class_is_missing_gets_a_node_only_once_the_class_exists(shared: System) -> None:
    system = shared
    system.apply(nodeclass(CLUSTER), pool_of("late"))
    system.until_nodepools_ready()
    before = instance_ids(system)

    with made_volumes(system.cluster.objects):
        system.apply(stateful_set("late", 1, "io2", "late"))
        reason = "storageclass.storage.k8s.io 'io2' of persistentvolumeclaim 'data-late-0' not found"
        system.until("the reason is reported", lambda: reason in explained(system, "pod", "default/late-0"))
        assert instance_ids(system) <= before

        system.apply(kind_of_storage("io2"))
        system.until_running(1, "late")

    system.until_settled()
    assert len(nodes_of(system, "late")) == 1


def test_an_instance_is_not_terminated_before_its_volumes_are_detached(shared: System) -> None:
    system = shared
    system.apply(nodeclass(CLUSTER), pool_of("held"), kind_of_storage("gp3"))
    objects, may_detach = system.cluster.objects, Event()

    def is_attached() -> bool:
        return names(nodes_of(system, "held")) <= attached_to(system)

    with made_volumes(objects), attached_volumes(objects, may_detach) as detached:
        system.apply(stateful_set("db", 1, "gp3", "held"))
        system.until_running(1, "db", seconds=90)
        system.until_settled()
        system.until("the volume is attached", is_attached)
        (node,) = nodes_of(system, "held")
        name, doomed = node["metadata"]["name"], node["spec"]["providerID"].rpartition("/")[2]
        system.kubectl("delete", "node", name, "--wait=false")
        system.until("the reason is reported", lambda: "is still attached" in explained(system, "node", name))
        assert doomed in instance_ids(system)
        may_detach.set()
        system.until("its instance is terminated", lambda: doomed not in instance_ids(system))
        assert len(detached) == 1
        system.until_running(1, "db", seconds=90)
        system.until("the node is gone", lambda: name not in names(system.nodes()))
        system.until("the volume is attached again", is_attached)
    assert_kube_scheduler_bound(system)
