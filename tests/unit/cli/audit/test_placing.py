"""The audit of single pods: labels, taints, resources, ports, volumes."""

from typing import Any

import pytest

from nodesmith_cli.audit import Kind
from tests.objects.audits import (
    DRIVER,
    HOST,
    ZONE,
    apart,
    buys,
    daemonset,
    found,
    kinds,
    node,
    nodepool,
    on_nodes,
    plan,
    pod,
    wants,
)

POOL = nodepool()


def one(on: dict[str, Any], *more: Any, pool: Any = POOL, **fields: Any) -> set[Kind]:
    """Audit a plan that launches a node for one pod, p."""
    return kinds([pool, pod("p", **on), *more], plan(buys("n", "1", ["p"], **fields)))


def test_a_plan_that_places_every_pod_is_correct() -> None:
    pods = [pod("p"), pod("q", "2")]
    assert found([POOL, *pods], plan(buys("n", "3", ["p", "q"], ["m.large", "m.huge"]))) == []


@pytest.mark.parametrize(
    ("term", "suits"),
    [
        ([wants("example.com/size", "In", "large", "small")], True),
        ([wants("example.com/size", "In", "small")], False),
        ([wants("example.com/size", "NotIn", "small"), wants("example.com/absent", "NotIn", "x")], True),
        ([wants("example.com/size", "NotIn", "large")], False),
        ([wants("example.com/size", "Exists")], True),
        ([wants("example.com/absent", "Exists")], False),
        ([wants("example.com/absent", "DoesNotExist")], True),
        ([wants("example.com/size", "DoesNotExist")], False),
        ([wants("example.com/cpu", "Gt", "3"), wants("example.com/cpu", "Lt", "5")], True),
        ([wants("example.com/cpu", "Gt", "4")], False),
        ([wants("example.com/size", "Gt", "1")], False),
        ([wants("failure-domain.beta.kubernetes.io/zone", "In", "z-a")], True),
        ([wants(HOST, "In", "n")], False),
        ([], False),
    ],
)
def test_required_node_affinity_is_evaluated_like_in_kube_scheduler(term: list[Any], suits: bool) -> None:
    assert one({"affinity": on_nodes(term)}) == (set() if suits else {Kind.LABELS})


def test_one_of_several_affinity_terms_is_enough() -> None:
    no, yes = [wants(ZONE, "In", "z-b")], [wants(ZONE, "In", "z-a")]
    assert one({"affinity": on_nodes(no, yes)}) == set()


def test_a_pod_that_names_its_node_cannot_be_on_a_new_one() -> None:
    named = on_nodes([wants("metadata.name", "In", "n")], field="matchFields")
    assert one({"affinity": named}) == {Kind.LABELS}
    manifests = [POOL, node("n"), pod("p", affinity=named)]
    assert found(manifests, plan(existing={"n": ["p"]})) == []


def test_a_node_selector_is_checked_against_every_listed_type() -> None:
    on = {"nodeSelector": {"example.com/size": "large"}}
    assert one(on) == set()
    assert one(on, types=["m.large", "m.huge"]) == {Kind.LABELS}


def test_taints_of_a_nodepool_repel_pods_without_a_toleration() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    pool = nodepool(taints=[taint])
    assert one({}, pool=pool) == {Kind.TAINT}
    assert one({"tolerations": [{"key": "team", "operator": "Exists"}]}, pool=pool) == set()
    assert one({"tolerations": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}, pool=pool) == set()
    assert one({"tolerations": [{"key": "team", "value": "b"}]}, pool=pool) == {Kind.TAINT}
    assert one({}, pool=nodepool(taints=[{**taint, "effect": "PreferNoSchedule"}])) == set()
    assert one({}, pool=nodepool(taints=[{**taint, "effect": "NoExecute"}])) == {Kind.TAINT}


def test_a_cordoned_node_takes_no_pods() -> None:
    manifests = [POOL, node("n", unschedulable=True), pod("p")]
    assert found(manifests, plan(existing={"n": ["p"]})) == [("taint", "default/p")]


def test_every_listed_type_must_have_room_for_the_pods() -> None:
    assert one({"cpu": "3"}, types=["m.large"]) == {Kind.REQUESTS}
    manifests = [POOL, pod("p", "3")]
    assert kinds(manifests, plan(buys("n", "3", ["p"], ["m.large", "m.small"]))) == {Kind.RESOURCES}


