from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.provisioning import Inputs, canonical, decide
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, PODS, Resources
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, Offering, StatedFacts
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.observation.mirror import LEASES, WATCHED
from nodesmith_cli.planning import Manifests, plan_inputs, plan_json, read_manifests
from nodesmith_cli.planning.manifests import GROUPS, restricted
from nodesmith_cli.planning.nodeclasses import assumed_zones
from nodesmith_formats.manifests.manifests import Document
from tests.builders import NOW, anti_affinity, nodeclass_manifest, nodepool_manifest
from tests.objects.manifests import budget
from tests.objects.quotas import quota_manifest
from tests.objects.storage import attachment

Manifest = dict[str, Any]


def read(*manifests: Mapping[str, Any]) -> Manifests:
    return read_manifests((), [Document(manifest, "test", n) for n, manifest in enumerate(manifests)])


def pod(name: str = "a", status: Mapping[str, Any] | None = None, **spec: Any) -> Manifest:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
        "status": dict(status or {}),
    }


def cluster_scoped(kind: str, api_version: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def inputs(*manifests: Mapping[str, Any], catalog: Catalog | None = None) -> Inputs:
    found = read(nodepool_manifest(), *manifests)
    assert not found.faults, found.faults[0]
    return plan_inputs(found, catalog or embedded_catalog())


def plan(*manifests: Mapping[str, Any], catalog: Catalog | None = None) -> dict[str, Any]:
    made_from = inputs(*manifests, catalog=catalog)
    return plan_json(decide(made_from))


def bound(node: Mapping[str, Any]) -> list[str]:
    return list(node["pods"])


NODE = cluster_scoped(
    "Node",
    "v1",
    "n1",
    spec={"providerID": "aws:///us-east-1a/i-1"},
    status={"capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"}},
)


def test_a_pod_without_a_node_is_pending_whatever_its_status_says() -> None:
    reported = plan(
        pod(), pod("b", {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "Unknown"}]})
    )

    assert sorted(p for node in reported["nodes"] for p in node["pods"]) == ["default/a", "default/b"]
    assert reported["unplaced"] == []


@pytest.mark.parametrize(
    "left_alone",
    [
        pod(nodeName="n1"),
        pod(status={"phase": "Succeeded"}),
        pod(status={"phase": "Failed"}),
    ],
)
def test_bound_and_finished_pods_are_not_planned(left_alone: Manifest) -> None:
    reported = plan(left_alone, NODE)

    assert (reported["nodes"], reported["existing"], reported["unplaced"]) == ([], [], [])


@pytest.mark.parametrize(
    ("held", "word"),
    [
        (pod(schedulingGates=[{"name": "example.com/wait"}]), "gate"),
        (pod(status={"nominatedNodeName": "n1"}), "nominated"),
    ],
)
def test_gated_and_nominated_pods_are_ignored_with_a_reason(held: Manifest, word: str) -> None:
    reported = plan(held, NODE)

    assert (reported["nodes"], reported["existing"]) == ([], [])
    (entry,) = reported["unplaced"]
    assert (entry["pod"], entry["nodePool"]) == ("default/a", "")
    assert word in entry["reason"]


def test_existing_nodes_take_pods_before_new_ones_are_launched() -> None:
    reported = plan(pod(), NODE)

    assert reported["existing"] == [{"node": "n1", "pods": ["default/a"]}]
    assert (reported["nodes"], reported["priceHourly"]) == ([], 0)


def test_pods_on_a_node_use_its_room() -> None:
    there = [pod(f"there-{i}", nodeName="n1") for i in range(4)]

    reported = plan(pod(), NODE, *there)

    assert reported["existing"] == []
    assert [bound(node) for node in reported["nodes"]] == [["default/a"]]


def test_without_nodeclasses_those_that_nodepools_name_are_assumed_in_the_first_three_zones() -> None:
    made_from = plan_inputs(
        read(nodepool_manifest("x", nodeclass="one"), nodepool_manifest("y", nodeclass="two")),
        embedded_catalog(),
    )

    assert sorted(made_from.ledger.nodeclasses) == ["one", "two"]
    zones = {subnet.zone for status in made_from.ledger.nodeclasses.values() for subnet in status.subnets}
    assert zones == {"us-east-1a", "us-east-1b", "us-east-1c"}


def test_with_nodeclasses_none_is_assumed() -> None:
    found = read(nodepool_manifest(nodeclass="missing"), nodeclass_manifest("other"), pod())

    made = decide(plan_inputs(found, embedded_catalog()))

    assert made.nodes == ()
    assert "missing" in str(made.obstacles)


