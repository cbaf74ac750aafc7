"""The permissions in forwarder/base are exactly those that the adapters need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Method, connect
from nodesmith.adapters.kubernetes.cluster import ApiCluster, Observer
from nodesmith.adapters.kubernetes.writes import patched_node
from nodesmith.composition.parts import system_time
from nodesmith.decisions.lifecycle import registration_patch
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.karpenter.capacitybuffers import parse_buffer
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith_local.apiserver import ApiError
from nodesmith_local.apiserver import ApiServer as LocalApiServer
from tests import builders
from tests.objects.clusters import deployment_pod, node, rolled
from tests.objects.manifests import nodeclaim, nodepool
from tests.objects.nodeoverlays import overlay
from tests.objects.quotas import QUOTA_CRD, quota_manifest
from tests.scenarios.gangs import REQUEST_CRD, request_manifest
from tests.servers.served import CRDS, created, now

ROOT = Path(__file__).parents[3]
BASE = ROOT / "forwarder" / "base"
Right = tuple[str, str, str]
CLAIM = {
    **nodeclaim("a"),
    "metadata": {"name": "a", "finalizers": ["karpenter.sh/termination"]},
    "status": {"conditions": [{"type": "Launched", "status": "True", "reason": "", "message": ""}]},
}
POOL = nodepool(requirements=())
NODECLASS = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "r",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}],
        "securityGroupSelectorTerms": [{"id": "sg-0123456789abcdef0"}],
    },
}
CONDITIONS = {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": ""}]}


BUFFER = {
    "metadata": {"name": "room", "namespace": "default"},
    "spec": {"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 1},
}
WORKLOAD = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web"}]},
        },
    },
}


def buffer_crd(*versions: str) -> dict[str, Any]:
    """Return the CRD of CapacityBuffer that serves only these versions, the first of which is stored."""
    crd: dict[str, Any] = yaml.safe_load((ROOT / "overlays" / "capacity-buffers" / "crd.yaml").read_text())
    served = [each for each in crd["spec"]["versions"] if each["name"] in versions]
    crd["spec"]["versions"] = [{**each, "storage": each["name"] == versions[0]} for each in served]
    return crd


class Recorded(ApiServer):
    """An API server's client that records the permissions that its calls need."""

    def __init__(self, url: str) -> None:
        super().__init__(connect(url, "", lambda: "token"))
        self.needed: set[Right] = set()

    def _request(self, method: Method, path: str, *how: Any) -> Any:
        self.needed.add(right(method, path))
        return super()._request(method, path, *how)


PROVISIONER = {
    "apiVersion": "karpenter.sh/v1alpha5",
    "kind": "Provisioner",
    "metadata": {"name": "old"},
    "spec": {"providerRef": {"name": "default"}},
}

NODE_TEMPLATE = {
    "apiVersion": "karpenter.k8s.aws/v1alpha1",
    "kind": "AWSNodeTemplate",
    "metadata": {"name": "old"},
    "spec": {"subnetSelector": {"team": "blue"}},
}


def right(method: Method, path: str) -> Right:
    """Return the permission that a request needs under RBAC."""
    parts = path.partition("?")[0].strip("/").split("/")
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:]])
    verb = {"GET": "get" if len(rest) > 1 else "list", "POST": "create"}.get(method, method.lower())
    return group, resource, verb