@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]},
        {
            "initContainers": [
                {"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "4"}}}
            ]
        },
        {"overhead": {"cpu": "4"}},
        {"resources": {"requests": {"cpu": "5"}}},
        {"requests": {"nvidia.com/gpu": "1"}},
        {"requests": {"ephemeral-storage": "21Gi"}},
    ],
)
def test_a_pod_uses_more_than_its_containers_request(spec: dict[str, Any]) -> None:
    assert Kind.RESOURCES in one(spec)


def test_sidecars_run_beside_the_init_containers_after_them() -> None:
    def asks(cpu: str, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    inits = [asks("3"), asks("1", restartPolicy="Always"), asks("2")]
    manifests = [POOL, pod("p", initContainers=inits)]
    assert found(manifests, plan(buys("n", "3", ["p"]))) == []


def test_a_limit_without_a_request_counts_as_a_request() -> None:
    limited = [{"name": "main", "resources": {"limits": {"cpu": "5", "memory": "1Gi"}}}]
    assert Kind.RESOURCES in one({"containers": limited})


@pytest.mark.parametrize(
    ("offered", "asked", "fits"),
    [
        ("nvidia.com/gpu=2", {"nvidia.com/gpu": "2"}, True),
        ("nvidia.com/gpu=2", {"nvidia.com/gpu": "3"}, False),
        ("nvidia.com/gpu.shared=2, nvidia.com/mig-1g.10gb=1", {"nvidia.com/gpu.shared": "2"}, True),
        ("nvidia.com/gpu.shared=2", {"nvidia.com/gpu": "1"}, False),
        ("nvidia.com/gpu:2", {"nvidia.com/gpu": "1"}, True),
    ],
)
def test_nodes_offer_what_the_device_plugin_makes_of_their_gpus(
    offered: str, asked: dict[str, str], fits: bool
) -> None:
    pool = nodepool()
    pool["metadata"]["annotations"] = {"nodesmith.dev/gpu-resources": offered}
    launch = buys("n", "1", ["p"], ["g.large"])
    launch["requests"] |= asked
    assert kinds([pool, pod("p", requests=asked)], plan(launch)) == (set() if fits else {Kind.RESOURCES})


def test_a_node_takes_no_more_pods_than_its_limit() -> None:
    pods = [pod(f"p{i}", "100m") for i in range(11)]
    manifests = [POOL, *pods]
    assert found(manifests, plan(buys("n", "1100m", [f"p{i}" for i in range(11)]))) == [("resources", "n")]


def test_bound_pods_use_the_room_of_a_node_and_finished_ones_do_not() -> None:
    there = [pod("old", "3", node="n"), {**pod("over", "3", node="n"), "status": {"phase": "Succeeded"}}]
    manifests = [POOL, node("n"), *there, pod("p", "1")]
    assert found(manifests, plan(existing={"n": ["p"]})) == []
    manifests = [POOL, node("n"), *there, pod("p", "2")]
    assert found(manifests, plan(existing={"n": ["p"]})) == [("resources", "n")]


def test_daemonsets_use_room_on_new_nodes_and_on_nodes_without_their_pod() -> None:
    agent = daemonset()
    manifests = [POOL, agent, pod("p", "4")]
    assert found(manifests, plan(buys("n", "4500m", ["p"], daemons=1))) == [("resources", "n")]
    manifests = [POOL, agent, node("n"), pod("p", "4")]
    assert found(manifests, plan(existing={"n": ["p"]})) == [("resources", "n")]
    running = pod("agent-1", "100m", namespace="kube-system", owner="DaemonSet/agent", node="n")
    manifests = [POOL, agent, node("n"), running, pod("p", "3900m")]
    assert found(manifests, plan(existing={"n": ["p"]})) == []


def test_daemonsets_that_do_not_match_a_node_use_no_room() -> None:
    elsewhere = daemonset(nodeSelector={"example.com/size": "huge"})
    assert found([POOL, elsewhere, pod("p", "4")], plan(buys("n", "4", ["p"]))) == []
    tainted = nodepool(taints=[{"key": "team", "effect": "NoSchedule"}])
    tolerant = pod("p", "4", tolerations=[{"operator": "Exists"}])
    assert found([tainted, daemonset(), tolerant], plan(buys("n", "4", ["p"]))) == []


def test_host_ports_conflict_unless_both_have_different_addresses() -> None:
    def with_port(name: str, **port: Any) -> dict[str, Any]:
        ports = [{"containerPort": 80, "hostPort": 8080, **port}]
        containers = [{"name": "c", "ports": ports, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
        return pod(name, containers=containers)

    def audited(*pods: Any) -> list[tuple[str, str]]:
        return found([POOL, *pods], plan(buys("n", "2", ["p", "q"])))

    assert audited(with_port("p"), with_port("q")) == [("host-port", "default/q")]
    assert audited(with_port("p"), with_port("q", protocol="UDP")) == []
    assert audited(with_port("p", hostIP="10.0.0.1"), with_port("q", hostIP="10.0.0.2")) == []
    assert audited(with_port("p", hostIP="10.0.0.1"), with_port("q", hostIP="::")) != []


def test_host_ports_of_daemonsets_and_of_bound_pods_are_taken() -> None:
    agent = daemonset(ports=[{"hostPort": 9100}])
    manifests = [POOL, agent, pod("p", ports=[9100])]
    assert found(manifests, plan(buys("n", "1500m", ["p"], daemons=1))) == [("host-port", "default/p")]
    manifests = [POOL, node("n"), pod("old", ports=[80], node="n"), pod("p", ports=[80])]
    assert found(manifests, plan(existing={"n": ["p"]})) == [("host-port", "default/p")]


def test_an_undetermined_label_may_have_the_value_that_all_pods_of_a_node_require() -> None:
    pool = nodepool(requirements=[wants("team", "In", "a", "b")])
    a: dict[str, Any] = {"nodeSelector": {"team": "a"}}
    b: dict[str, Any] = {"nodeSelector": {"team": "b"}}
    assert found([pool, pod("p", **a), pod("q")], plan(buys("n", "2", ["p", "q"]))) == []
    assert kinds([pool, pod("p", **a), pod("q", **b)], plan(buys("n", "2", ["p", "q"]))) == {Kind.LABELS}
    assert one({"nodeSelector": {"team": "c"}}, pool=pool) == {Kind.LABELS}
    assert (
        one({"nodeSelector": {"team": "c"}}, pool=nodepool(requirements=[wants("team", "Exists")])) == set()
    )


def claim(name: str, **spec: Any) -> dict[str, Any]:
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if "volumeName" in spec else {}
    about = {"name": name, "namespace": "default", **bound}
    return {"kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}


def volume(name: str, zone: str, driver: str = DRIVER) -> dict[str, Any]:
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wants(ZONE, "In", zone)]}]}}
    csi = {"driver": driver, "volumeHandle": f"vol-{name}"}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"nodeAffinity": affinity, "csi": csi},
    }


