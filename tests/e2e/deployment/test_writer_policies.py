"""Admission policies on the real API server: what users nodesmith:writer:<cluster> may write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.cluster import ApiCluster
from nodesmith.composition.parts import system_time
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import REGISTERED, TERMINATION_FINALIZER, UNREGISTERED
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.kubernetes.evictions import Evicted, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith_local.backends.real import RealCluster
from nodesmith_local.controlplane import User
from tests import builders
from tests.contract.worlds import a_claim
from tests.e2e.conftest import BUILD
from tests.e2e.deployment.policies import wait_for_policies
from tests.patience import eventually

WRITER, ADMIN = "k8s-aws-v1.writer", "k8s-aws-v1.admin"
OURS = {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"}
AUTO_MODE = {"karpenter.sh/nodepool": "general-purpose", "eks.amazonaws.com/nodeclass": "default"}
FOREIGN_LABELS: Mapping[str, Mapping[str, str]] = {
    "auto-mode": AUTO_MODE,
    "node-group": {"eks.amazonaws.com/nodegroup": "system"},
    "self-managed": {},
}
CLAIMS, NODES = "/apis/karpenter.sh/v1/nodeclaims", "/api/v1/nodes"
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
PODS, EVENTS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/events"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plane() -> Iterator[RealCluster]:
    known = {WRITER: User("nodesmith:writer:express"), ADMIN: User("admin", ("system:masters",))}
    with RealCluster(
        BUILD / "test_writer_policies" / "plane", authenticate=known.get, rights="express"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane: RealCluster) -> ApiServer:
    return ApiServer(connect(plane.url, plane.ca_bundle, lambda: ADMIN))


@pytest.fixture(scope="module")
def server(plane: RealCluster, admin: ApiServer) -> ApiServer:
    """Return the API server as the functions access it, once it enforces the policies."""
    wait_for_policies(admin)
    return ApiServer(connect(plane.url, plane.ca_bundle, lambda: WRITER))


@pytest.fixture(scope="module")
def writer(server: ApiServer) -> ApiCluster:
    return ApiCluster(server, system_time)


def put_node(admin: ApiServer, name: str, labels: Mapping[str, str], *taints: Json) -> None:
    spec = {"providerID": f"aws:///us-east-1a/i-{name}", "taints": list(taints)}
    admin.create(NODES, {"metadata": {"name": name, "labels": dict(labels)}, "spec": spec})


def put_pod(admin: ApiServer, name: str, node: str = "") -> None:
    """Create a pod that no scheduler looks at, because kube-scheduler clears nominations."""
    spec: Json = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulerName": "none",
        "terminationGracePeriodSeconds": 0,
    }
    admin.create(PODS, {"metadata": {"name": name}, "spec": {**spec, **({"nodeName": node} if node else {})}})


def there(admin: ApiServer, path: str) -> Json:
    found = admin.get(path)
    assert found is not None, f"{path} is gone"
    return found


def test_the_api_servers_type_check_finds_no_warnings_in_any_policy(
    plane: RealCluster,
    server: ApiServer,  # noqa: ARG001 needed so that policies are enforced
) -> None:
    def checked() -> bool:
        found = plane.objects.list("validatingadmissionpolicies")
        return len(found) >= 6 and all("typeChecking" in (policy.get("status") or {}) for policy in found)

    eventually(checked, "every policy's expressions have been checked")
    warnings = {
        policy["metadata"]["name"]: policy["status"]["typeChecking"]
        for policy in plane.objects.list("validatingadmissionpolicies")
    }
    assert set(map(str, warnings.values())) == {"{}"}, warnings


def test_a_node_with_its_nodeclass_label_can_be_written_and_deleted(
    admin: ApiServer, writer: ApiCluster
) -> None:
    put_node(admin, "ours", OURS)
    patch = NodePatch({"a": "b"}, provider_id="aws:///us-east-1a/i-ours", unschedulable=True)
    assert writer.register_node("ours", patch)
    writer.request_deletion("Node", "ours", patch.provider_id)
    writer.release_node("ours", patch.provider_id)
    assert admin.get(f"{NODES}/ours") is None


def test_a_node_without_labels_can_be_registered(admin: ApiServer, writer: ApiCluster) -> None:
    put_node(admin, "plain", {}, {"key": UNREGISTERED.key, "effect": str(UNREGISTERED.effect)})
    patch = NodePatch(
        {**OURS, REGISTERED: "true"},
        provider_id="aws:///us-east-1a/i-plain",
        remove_taints=(UNREGISTERED,),
        add_finalizers=(TERMINATION_FINALIZER,),
    )
    assert writer.register_node("plain", patch)
    assert there(admin, f"{NODES}/plain")["metadata"]["finalizers"] == [TERMINATION_FINALIZER]


@pytest.mark.parametrize("owner", FOREIGN_LABELS)
def test_a_foreign_node_cannot_be_written_or_deleted(admin: ApiServer, server: ApiServer, owner: str) -> None:
    put_node(admin, owner, FOREIGN_LABELS[owner])
    uid = there(admin, f"{NODES}/{owner}")["metadata"]["uid"]
    denied = rf"Node {owner}: nodesmith's functions write and delete only Nodes that nodesmith has launched"
    with pytest.raises(Rejected, match=denied):
        server.patch(f"{NODES}/{owner}", {"spec": {"unschedulable": True}})
    with pytest.raises(Rejected, match=denied):
        server.delete(f"{NODES}/{owner}")
    after = there(admin, f"{NODES}/{owner}")
    assert after["metadata"]["uid"] == uid
    assert "unschedulable" not in after["spec"]


@pytest.mark.parametrize("owner", ["auto-mode", "node-group"])
def test_a_node_with_another_owners_label_cannot_be_taken_over(
    admin: ApiServer, server: ApiServer, owner: str
) -> None:
    name = f"taken-{owner}"
    put_node(admin, name, FOREIGN_LABELS[owner])
    with pytest.raises(Rejected, match=f"Node {name}: .*this one has the label eks.amazonaws.com/node"):
        server.patch(f"{NODES}/{name}", {"metadata": {"labels": OURS}})


def test_foreign_finalizers_and_nodesmiths_labels_on_a_node_cannot_be_removed(
    admin: ApiServer, server: ApiServer
) -> None:
    put_node(admin, "held", OURS)
    admin.patch(f"{NODES}/held", {"metadata": {"finalizers": ["example.com/a", TERMINATION_FINALIZER]}})
    with pytest.raises(
        Rejected, match=r"Node held: .*may add and remove the finalizer karpenter.sh/termination"
    ):
        server.patch(f"{NODES}/held", {"metadata": {"finalizers": [TERMINATION_FINALIZER]}})
    with pytest.raises(Rejected, match=r"Node held: .*may not remove the label"):
        server.patch(f"{NODES}/held", {"metadata": {"labels": {"karpenter.k8s.aws/ec2nodeclass": None}}})
    server.patch(f"{NODES}/held", {"metadata": {"finalizers": ["example.com/a"]}})


def test_a_nodeclaim_can_become_the_owner_of_its_node_and_foreign_owners_cannot_be_removed(
    admin: ApiServer, server: ApiServer, writer: ApiCluster
) -> None:
    put_node(admin, "owned", OURS)
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "0-1-2"}
    admin.patch(f"{NODES}/owned", {"metadata": {"ownerReferences": [theirs]}})
    writer.apply_nodeclaim({**a_claim(), "metadata": {"name": "owner"}})
    for _ in range(2):
        assert writer.register_node("owned", NodePatch({}, owner="owner"))
        owners = there(admin, f"{NODES}/owned")["metadata"]["ownerReferences"]
        assert [(owner["kind"], owner.get("blockOwnerDeletion")) for owner in owners] == [
            ("ConfigMap", None),
            ("NodeClaim", True),
        ]
    with pytest.raises(Rejected, match=r"Node owned: .*no other finalizer or owner"):
        server.patch(f"{NODES}/owned", {"metadata": {"ownerReferences": owners[1:]}})
    writer.delete_nodeclaim("owner")


def test_only_the_nominated_node_of_a_waiting_pod_can_be_written(
    admin: ApiServer, server: ApiServer, writer: ApiCluster
) -> None:
    put_pod(admin, "waits")
    writer.nominate("some-node", ["default/waits"])
    assert there(admin, f"{PODS}/waits")["status"]["nominatedNodeName"] == "some-node"
    writer.clear_nominations("some-node", ["default/waits"])
    assert "nominatedNodeName" not in there(admin, f"{PODS}/waits")["status"]
    ready = [{"type": "Ready", "status": "True"}]
    refused: Mapping[str, Json] = {
        "podIP": {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        "phase": {"status": {"phase": "Succeeded"}},
        "conditions": {"status": {"conditions": ready}},
    }
    for field, patch in refused.items():
        said = (
            rf"Pod default/waits: .*may write only status.nominatedNodeName, and this changes status\.{field}"
        )
        with pytest.raises(Rejected, match=said):
            server.patch(f"{PODS}/waits/status", patch)
    with pytest.raises(Rejected, match=r"Pod default/waits: .*may not write a pod's metadata"):
        server.patch(f"{PODS}/waits/status", {"metadata": {"labels": {"app": "victim"}}})


def test_pods_on_nodesmiths_nodes_can_be_evicted_and_deleted(admin: ApiServer, writer: ApiCluster) -> None:
    put_node(admin, "drained", OURS)
    for name in ("evicted", "deleted"):
        put_pod(admin, name, "drained")
    assert list(writer.evict([PodOnNode("default/evicted", "drained")]).values()) == [Evicted()]
    assert list(writer.delete_pods([PodOnNode("default/deleted", "drained", 1)]).values()) == [Evicted()]
    for name in ("evicted", "deleted"):
        found = admin.get(f"{PODS}/{name}")
        assert found is None or found["metadata"]["deletionTimestamp"]


def test_a_pod_can_be_ended_only_by_its_uid_and_only_on_a_node(admin: ApiServer, server: ApiServer) -> None:
    put_node(admin, "named", OURS)
    put_pod(admin, "named", "named")
    put_pod(admin, "unbound")
    with pytest.raises(Rejected, match=r"Pod default/named: .*delete a pod only by its uid"):
        server.delete(f"{PODS}/named")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "named"}}
    with pytest.raises(Rejected, match=r"Pod default/named: .*evict a pod only by its uid"):
        server.create(f"{PODS}/named/eviction", eviction)
    uid = there(admin, f"{PODS}/unbound")["metadata"]["uid"]
    with pytest.raises(Rejected, match=r"Pod default/unbound: .*only pods that are on a node"):
        server.delete(f"{PODS}/unbound", uid)


def test_nodeclaims_of_other_controllers_cannot_be_created_written_or_deleted(
    admin: ApiServer, server: ApiServer, writer: ApiCluster
) -> None:
    writer.apply_nodeclaim(a_claim(nodeName="n"))
    ref = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}
    foreign = {**a_claim(), "metadata": {"name": "theirs"}}
    foreign["spec"] = {**foreign["spec"], "nodeClassRef": ref}
    denied = "NodeClaim theirs: its nodeClassRef has the group eks.amazonaws.com"
    with pytest.raises(Rejected, match=denied):
        server.create(CLAIMS, foreign)
    admin.create(CLAIMS, foreign)
    for path, patch in (
        ("", {"metadata": {"labels": {"a": "b"}}}),
        ("/status", {"status": {"nodeName": "n"}}),
    ):
        with pytest.raises(Rejected, match=denied):
            server.patch(f"{CLAIMS}/theirs{path}", patch)
    with pytest.raises(Rejected, match=denied):
        server.delete(f"{CLAIMS}/theirs")
    writer.delete_nodeclaim("default-abc")
    assert admin.get(f"{CLAIMS}/default-abc") is None


def test_nodepools_of_other_controllers_cannot_get_annotations_or_conditions(
    admin: ApiServer, server: ApiServer, writer: ApiCluster
) -> None:
    pool = builders.nodepool_manifest("general-purpose")
    pool["metadata"] = {"name": "general-purpose"}
    pool["spec"]["template"]["spec"]["nodeClassRef"] = {
        "group": "eks.amazonaws.com",
        "kind": "NodeClass",
        "name": "default",
    }
    admin.create(POOLS, pool)
    denied = "NodePool general-purpose: its nodeClassRef has the group eks.amazonaws.com"
    condition = {"type": "Ready", "status": "False", "reason": "x", "message": ""}
    with pytest.raises(Rejected, match=denied):
        writer.annotate("NodePool", "general-purpose", {"karpenter.sh/nodepool-hash": "1"})
    with pytest.raises(Rejected, match=denied):
        writer.merge_status("NodePool", "general-purpose", {"conditions": [condition]})
    own = {**builders.nodepool_manifest("own"), "metadata": {"name": "own"}}
    admin.create(POOLS, own)
    writer.merge_status("NodePool", "own", {"conditions": [condition]})
    assert server.get(f"{POOLS}/own") is not None


def test_only_karpenters_finalizer_can_be_removed_from_a_deleted_ec2nodeclass(
    admin: ApiServer, server: ApiServer
) -> None:
    path, theirs = f"{CLASSES}/leaves", "karpenter.k8s.aws/termination"
    made = builders.nodeclass_manifest("leaves")
    admin.create(CLASSES, {**made, "metadata": {"name": "leaves", "finalizers": [theirs, "example.com/a"]}})
    denied = "may only write annotations and remove Karpenter's finalizer"
    with pytest.raises(Rejected, match=denied):
        server.patch(path, {"metadata": {"finalizers": ["example.com/a"]}})
    admin.delete(path)
    with pytest.raises(Rejected, match=denied):
        server.patch(path, {"metadata": {"finalizers": [theirs]}})
    server.patch(path, {"metadata": {"finalizers": ["example.com/a"]}})
    assert there(admin, path)["metadata"]["finalizers"] == ["example.com/a"]


def test_only_nodesmiths_own_events_can_be_written(
    admin: ApiServer, server: ApiServer, writer: ApiCluster
) -> None:
    reported = ObjectEvent("Pod", "default/gone", "FailedScheduling", "thing")
    for _ in range(2):
        writer.publish([reported])
    about = {"kind": "Pod", "namespace": "default", "name": "gone"}
    event = {"reason": "Killing", "involvedObject": about, "source": {"component": "kubelet"}}
    denied = "Event default/forged: .*only Events whose source.component is nodesmith"
    with pytest.raises(Rejected, match=denied):
        server.create(EVENTS, {**event, "metadata": {"name": "forged"}})
    admin.create(EVENTS, {**event, "metadata": {"name": "forged"}})
    with pytest.raises(Rejected, match=denied):
        server.patch(f"{EVENTS}/forged", {"source": {"component": "nodesmith"}})


def test_other_users_are_not_limited(admin: ApiServer) -> None:
    put_node(admin, "free", {"eks.amazonaws.com/nodegroup": "system"})
    put_pod(admin, "free", "free")
    admin.patch(f"{PODS}/free/status", {"status": {"phase": "Running"}})
    admin.delete(f"{PODS}/free")
    admin.patch(f"{NODES}/free", {"spec": {"unschedulable": True}})
    admin.delete(f"{NODES}/free")
    assert admin.get(f"{NODES}/free") is None