def granted(file: str) -> set[Right]:
    return {
        (group, resource, verb)
        for role in yaml.safe_load_all((BASE / file).read_text())
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture
def local() -> Iterator[LocalApiServer]:
    with LocalApiServer(crds=(*CRDS, QUOTA_CRD, REQUEST_CRD), now=now) as server:
        for plural, manifest in (
            ("nodepools", POOL),
            ("provisioners", PROVISIONER),
            ("awsnodetemplates", NODE_TEMPLATE),
            ("ec2nodeclasses", NODECLASS),
            ("capacityquotas", quota_manifest()),
            ("provisioningrequests", request_manifest("job", 3)),
            ("nodeoverlays", overlay("own", price="1")),
            ("nodes", node(1, rolled(1))),
        ):
            created(server.store, plural, dict(manifest))
        yield server


def test_writers_have_exactly_the_permissions_they_need(local: LocalApiServer) -> None:
    server = Recorded(local.url)
    cluster = ApiCluster(server, system_time)
    name = node(1, rolled(1))["metadata"]["name"]
    cluster.apply_nodeclaim(CLAIM)
    cluster.apply_nodeclaim({**CLAIM, "metadata": {"name": "a", "labels": {"b": "c"}}})
    cluster.register_node(name, NodePatch({"a": "b"}, {}, add_taints=(Taint("t", "NoSchedule"),)))
    cluster.nominate(name, ["default/web-0"])
    cluster.nodepools_and_nodeclasses()
    cluster.nodeclaim("a")
    cluster.karpenter_runs()
    cluster.merge_status("NodeClaim", "a", {"lastPodEventTime": "2026-11-21T08:00:00Z"})
    for kind in ("NodePool", "EC2NodeClass"):
        cluster.merge_status(kind, "default", CONDITIONS)
    for kind in ("Provisioner", "AWSNodeTemplate"):
        cluster.merge_status(kind, "old", CONDITIONS)
    cluster.merge_status("CapacityQuota", "gold", {"used": {"resources": {"nodes": "1"}}})
    local.store.create("customresourcedefinitions", buffer_crd("v1beta1"))
    created(local.store, "capacitybuffers", dict(BUFFER))
    cluster.merge_status("CapacityBuffer", "default/room", CONDITIONS)
    cluster.merge_status("ProvisioningRequest", "default/job", CONDITIONS)
    cluster.merge_status("NodeOverlay", "own", CONDITIONS)
    cluster.annotate("NodePool", "default", {"karpenter.sh/nodepool-hash": "1"})
    cluster.annotate("EC2NodeClass", "default", {"karpenter.k8s.aws/ec2nodeclass-hash": "1"})
    for kind, about in (
        ("NodePool", "default"),
        ("NodeClaim", "a"),
        ("EC2NodeClass", "default"),
        ("Provisioner", "old"),
        ("AWSNodeTemplate", "old"),
        ("Node", name),
        ("Pod", "default/gone"),
    ):
        for _ in range(2):
            cluster.publish([ObjectEvent(kind, about, "Odd", "thing")])
    pod = deployment_pod(1, rolled(1), name)
    created(local.store, "pods", dict(pod))
    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    cluster.evict([PodOnNode(key, name)])
    cluster.delete_pods([PodOnNode(key, name, grace_seconds=1)])
    cluster.request_deletion("NodeClaim", "a")
    cluster.delete_nodeclaim("a")
    cluster.request_deletion("Node", name)
    cluster.release_node(name, "")
    only_for_owners = {
        ("karpenter.sh", f"{plural}/finalizers", "update")
        for plural in ("nodeclaims", "nodepools", "provisioners")
    }
    assert server.needed == granted("writer.yaml") - only_for_owners


def test_an_observer_has_the_permissions_it_needs(local: LocalApiServer) -> None:
    server = Recorded(local.url)
    Observer(server).observe()
    assert server.needed <= granted("reader.yaml")
    assert {verb for _, _, verb in granted("reader.yaml")} == {"get", "list", "watch"}


@pytest.mark.parametrize("provisioner", ["", "old"])
def test_writers_may_set_every_owner_that_blocks_deletion(provisioner: str) -> None:
    """The admission plugin OwnerReferencesPermissionEnforcement requires this, on EKS too."""
    claim = builders.claim("a", nodepool_uid="uid", provisioner=provisioner)
    made = {"metadata": {"name": "a", "uid": "uid-a"}}
    its_node = {"metadata": {"name": "n"}, "spec": {"providerID": claim.provider_id}}
    node = patched_node(its_node, registration_patch(claim, None), made)
    assert node is not None
    for owned in (manifest(claim), node):
        (owner,) = owned["metadata"]["ownerReferences"]
        assert owner["blockOwnerDeletion"]
        group, plural = owner["apiVersion"].partition("/")[0], f"{owner['kind'].lower()}s"
        assert (group, f"{plural}/finalizers", "update") in granted("writer.yaml")


@pytest.mark.parametrize("versions", [("v1beta1", "v1alpha1"), ("v1alpha1",)])
def test_buffers_are_read_and_written_in_the_version_that_is_served(
    local: LocalApiServer, versions: tuple[str, ...]
) -> None:
    server = Recorded(local.url)
    cluster = ApiCluster(server, system_time)
    cluster.merge_status("CapacityBuffer", "default/room", CONDITIONS)
    assert Observer(server).observe().capacitybuffers == [], "without the CRD there are none"
    local.store.create("customresourcedefinitions", buffer_crd(*versions))
    created(local.store, "capacitybuffers", dict(BUFFER))
    cluster.merge_status("CapacityBuffer", "default/room", {"replicas": 1, **CONDITIONS})
    (shown,) = Observer(server).observe().capacitybuffers
    assert shown["apiVersion"] == f"autoscaling.x-k8s.io/{versions[0]}"
    assert shown["status"]["replicas"] == 1
    assert [each["type"] for each in shown["status"]["conditions"]] == ["Ready"]


def test_workloads_are_read_only_if_a_buffer_refers_to_one(local: LocalApiServer) -> None:
    created(local.store, "deployments", dict(WORKLOAD))
    server = Recorded(local.url)
    assert Observer(server).observe().deployments == []
    assert ("apps", "deployments", "list") not in server.needed
    local.store.create("customresourcedefinitions", buffer_crd("v1beta1"))
    created(local.store, "capacitybuffers", dict(BUFFER))
    (read,) = Observer(server).observe().deployments
    assert (read["metadata"]["name"], read["replicas"]) == ("web", 1)
    assert ("apps", "statefulsets", "list") not in server.needed


@pytest.mark.parametrize(
    "spec",
    [
        {"podTemplateRef": {"name": "a"}},
        {"replicas": 1},
        {"podTemplateRef": {"name": "a"}, "scalableRef": {"kind": "Job", "name": "b"}, "replicas": 1},
        {"podTemplateRef": {"name": "a"}, "replicas": -1},
        {"podTemplateRef": {"name": "a"}, "limits": {"cpu": "much"}},
    ],
)
def test_the_crd_refuses_what_validate_refuses(local: LocalApiServer, spec: dict[str, Any]) -> None:
    local.store.create("customresourcedefinitions", buffer_crd("v1beta1"))
    with pytest.raises(ApiError):
        created(local.store, "capacitybuffers", {**BUFFER, "spec": spec})
    assert parse_buffer({**BUFFER, "spec": spec}).value is None


class OfAnEarlierRelease(Recorded):
    """An API server whose roles do not grant what CapacityBuffers need."""

    def _request(self, method: Method, path: str, *how: Any) -> Any:
        if right(method, path)[1] in {"podtemplates", "capacitybuffers"}:
            raise Transient("403 Forbidden", "Forbidden")
        return super()._request(method, path, *how)


def test_a_cluster_with_the_roles_of_an_earlier_release_is_observed_without_buffers(
    local: LocalApiServer,
) -> None:
    observed = Observer(OfAnEarlierRelease(local.url)).observe()
    assert [each["metadata"]["name"] for each in observed.nodepools] == ["default"]
    assert (observed.podtemplates, observed.capacitybuffers) == ([], [])
