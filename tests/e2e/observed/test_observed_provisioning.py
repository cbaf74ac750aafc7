"""What an observer sees of a purchase: NodeClaims, Events, and what is not bought, as with Karpenter.

The tests share a cluster. Each test's pods select nodes of its own NodePool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from typer.testing import CliRunner

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith_cli.main import app
from nodesmith_local.runs.timeline import condition
from tests.e2e.observed.observing import claims_of, event_of, events_on, pool_of, the_claim
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import (
    Manifest,
    daemonset,
    deployment,
    nodeclass,
    owned_by,
    pod,
    requirement,
    taint,
)

NOWHERE = "c6a.4xlarge"
SHARED = {"no_capacity": [NOWHERE]}
LARGE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs, 1.93 of them allocatable
HOSTNAME = "kubernetes.io/hostname"
AFFINITY_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def small(team: str, *requirements: Mapping[str, Any], **fields: Any) -> Manifest:
    """Return a NodePool with one small instance type, unless `requirements` are given."""
    return pool_of(team, *(requirements or [LARGE]), **fields)


def of(team: str) -> dict[str, Any]:
    return {"nodeSelector": {"team": team}}


def stated(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object that contain hashes."""
    return {key: value for key, value in metadata["annotations"].items() if "-hash" in key}


def printed_hashes(system: System, *manifests: Manifest) -> dict[str, str]:
    """Return the hashes that `nodesmith hash` prints for manifests in the cluster, as annotations."""
    command = ["hash", "-f", "-", "-o", "json", "--cluster-ca-bundle", system.cluster.ca_bundle]
    printed = json.loads(CliRunner().invoke(app, command, input=yaml.safe_dump_all(manifests)).stdout)
    keys = {"NodePool": "karpenter.sh/nodepool-hash", "EC2NodeClass": "karpenter.k8s.aws/ec2nodeclass-hash"}
    return {
        f"{keys[each['kind']]}{end}": each[field]
        for each in printed
        for end, field in (("", "hash"), ("-version", "version"))
    }


def requirements_of(claim: Manifest) -> dict[str, Manifest]:
    return {each["key"]: each for each in claim["spec"]["requirements"]}


def test_a_nodeclaim_has_every_field_that_karpenter_writes(shared: System) -> None:
    system = shared
    category = {**requirement("karpenter.k8s.aws/instance-category", "c", "m", "r"), "minValues": 2}
    anything = {"key": "example.com/rack", "operator": "Exists"}
    pool = pool_of(
        "shape",
        category,
        anything,
        taints=[taint("example.com/team", "shape")],
        startup_taints=[taint("example.com/agent", "absent")],
    )
    template = pool["spec"]["template"]
    template["metadata"]["annotations"] = {"example.com/note": "as written"}
    template["spec"] |= {"expireAfter": "24h", "terminationGracePeriod": "30m"}
    system.apply(nodeclass(CLUSTER), pool, daemonset("agent", "200m", "32Mi", **of("shape")))
    system.until_nodepools_ready()
    tolerations = [{"key": "example.com/team", "operator": "Exists"}]
    system.apply(pod("shape", "1", "64Mi", tolerations=tolerations, **of("shape")))

    claim = the_claim(system, "shape")
    metadata, spec, status = claim["metadata"], claim["spec"], claim["status"]
    owner = system.cluster.objects.get("nodepools", "shape")["metadata"]
    assert metadata["generateName"] == "shape-"
    assert metadata["name"].startswith("shape-")
    assert metadata["finalizers"] == ["karpenter.sh/termination"]
    assert metadata["ownerReferences"] == [owned_by("NodePool", "shape", owner["uid"])]
    hashes = stated(metadata)
    assert hashes == stated(owner) | stated(
        system.cluster.objects.get("ec2nodeclasses", "default")["metadata"]
    )
    assert hashes == printed_hashes(system, pool, nodeclass(CLUSTER))
    profile = system.cluster.objects.get("ec2nodeclasses", "default")["status"]["instanceProfile"]
    assert (
        metadata["annotations"].items()
        >= {
            "example.com/note": "as written",
            "karpenter.sh/nodeclaim-min-values-relaxed": "false",
            "karpenter.k8s.aws/instance-profile-name": profile,
        }.items()
    )
    assert (
        metadata["labels"].items()
        >= {
            NODEPOOL: "shape",
            "karpenter.k8s.aws/ec2nodeclass": "default",
            "team": "shape",
            "topology.kubernetes.io/region": "us-east-1",
            "kubernetes.io/os": "linux",
        }.items()
    )
    assert metadata["labels"]["example.com/rack"]
    assert metadata["labels"]["karpenter.k8s.aws/instance-category"] in category["values"]

    asked = requirements_of(claim)
    assert asked["karpenter.k8s.aws/instance-category"] == category
    assert asked[NODEPOOL]["values"] == ["shape"]
    assert 2 <= len(asked["node.kubernetes.io/instance-type"]["values"]) <= 600
    assert metadata["labels"]["node.kubernetes.io/instance-type"] in {
        *asked["node.kubernetes.io/instance-type"]["values"]
    }
    assert spec["resources"]["requests"] == {"cpu": "1200m", "memory": "96Mi", "pods": "2"}
    assert (spec["expireAfter"], spec["terminationGracePeriod"]) == ("24h", "30m")
    assert spec["taints"] == [taint("example.com/team", "shape")]
    assert spec["startupTaints"] == [taint("example.com/agent", "absent")]
    assert spec["nodeClassRef"] == {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}

    assert status["providerID"].startswith("aws:///us-east-1")
    assert status["imageID"].startswith("ami-")
    for offered in (status["capacity"], status["allocatable"]):
        assert offered.keys() >= {"cpu", "memory", "pods", "ephemeral-storage"}
        assert not any(name.startswith("attachable-volumes") for name in offered)
    nominated = event_of(system, "shape", "Nominated", "Normal")
    assert nominated["message"] == f"Pod should schedule on: nodeclaim/{metadata['name']}"