def mounting(name: str, *claims: str, **fields: Any) -> dict[str, Any]:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return pod(name, volumes=volumes, **fields)


WAITING = {
    "kind": "StorageClass",
    "metadata": {"name": "wait"},
    "provisioner": DRIVER,
    "volumeBindingMode": "WaitForFirstConsumer",
}


def test_a_pod_goes_where_its_volume_is() -> None:
    manifests = [POOL, mounting("p", "c"), claim("c", volumeName="v")]
    assert found([*manifests, volume("v", "z-a")], plan(buys("n", "1", ["p"]))) == []
    assert found([*manifests, volume("v", "z-b")], plan(buys("n", "1", ["p"]))) == [("volume", "default/p")]
    assert found([POOL, mounting("p", "c")], plan(buys("n", "1", ["p"]))) == [("volume", "default/p")]


def test_an_unprovisioned_volume_is_placed_where_its_class_allows() -> None:
    manifests = [POOL, mounting("p", "c"), claim("c", storageClassName="wait")]
    bought = plan(buys("n", "1", ["p"]))
    assert found([*manifests, WAITING], bought) == []
    only_b = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z-b"]}]}]
    assert found([*manifests, {**WAITING, "allowedTopologies": only_b}], bought) == [("volume", "default/p")]
    at_once = {**WAITING, "volumeBindingMode": "Immediate"}
    assert found([*manifests, at_once], bought) == [("volume", "default/p")]