def test_a_nodeclass_has_the_zones_and_images_of_its_status() -> None:
    arm = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]
    nodeclass = nodeclass_manifest()
    nodeclass["status"] = {
        "subnets": [{"id": "subnet-1", "zone": "us-east-1f", "zoneID": "use1-az5"}],
        "amis": [{"id": "ami-1", "requirements": arm}],
    }
    anything = nodepool_manifest(requirements=[])

    made_from = plan_inputs(read(anything, nodeclass, pod()), embedded_catalog())
    reported = plan_json(decide(made_from))

    (node,) = reported["nodes"]
    assert node["zone"] == "us-east-1f"
    facts = [made_from.catalog.facts[name] for name in node["instanceTypes"]]
    assert {fact.arch for fact in facts} == {"arm64"}


def test_a_nodeclass_that_is_not_ready_buys_nothing_and_the_plan_says_why() -> None:
    nodeclass = nodeclass_manifest()
    nodeclass["status"] = {
        "conditions": [
            {"type": "SubnetsReady", "status": "False", "reason": "SubnetsNotFound", "message": "no subnet"},
            {"type": "Ready", "status": "False"},
        ]
    }

    reported = plan(nodeclass, pod())

    assert reported["nodes"] == []
    assert "SubnetsReady: no subnet" in reported["unplaced"][0]["reason"]


def test_windows_images_boot_no_linux_node() -> None:
    windows = nodeclass_manifest(amiSelectorTerms=[{"alias": "windows2022@latest"}])
    pool = nodepool_manifest(requirements=[])

    found = plan_inputs(
        read(pool, windows, pod(nodeSelector={"kubernetes.io/os": "linux"})), embedded_catalog()
    )

    assert decide(found).nodes == ()


def test_the_assumed_zones_are_those_of_the_region_itself() -> None:
    assert assumed_zones(embedded_catalog("us-west-2")) == ("us-west-2a", "us-west-2b", "us-west-2c")


def one_type(zones: tuple[str, ...]) -> Catalog:
    facts: dict[str, InstanceFacts | StatedFacts] = {
        "big": StatedFacts(
            "big", "amd64", ("linux",), Resources({CPU: 8000, MEMORY: 2**35, PODS: 100}), Resources({}), {}
        )
    }
    return Catalog.of("", NOW, facts, {"big": tuple(Offering(zone, "on-demand", 1.0) for zone in zones)})


def test_a_catalogue_without_a_region_has_its_own_zones() -> None:
    market = one_type(("moon-2", "moon-1"))

    made_from = plan_inputs(read(nodepool_manifest(requirements=[]), pod()), market)

    assert assumed_zones(market) == ("moon-1", "moon-2")
    assert [node["zone"] for node in plan_json(decide(made_from))["nodes"]] == ["moon-1"]


CLAIM = cluster_scoped(
    "NodeClaim",
    "karpenter.sh/v1",
    "default-x",
    spec={
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
    },
    status={
        "providerID": "aws:///us-east-1a/i-9",
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
        "allocatable": {"cpu": "3900m", "memory": "15Gi", "pods": "58"},
        "conditions": [{"type": "Launched", "status": "True"}, {"type": "Registered", "status": "Unknown"}],
    },
)


def test_an_in_flight_nodeclaim_takes_pods() -> None:
    assert plan(CLAIM, pod())["existing"] == [{"node": "default-x", "pods": ["default/a"]}]


def test_a_nodeclaim_and_its_node_count_once() -> None:
    node = {**NODE, "spec": {"providerID": "aws:///us-east-1a/i-9"}}
    made_from = inputs(CLAIM, node, *(pod(f"p{i}") for i in range(6)))

    reported = plan_json(decide(made_from))

    assert [entry["node"] for entry in reported["existing"]] == ["n1"]
    assert len(reported["existing"][0]["pods"]) <= 4


@pytest.mark.parametrize(
    ("annotation", "value", "allows"),
    [
        ("limit-usd-per-hour", "0.19", False),
        ("limit-usd-per-hour", "0.9", True),
        ("limit-usd-per-month", "143", False),
        ("limit-usd-per-month", "900", True),
    ],
)
def test_limits_in_dollars_count_existing_nodes_at_the_catalogues_price(
    annotation: str, value: str, allows: bool
) -> None:
    """One m5.xlarge costs 0.192 USD an hour on demand, and so 142.85 USD in a month of 31 days."""
    labels = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": "m5.xlarge",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    about = {"name": "default-x", "labels": labels, "creationTimestamp": "2026-11-20T00:00:00Z"}
    pool = nodepool_manifest()
    pool["metadata"]["annotations"] = {f"nodesmith.dev/{annotation}": value}

    pods = [pod(f"p{number}") for number in range(6)]  # three of them fit on the node

    reported = plan_json(decide(inputs(pool, {**CLAIM, "metadata": about}, *pods)))

    assert [bool(reported["nodes"]), not reported["unplaced"]] == [allows, allows]


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ((), Phase.PENDING),
        (("Launched",), Phase.LAUNCHED),
        (("Launched", "Registered"), Phase.REGISTERED),
        (("Launched", "Registered", "Initialized"), Phase.INITIALIZED),
    ],
)
def test_the_phase_of_a_nodeclaim_follows_its_conditions(conditions: tuple[str, ...], phase: Phase) -> None:
    shown = [{"type": condition, "status": "True"} for condition in conditions]

    (claim,) = inputs({**CLAIM, "status": {**CLAIM["status"], "conditions": shown}}).ledger.claims

    assert claim.phase is phase