def test_pods_that_fit_no_node_get_events_and_pods_that_opt_out_get_none(
    shared: System,
) -> None:
    system = shared
    out = {"nodeSelectorTerms": [{"matchExpressions": [{"key": NODEPOOL, "operator": "DoesNotExist"}]}]}
    lost = [{"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}]
    system.apply(
        nodeclass(CLUSTER),
        small("wrong"),
    )
    system.until_nodepools_ready()
    system.apply(
        pod("mistyped", nodeSelector={"karpenter.sh/nodepol": "wrong"}),
        pod("volumeless", volumes=lost, **of("wrong")),
        pod("opted-out", affinity={"nodeAffinity": {AFFINITY_TERMS: out}}),
        pod("gated", schedulingGates=[{"name": "example.com/later"}], **of("wrong")),
    )
    for name, said in (("mistyped", "karpenter.sh/nodepol"), ("volumeless", "'lost' not found")):
        event_of(system, name, "FailedScheduling", said=said)
    assert events_on(system, "opted-out") == {}
    assert events_on(system, "gated") == {}
    assert claims_of(system, "wrong") == []
    system.kubectl("delete", "pod", "mistyped", "volumeless", "opted-out", "gated", "--wait=false")


def test_a_nodepool_whose_requirements_leave_no_instance_type_gets_an_event(shared: System) -> None:
    system = shared
    system.apply(
        nodeclass(CLUSTER),
        small("nothing", requirement("karpenter.k8s.aws/instance-family", "m99z")),
        pod("nothing", **of("nothing")),
    )
    without_types = event_of(system, "nothing", "NoCompatibleInstanceTypes")
    assert without_types["involvedObject"]["kind"] == "NodePool"
    system.until("the pod has an Event", lambda: "FailedScheduling" in events_on(system, "nothing"))
    system.kubectl("delete", "pod", "nothing", "--wait=false")


def test_a_nodepool_whose_nodeclass_is_being_deleted_is_not_ready_and_buys_nothing(shared: System) -> None:
    system = shared
    held: Any = nodeclass(CLUSTER, "held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    system.apply(held, small("held", nodeclass="held"))
    system.until_nodepools_ready()

    def says(reason: str) -> bool:
        found = condition(system.cluster.objects.get("nodepools", "held"), "NodeClassReady")
        return (found.get("status"), found.get("reason")) == ("False", reason)

    system.kubectl("delete", "ec2nodeclass", "held", "--wait=false")
    system.until("the NodePool shows it", lambda: says("NodeClassTerminating"))
    system.apply(pod("held", **of("held")))
    event_of(system, "held", "FailedScheduling", said="is being deleted")
    assert claims_of(system, "held") == []
    system.kubectl("patch", "ec2nodeclass", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    system.until("the NodePool shows that it is gone", lambda: says("NodeClassNotFound"))
    system.kubectl("delete", "pod/held", "nodepool/held", "--wait=false")


def test_a_nodeclaim_without_capacity_is_deleted_with_an_event(shared: System) -> None:
    system = shared
    one = requirement("node.kubernetes.io/instance-type", NOWHERE)
    system.apply(nodeclass(CLUSTER), small("short", one), pod("short", **of("short")))

    def failures() -> list[Manifest]:
        events = system.events("InsufficientCapacityError")
        return [dict(e) for e in events if e["involvedObject"]["name"].startswith("short-")]

    system.until("there is an Event", lambda: bool(failures()))
    event = failures()[0]
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "NodeClaim")
    system.until("no NodeClaim is left", lambda: claims_of(system, "short") == [])
    system.kubectl("delete", "pod", "short", "--wait=false")


def test_no_more_nodes_are_bought_than_a_limit_on_nodes_allows(shared: System) -> None:
    system = shared
    system.apply(nodeclass(CLUSTER), small("limited", limits={"nodes": "2"}))
    system.until_nodepools_ready()
    system.apply(deployment("limited", 5, **of("limited")))  # one to a node

    def running() -> int:
        return sum(p["status"].get("phase") == "Running" for p in system.pods("limited"))

    system.until("two of five pods run", lambda: running() == 2)
    waiting = [p["metadata"]["name"] for p in system.pods("limited") if not p["spec"].get("nodeName")]
    event_of(system, waiting[0], "FailedScheduling", said="spec.limits.nodes")
    assert len(claims_of(system, "limited")) == 2
    system.until("the NodePool counts them", lambda: usage(system, "limited") == (2, "2", "4"))
    shown = system.cluster.objects.get("nodepools", "limited")["status"]
    assert shown["resources"].keys() >= {"cpu", "memory", "pods", "ephemeral-storage", "nodes"}
    system.kubectl("delete", "deployment", "limited")


def usage(system: System, pool: str) -> tuple[int | None, str | None, str | None]:
    """Return a NodePool's nodes, and its resources' nodes and cpu, as far as its status has them already."""
    status = system.cluster.objects.get("nodepools", pool)["status"]
    resources = status.get("resources", {})
    return status.get("nodes"), resources.get("nodes"), resources.get("cpu")


def test_pods_with_the_same_host_port_get_a_node_each_and_impossible_preferences_are_relaxed(
    shared: System,
) -> None:
    system = shared
    elsewhere = {"matchExpressions": [requirement("topology.kubernetes.io/zone", "us-east-1z")]}
    preference = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": elsewhere}]
    }
    ports = [{"containerPort": 80, "hostPort": 8080}]
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {"name": "main", "image": "busybox", "ports": ports, "resources": requests}
    system.apply(nodeclass(CLUSTER), small("ports"))
    system.until_nodepools_ready()
    system.apply(
        *(
            pod(
                f"port-{number}",
                labels={"app": "ports"},
                containers=[container],
                affinity={"nodeAffinity": preference},
                **of("ports"),
            )
            for number in range(2)
        )
    )
    system.until_running(2, "ports")
    assert len({p["spec"]["nodeName"] for p in system.pods("ports")}) == 2
    assert len(claims_of(system, "ports")) == 2


def test_a_pod_of_another_scheduler_counts_once_that_scheduler_marks_it_unschedulable(shared: System) -> None:
    system = shared
    system.apply(nodeclass(CLUSTER), small("other"))
    system.until_nodepools_ready()
    system.apply(pod("other", schedulerName="example", **of("other")))
    system.stays("nothing is bought", lambda: claims_of(system, "other") == [], seconds=3)
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    system.cluster.objects.patch(
        "pods", "other", {"status": {"conditions": [verdict]}}, "default", subresource="status"
    )
    system.until("a node is bought", lambda: len(claims_of(system, "other")) == 1)
    system.kubectl("delete", "pod", "other", "--wait=false")