def test_pods_that_share_a_claim_without_a_volume_share_its_zone() -> None:
    manifests = [POOL, WAITING, claim("c", storageClassName="wait"), mounting("p", "c"), mounting("q", "c")]
    together = plan(buys("n", "1", ["p"]), buys("m", "1", ["q"]))
    assert found(manifests, together) == []
    asunder = plan(buys("n", "1", ["p"]), buys("m", "1", ["q"], zone="z-b"))
    assert found(manifests, asunder) == [("volume", "default/p")]


def test_a_node_attaches_no_more_volumes_than_it_can() -> None:
    claims = [claim(f"c{i}", volumeName=f"v{i}") for i in range(3)]
    volumes = [volume(f"v{i}", "z-a") for i in range(3)]
    pods = [mounting("p", "c0", "c1"), mounting("q", "c1", "c2")]
    bought = plan(buys("n", "2", ["p", "q"]))
    assert found([POOL, *claims, *volumes, *pods], bought) == [("attach-limit", "n")]
    drivers = [{"name": DRIVER, "allocatable": {"count": 3}}]
    csinode = {"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": drivers}}
    kept = plan(existing={"n": ["p", "q"]})
    assert found([POOL, *claims, *volumes, *pods, node("n"), csinode], kept) == []
    drivers[0]["allocatable"] = {"count": 2}
    assert found([POOL, *claims, *volumes, *pods, node("n"), csinode], kept) == [("attach-limit", "n")]


def test_a_new_node_has_the_attach_limit_of_existing_nodes_if_the_catalogue_has_none() -> None:
    claims = [claim(f"c{i}", volumeName=f"v{i}") for i in range(2)]
    volumes = [volume(f"v{i}", "z-a", "disk.example.com") for i in range(2)]
    pods = [mounting("p", "c0"), mounting("q", "c1")]
    there = node("there", labels={"node.kubernetes.io/instance-type": "m.large"})
    drivers = [{"name": "disk.example.com", "allocatable": {"count": 1}}]
    csinode = {"kind": "CSINode", "metadata": {"name": "there"}, "spec": {"drivers": drivers}}
    cluster = [POOL, *claims, *volumes, *pods, there, csinode]
    assert found(cluster, plan(buys("n", "2", ["p", "q"], ["m.large"]))) == [("attach-limit", "n")]
    assert found(cluster, plan(buys("n", "2", ["p", "q"], ["m.huge"]))) == []
    drivers[0]["allocatable"] = {"count": 2}
    assert found(cluster, plan(buys("n", "2", ["p", "q"], ["m.large"]))) == []


def test_a_claim_in_flight_takes_pods_without_its_startup_taints() -> None:
    claim_object: dict[str, Any] = {
        "kind": "NodeClaim",
        "metadata": {"name": "default-x", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {
            "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            "requirements": [wants(ZONE, "In", "z-a")],
        },
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
    }
    wanting = pod("p", nodeSelector={ZONE: "z-a"})
    assert found([POOL, claim_object, wanting], plan(existing={"default-x": ["p"]})) == []
    assert found([POOL, claim_object, pod("p", "3")], plan(existing={"default-x": ["p"]})) == [
        ("resources", "default-x")
    ]
    claim_object["status"] = {**claim_object["status"], "nodeName": "n"}
    young = node("n", taints=[{"key": "cni", "effect": "NoExecute"}])
    assert found([POOL, claim_object, young, wanting], plan(existing={"default-x": ["p"]})) == []


def test_pods_of_a_terminating_node_may_move() -> None:
    leaving = node("old", about={"deletionTimestamp": "2026-11-21T12:00:00Z"})
    manifests = [POOL, leaving, pod("p", node="old"), pod("stays", node="old")]
    assert found(manifests, plan(buys("n", "1", ["p"]))) == []
    assert found([POOL, node("old"), pod("p", node="old")], plan(buys("n", "1", ["p"]))) == [
        ("pod-not-pending", "default/p")
    ]
    assert found([*manifests, pod("q")], plan(existing={"old": ["q"]})) == [("node-closed", "old")]


def test_an_unplaced_pod_that_fits_on_an_existing_node_is_a_warning() -> None:
    manifests = [POOL, node("n"), pod("p")]
    left = plan(unplaced={"p": "no room"})
    assert found(manifests, left) == [("could-fit", "default/p")]
    assert found([POOL, node("n", cpu="500m"), pod("p")], left) == []
    shy = pod("old", "1", affinity=apart("web"), node="n")
    assert found([POOL, node("n"), shy, pod("p", labels={"app": "web"})], left) == []
