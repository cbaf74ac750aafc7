"""`nodesmith connect` on a real API server: it applies its objects once, and the functions have their permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from nodesmith.adapters.kubernetes.apiserver import connect
from nodesmith_cli.connecting.applying import Applier, State, reference
from nodesmith_cli.connecting.checks.rights import rights_findings
from nodesmith_cli.connecting.manifests import Served, manifests
from nodesmith_cli.connecting.observed import ClusterReading
from nodesmith_cli.connecting.reading.cluster import look_inside, ownership_of
from nodesmith_cli.connecting.steps.connect import installed
from nodesmith_local.backends.ekstokens import access_key_of
from nodesmith_local.backends.real import RealCluster
from nodesmith_local.controlplane import User
from tests.aws.connectable import Served as ConnectableServer
from tests.aws.connectable import connectable_on
from tests.e2e.conftest import BUILD
from tests.patience import eventually

SERVED = Served(
    "web", "us-east-1", "bucket", "https://sqs.us-east-1.amazonaws.com/123456789012", "", "forwarder:0.1.0"
)
WRITER = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodesmith-writer"


@pytest.fixture(scope="module")
def plane() -> Iterator[RealCluster]:
    """Yield a control plane that identifies the caller of connect by the token's signing key, as EKS does."""
    caller = User("caller", ("system:masters",))
    known = lambda token: caller if access_key_of(token) == "none" else None  # noqa: E731
    with RealCluster(BUILD / "test_connected" / "plane", authenticate=known) as running:
        yield running


@pytest.fixture(scope="module")
def server(plane: RealCluster) -> Applier:
    return Applier(connect(plane.url, plane.ca_bundle, lambda: plane.token))


def look(server: Applier) -> ClusterReading:
    return look_inside(server, manifests(SERVED), ownership_of(server, datetime.now(UTC)))


def states(inside: ClusterReading) -> dict[str, State]:
    return {reference(each.manifest): each.state for each in inside.objects}


def test_objects_are_present_after_they_are_applied_once(server: Applier) -> None:
    before = states(look(server))
    assert {state for name, state in before.items() if "CustomResource" not in name} == {State.MISSING}
    for each in manifests(SERVED):
        server.apply(each)
    after = states(look(server))
    assert set(after.values()) == {State.PRESENT}, {n: s for n, s in after.items() if s is not State.PRESENT}


def test_a_removed_permission_is_found_and_its_role_is_reapplied(server: Applier) -> None:
    objects = manifests(SERVED)
    for each in objects:
        server.apply(each)
    # The API server learns of changed roles by a watch.
    eventually(lambda: not list(rights_findings(server, objects, "web")), "the rights are in force")
    role = server.get(WRITER)
    assert role is not None
    server.patch(WRITER, {"rules": [r for r in role["rules"] if "pods/eviction" not in r["resources"]]})
    eventually(lambda: list(rights_findings(server, objects, "web")), "the changed role is in force")
    (found,) = rights_findings(server, objects, "web")
    assert found.object == "user nodesmith:writer:web"
    assert found.found == "lacks permission to create pods/eviction"
    assert [row.detail for row in installed(look(server)) if row.action] == ["ClusterRole/nodesmith-writer"]


def test_users_of_another_cluster_have_no_permissions(server: Applier) -> None:
    objects = manifests(SERVED)
    for each in objects:
        server.apply(each)
    assert [f.object for f in rights_findings(server, objects, "shop")] == [
        "user nodesmith:reader:shop",
        "user nodesmith:writer:shop",
    ]


def test_a_cluster_is_connected_with_an_eks_token_and_disconnected(
    plane: RealCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    served = ConnectableServer(plane.url, plane.ca_bundle, plane.token, plane.kubeconfig())
    with connectable_on(served) as cluster:
        assert cluster.run() == 0
        capsys.readouterr()
        assert cluster.run(is_dry=True) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        # Unlike EKS, this control plane injects no credentials into pods.
        assert {row["object"] for row in rows if row["standing"] != "present"} <= {"pods of the forwarder"}
        assert cluster.leave() == 0
        assert "deleted Namespace/nodesmith" in capsys.readouterr().err
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        eventually(lambda: cluster.server.get(f"{crds}/provisioners.karpenter.sh") is None)
        assert cluster.server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodesmith-writer") is None