def test_a_nodeclaim_that_is_being_deleted_takes_no_pods() -> None:
    metadata = {"name": "default-x", "deletionTimestamp": "2026-01-01T00:00:00Z"}

    assert inputs({**CLAIM, "metadata": metadata}).ledger.claims == ()


def test_a_nodeclaim_without_allocatable_is_reported() -> None:
    (fault,) = read({**CLAIM, "status": {}}).faults

    assert (fault.object, fault.field) == ("NodeClaim/default-x", "status.allocatable")


def test_files_without_a_nodepool_are_refused_with_an_example() -> None:
    with pytest.raises(Rejected, match=r"no NodePool.*examples/express-test/nodepool\.yaml"):
        plan_inputs(read(pod()), embedded_catalog())


def test_the_suggested_example_nodepool_exists() -> None:
    file = Path(__file__).parents[4] / "examples/express-test/nodepool.yaml"

    assert [m["kind"] for m in read_manifests([str(file)]).of_kind("NodePool")] == ["NodePool"]


def test_unselected_nodepools_launch_nothing() -> None:
    found = read(nodepool_manifest("one"), nodepool_manifest("two", weight=10), pod())

    chosen = plan_inputs(restricted(found, ["one"]), embedded_catalog())

    assert {node.claim.nodepool for node in decide(chosen).nodes} == {"one"}
    with pytest.raises(Rejected, match=r"--pool twoo: no such NodePool, did you mean 'two'\?"):
        restricted(found, ["twoo"])


def shape_of(*manifests: Mapping[str, Any]) -> Any:
    (found,) = inputs(*manifests).snapshot.pods
    return found.shape


def test_a_priority_class_sets_the_priority() -> None:
    high = cluster_scoped("PriorityClass", "scheduling.k8s.io/v1", "high", value=1000)
    everyone = cluster_scoped("PriorityClass", "scheduling.k8s.io/v1", "all", value=5, globalDefault=True)

    def priority(*classes: Manifest, **spec: Any) -> int:
        (found,) = read(*classes, pod(**spec)).of_kind("Pod")
        return int(found["spec"]["priority"])

    assert priority(high, priorityClassName="high") == 1000
    assert priority(priorityClassName="system-node-critical") == 2_000_001_000
    assert priority(everyone) == 5
    assert priority(everyone, high, priority=7, priorityClassName="high") == 7
    assert priority() == 0


def test_a_limit_range_sets_the_missing_requests_of_pods_in_its_namespace() -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]},
    }
    silent = [{"name": "c", "image": "i"}]
    assert shape_of(limits, pod(containers=silent)).requests.of(CPU) == 2000
    assert shape_of(pod(containers=silent)).requests.of(CPU) == 0


def test_a_runtime_class_adds_its_overhead_selector_and_tolerations_once() -> None:
    gvisor = cluster_scoped(
        "RuntimeClass",
        "node.k8s.io/v1",
        "gvisor",
        handler="runsc",
        overhead={"podFixed": {"cpu": "250m"}},
        scheduling={
            "nodeSelector": {"example.com/runtime": "gvisor"},
            "tolerations": [{"operator": "Exists"}],
        },
    )

    fresh = shape_of(gvisor, pod(runtimeClassName="gvisor"))

    assert fresh.requests.of(CPU) == 1250
    assert "example.com/runtime" in fresh.terms[0]
    (admitted,) = read(gvisor, pod(runtimeClassName="gvisor")).of_kind("Pod")
    again = shape_of(gvisor, admitted)
    assert (again.requests, again.terms, again.tolerations) == (
        fresh.requests,
        fresh.terms,
        fresh.tolerations,
    )


def test_a_missing_class_is_reported_once_and_ignored() -> None:
    found = read(nodepool_manifest(), *(pod(name, priorityClassName="hihg") for name in "abc"))

    assert [fault.field for fault in found.faults] == ["spec.priorityClassName"]
    assert "PriorityClass 'hihg' does not exist" in found.faults[0].message
    assert len(plan_inputs(found, embedded_catalog()).snapshot.pods) == 3


