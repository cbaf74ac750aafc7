"""The functions' permissions on the real control plane suffice to drain and end a node, and allow nothing more.

Roles determine which kinds the functions may write. Admission policies determine which objects and fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.cluster import ApiCluster
from nodesmith.composition.parts import system_time
from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.kubernetes.evictions import BUDGET, Evicted, EvictionRefused, Gone, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith_local.backends.real import RealCluster
from nodesmith_local.controlplane import User
from tests import builders
from tests.contract.worlds import a_claim
from tests.e2e.conftest import BUILD
from tests.e2e.deployment.policies import wait_for_policies
from tests.objects.manifests import owned_by
from tests.patience import eventually

WRITER, ADMIN = "k8s-aws-v1.writer", "k8s-aws-v1.admin"
POOL, CLASS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
Json = dict[str, Any]
LAUNCHED = {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"}
"""Labels of every registered Node of nodesmith."""


@pytest.fixture(scope="module")
def plane() -> Iterator[RealCluster]:
    known = {WRITER: User("nodesmith:writer:express"), ADMIN: User("admin", ("system:masters",))}
    with RealCluster(BUILD / "test_rights" / "plane", authenticate=known.get, rights="express") as running:
        yield running


@pytest.fixture(scope="module")
def writer(plane: RealCluster) -> ApiCluster:
    return ApiCluster(ApiServer(connect(plane.url, plane.ca_bundle, lambda: WRITER)), system_time)


def put_node(plane: RealCluster, name: str, labels: Mapping[str, str] = LAUNCHED) -> None:
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    plane.objects.create(
        "nodes",
        {
            "metadata": {"name": name, "labels": {"kwok.x-k8s.io/node": "fake", "only": name, **labels}},
            "spec": {"providerID": f"aws:///us-east-1a/{name}"},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        },
    )


def put_cordon(plane: RealCluster, name: str, *, on: bool) -> None:
    plane.objects.patch("nodes", name, {"spec": {"unschedulable": on}})


def put_workload(plane: RealCluster, app: str, replicas: int, node: str) -> list[PodOnNode]:
    """Run a Deployment on one node, and return its pods when all are ready."""
    labels = {"app": app}
    pod = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"only": node}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}}
    plane.objects.create(
        "deployments",
        {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {**spec, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
    )

    def ready() -> Sequence[Any]:
        found = plane.objects.list("pods", labels=f"app={app}")
        return [pod for pod in found if (pod.get("status") or {}).get("phase") == "Running"]

    eventually(lambda: len(ready()) == replicas, f"{replicas} pods of {app} run")
    return [PodOnNode(f"default/{pod['metadata']['name']}", node) for pod in ready()]


def test_evictions_respect_the_counts_of_kubernetes_own_controller(
    plane: RealCluster, writer: ApiCluster
) -> None:
    put_node(plane, "i-1")
    pods = put_workload(plane, "web", 6, "i-1")
    spec = {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}
    budget = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    plane.objects.create("poddisruptionbudgets", budget)

    def allowed() -> int:
        status = plane.objects.get("poddisruptionbudgets", "web", "default").get("status") or {}
        return int(status.get("disruptionsAllowed") or 0)

    eventually(lambda: allowed() == 2, "the budget is counted")
    put_cordon(plane, "i-1", on=True)  # so that no replacement is ready before the last eviction is requested
    answers = list(writer.evict(pods).values())
    put_cordon(plane, "i-1", on=False)
    refused = [answer for answer in answers if isinstance(answer, EvictionRefused)]
    assert (answers.count(Evicted()), len(refused)) == (2, 4)
    assert {answer.reason for answer in refused} == {BUDGET}
    assert all("disruption budget web" in answer.message for answer in refused)

    left = dict(zip((pod.pod for pod in pods), pods, strict=True))

    def drained() -> bool:
        for pod, answer in writer.evict(list(left.values())).items():
            if answer == Gone():
                del left[pod]
        return not left

    eventually(drained, "all have been evicted, as their replacements became ready")


def test_a_node_with_a_blocking_owner_can_be_held_deleted_and_released(
    plane: RealCluster, writer: ApiCluster
) -> None:
    put_node(plane, "i-2")
    writer.apply_nodeclaim(a_claim())
    claim = plane.objects.get("nodeclaims", "default-abc")
    owner = owned_by("NodeClaim", "default-abc", claim["metadata"]["uid"])
    provider_id = "aws:///us-east-1a/i-2"
    plane.objects.patch("nodes", "i-2", {"metadata": {"ownerReferences": [owner]}})
    patch = NodePatch({}, provider_id=provider_id, add_finalizers=(TERMINATION_FINALIZER,))
    assert writer.register_node("i-2", patch)
    (pod,) = put_workload(plane, "bare", 1, "i-2")

    writer.request_deletion("NodeClaim", "default-abc")
    writer.request_deletion("Node", "i-2", provider_id)
    for kind, name in (("nodeclaims", "default-abc"), ("nodes", "i-2")):
        assert plane.objects.get(kind, name)["metadata"]["deletionTimestamp"]
    assert writer.delete_pods([PodOnNode(pod.pod, "i-2", 1)]) == {pod.pod: Evicted()}
    eventually(
        lambda: plane.objects.find("pods", pod.pod.partition("/")[2], "default") is None, "the pod is gone"
    )
    writer.release_node("i-2", provider_id)
    assert plane.objects.find("nodes", "i-2") is None
    writer.delete_nodeclaim("default-abc")
    assert plane.objects.find("nodeclaims", "default-abc") is None


@pytest.fixture(scope="module")
def limited(plane: RealCluster) -> ApiServer:
    """Return the API server as the functions access it, with a NodePool, an EC2NodeClass and enforced policies."""
    admin = ApiServer(connect(plane.url, plane.ca_bundle, lambda: ADMIN))
    for path, made in ((POOL, builders.nodepool_manifest()), (CLASS, builders.nodeclass_manifest())):
        admin.create(path, {**made, "metadata": {"name": "default", "annotations": {"example.com/a": "b"}}})
    wait_for_policies(admin)
    return ApiServer(connect(plane.url, plane.ca_bundle, lambda: WRITER))


def test_the_functions_may_annotate_hashes_on_objects_they_may_not_otherwise_change(
    limited: ApiServer,
) -> None:
    cluster, said = ApiCluster(limited, system_time), {"karpenter.sh/nodepool-hash": "1"}
    cluster.annotate("NodePool", "default", said)
    cluster.annotate("EC2NodeClass", "default", {"karpenter.k8s.aws/ec2nodeclass-hash": "1"})
    there = limited.get(f"{POOL}/default")
    assert there is not None
    assert there["metadata"]["annotations"] == {"example.com/a": "b", **said}
    refused: tuple[tuple[str, Json], ...] = (
        (POOL, {"spec": {"weight": 5}}),
        (POOL, {"metadata": {"annotations": {"example.com/a": None}}}),
        (POOL, {"metadata": {"annotations": {"nodesmith.dev/node-repair": "On"}}}),
        (CLASS, {"spec": {"userData": "#!/bin/sh"}}),
    )
    for path, patch in refused:
        with pytest.raises(Rejected, match="ValidatingAdmissionPolicy 'nodesmith-writer'"):
            limited.patch(f"{path}/default", patch)


def test_the_functions_may_remove_only_karpenters_finalizer_from_a_deleted_nodeclass(
    plane: RealCluster, limited: ApiServer
) -> None:
    admin = ApiServer(connect(plane.url, plane.ca_bundle, lambda: ADMIN))
    theirs, own = "karpenter.k8s.aws/termination", "example.com/hold"
    for name, finalizers in (("left", [theirs]), ("held", [theirs, own]), ("alive", [theirs])):
        made = builders.nodeclass_manifest(name)
        admin.create(CLASS, {**made, "metadata": {"name": name, "finalizers": finalizers}})
    admin.delete(f"{CLASS}/left")
    admin.delete(f"{CLASS}/held")
    for name, kept in (("held", []), ("held", [theirs]), ("alive", [])):
        with pytest.raises(Rejected, match="ValidatingAdmissionPolicy 'nodesmith-writer'"):
            limited.patch(f"{CLASS}/{name}", {"metadata": {"finalizers": kept}})
    cluster = ApiCluster(limited, system_time)
    assert not cluster.karpenter_runs()
    for name in ("left", "held", "alive"):
        cluster.release_nodeclass(name)
    assert admin.get(f"{CLASS}/left") is None
    held, alive = admin.get(f"{CLASS}/held"), admin.get(f"{CLASS}/alive")
    assert held is not None
    assert held["metadata"]["finalizers"] == [own]
    assert alive is not None
    assert alive["metadata"]["finalizers"] == [theirs]
    admin.patch(f"{CLASS}/held", {"metadata": {"finalizers": None}})
    for path in (
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    ):
        with pytest.raises(Transient, match="403"):
            next(limited.pages(path))


def test_the_functions_may_not_do_what_they_never_do(plane: RealCluster) -> None:
    server = ApiServer(connect(plane.url, plane.ca_bundle, lambda: WRITER))
    binding = {"metadata": {"name": "x"}, "target": {"kind": "Node", "name": "i-1"}}
    forbidden: tuple[Callable[[], object], ...] = (
        lambda: next(server.pages("/api/v1/pods")),
        lambda: next(server.pages("/api/v1/nodes")),
        lambda: server.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "x"}}),
        lambda: server.create("/api/v1/namespaces/default/pods/x/binding", binding),
        lambda: server.create("/api/v1/nodes", {"metadata": {"name": "x"}}),
        lambda: server.delete("/apis/karpenter.sh/v1/nodepools/x"),
        lambda: server.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"),
        lambda: server.get("/api/v1/namespaces/default/secrets/x"),
    )
    for attempt in forbidden:
        with pytest.raises(Transient, match="403"):
            attempt()