def test_ports_of_the_hosts_network_are_host_ports() -> None:
    ports = [{"containerPort": 80}]
    container = {"name": "c", "image": "x", "ports": ports}

    assert shape_of(pod(hostNetwork=True, containers=[container])).host_ports


def test_a_volume_without_a_phase_is_available_for_a_waiting_claim() -> None:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1b"]}
    volume = cluster_scoped(
        "PersistentVolume",
        "v1",
        "pv",
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
    )
    storage_class = cluster_scoped(
        "StorageClass",
        "storage.k8s.io/v1",
        "local",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    claim = cluster_scoped(
        "PersistentVolumeClaim",
        "v1",
        "data",
        spec={
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5Gi"}},
        },
    )
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]

    (node,) = plan(volume, storage_class, claim, pod(volumes=mounts))["nodes"]

    assert node["zone"] == "us-east-1b"


def test_every_namespace_in_use_is_there() -> None:
    elsewhere = pod("b")
    elsewhere["metadata"]["namespace"] = "shop"

    names = [m["metadata"]["name"] for m in read(pod(), elsewhere).of_kind("Namespace")]

    assert sorted(names) == ["default", "shop"]


def test_daemonsets_are_overhead_of_new_nodes() -> None:
    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": pod()["spec"]},
        },
    }

    (node,) = plan(daemonset, pod())["nodes"]

    assert node["requests"] == {"cpu": "2", "memory": "2Gi", "pods": "2"}


def test_the_same_files_give_the_same_bytes() -> None:
    everything = [pod(f"p{i}", nodeSelector={"kubernetes.io/arch": "amd64"}) for i in range(30)]

    reported = [canonical(plan(*some)) for some in (everything, list(reversed(everything)), everything)]

    assert len(set(reported)) == 1


def test_a_planned_node_lists_its_type_and_pods() -> None:
    reported = plan(*(pod(f"p{i}") for i in range(3)))

    (node,) = reported["nodes"]
    assert list(node) == [
        "name",
        "nodePool",
        "instanceType",
        "instanceTypes",
        "zone",
        "capacityType",
        "priceHourly",
        "labels",
        "requests",
        "pods",
    ]
    assert list(reported) == [
        "nodes",
        "existing",
        "unplaced",
        "priceHourly",
        "lowerBoundHourly",
        "seconds",
        "steps",
    ]
    assert node["instanceTypes"][0] == node["instanceType"]
    assert node["pods"] == ["default/p0", "default/p1", "default/p2"]
    assert node["requests"] == {"cpu": "3", "memory": "3Gi", "pods": "3"}
    assert reported["priceHourly"] == pytest.approx(node["priceHourly"])
    assert 0 < reported["lowerBoundHourly"] <= reported["priceHourly"]


def test_an_unplaced_pod_shows_the_nodepool_and_the_fix() -> None:
    reported = plan(pod(nodeSelector={"kubernetes.io/arch": "s390x"}), pod("b"))

    (entry,) = reported["unplaced"]
    assert entry["pod"] == "default/a"
    assert entry["nodePool"] == "default"
    assert "kubernetes.io/arch" in entry["blocking"]
    assert entry["fix"]
    assert entry["reason"]


def test_a_plan_reads_every_kind_that_a_snapshot_is_made_of() -> None:
    of_today = [kind for kind in WATCHED if "/v1/" in kind.path and kind is not LEASES]
    assert len(of_today) >= 13  # old versions are converted when files are read
    for kind in of_today:
        group = kind.path.removeprefix("/apis/").partition("/")[0] if "/apis/" in kind.path else ""
        assert GROUPS.get(kind.kind) == group


def test_budgets_and_attachments_of_a_cluster_are_read_without_complaints() -> None:
    guarding = budget("web", minAvailable="50%")
    held = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", **attachment("pv-1", "n1")}
    assert read(guarding, held).unread == {}
    seen = inputs(guarding, held).snapshot
    assert [(budget.key, budget.min_available) for budget in seen.budgets] == [("default/web", "50%")]
    assert seen.problems == ()


def test_a_plan_respects_capacity_quotas() -> None:
    apart = {"affinity": anti_affinity("a")}
    some = [
        {**pod(f"a-{n}", **apart), "metadata": {"name": f"a-{n}", "labels": {"app": "a"}}} for n in range(4)
    ]
    planned = plan(*some, quota_manifest(limits={"nodes": "3"}))
    (left,) = planned["unplaced"]
    assert len(planned["nodes"]) == 3
    assert "the limit of 3 nodes of CapacityQuota gold is reached" in left["reason"]
