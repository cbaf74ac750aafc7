"""What `nodesmith adopt` and `nodesmith release` check before they change anything, on an in-memory API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.errors import Rejected
from nodesmith.keys import snapshot_key
from nodesmith.model.ledger.ledger import Handover
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.migration.adopting.command import AdoptOptions, adopt_cluster, release_cluster
from tests import builders
from tests.aws.account import client
from tests.aws.connectable import BUCKET, CLUSTER, Connectable, connectable
from tests.contract.worlds import lease
from tests.objects.foreign import karpenters_deployment

DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture(scope="module")
def connected() -> Iterator[Connectable]:
    """Yield a connected cluster without nodes."""
    with connectable() as cluster:
        assert cluster.run() == 0
        now = datetime.now(UTC)
        empty = encode(CLUSTER, now, Observed())
        cluster.meanwhile = lambda: None
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}}
        cluster.server.create("/api/v1/namespaces", namespace)
        client("s3").put_object(Bucket=BUCKET, Key=snapshot_key(CLUSTER), Body=empty)
        yield cluster


@pytest.fixture
def cluster(connected: Connectable, capsys: pytest.CaptureFixture[str]) -> Iterator[Connectable]:
    """Yield the cluster without any trace of Karpenter, and check that no test leaves one."""
    capsys.readouterr()
    connected.calls.clear()
    yield connected
    for namespace in ("kube-system", "karpenter"):
        connected.server.delete(f"{DEPLOYMENTS.format(namespace)}/karpenter")
    connected.server.delete(f"{LEASES}/karpenter-leader-election")


def ledger() -> DynamoStore:
    return DynamoStore(client("dynamodb"), "nodesmith", CLUSTER, lambda: datetime.now(UTC))


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def run_karpenter(cluster: Connectable, *namespaces: str) -> None:
    for namespace in namespaces:
        cluster.server.create(DEPLOYMENTS.format(namespace), karpenters_deployment(namespace))


def test_while_karpenter_runs_nothing_is_adopted_and_the_message_says_what_to_do(
    cluster: Connectable,
) -> None:
    cluster.server.create(LEASES, lease(datetime.now(UTC)))
    cluster.calls.clear()
    with pytest.raises(
        Rejected, match=r"holds the lease .* or use --scale-down-karpenter\. Nothing was changed"
    ):
        adopt_cluster(CLUSTER, cluster.around(), AdoptOptions(is_asked=False))
    assert cluster.calls == []


def test_two_karpenters_are_named_and_neither_is_scaled_down(cluster: Connectable) -> None:
    run_karpenter(cluster, "kube-system", "karpenter")
    cluster.calls.clear()
    how = AdoptOptions(is_asked=False, is_to_scale_down=True)
    with pytest.raises(
        Rejected, match=r"found Deployment karpenter/karpenter, Deployment kube-system/karpenter"
    ):
        adopt_cluster(CLUSTER, cluster.around(), how)
    assert cluster.calls == []


def test_a_dry_run_tells_the_hindrance_and_ends_with_1(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    run_karpenter(cluster, "kube-system")
    cluster.calls.clear()
    assert adopt_cluster(CLUSTER, cluster.around(), AdoptOptions("json", is_dry=True)) == 1
    found = report(capsys)
    assert (found["state"], found["rows"]) == ("hindered", [])
    assert found["reason"].startswith("Karpenter runs: it is Deployment kube-system/karpenter")
    assert cluster.calls == []


def test_without_all_rights_in_the_cluster_nothing_is_adopted_and_the_message_says_how_to_get_them(
    cluster: Connectable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Applier, "ask", lambda *_, **__: (201, {"status": {"allowed": False}}))
    for command in (adopt_cluster, release_cluster):
        with pytest.raises(Rejected, match=r"cluster web does not give you full access.*create-access-entry"):
            command(CLUSTER, cluster.around(), AdoptOptions(is_asked=False))
    assert cluster.calls == []


def test_one_karpenter_is_scaled_to_zero_and_the_cluster_is_nodesmiths(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    run_karpenter(cluster, "kube-system")
    how = AdoptOptions("json", is_asked=False, is_to_scale_down=True)
    assert adopt_cluster(CLUSTER, cluster.around(), how) == 0
    assert report(capsys)["state"] == "adopted"
    there = cluster.server.get(f"{DEPLOYMENTS.format('kube-system')}/karpenter")
    assert there is not None
    assert there["spec"]["replicas"] == 0
    word, pause = ledger().load().handover, ledger().load().paused
    assert word is not None
    assert not word.to_karpenter
    assert pause is not None
    assert pause.until is not None


def test_a_cluster_without_nodes_is_released_at_once_and_stays_released(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release_cluster(CLUSTER, cluster.around(), AdoptOptions("json", is_asked=False)) == 0
    assert report(capsys)["state"] == "released"
    word = ledger().load().handover
    assert word is not None
    assert word == Handover(word.at, to_karpenter=True, is_settled=True)


def test_json_does_not_ask(cluster: Connectable) -> None:
    for command in (adopt_cluster, release_cluster):
        with pytest.raises(Rejected, match="-o json does not prompt: add --yes"):
            command(CLUSTER, cluster.around(), AdoptOptions("json"))


def test_a_cluster_that_nodesmith_does_not_serve_must_be_connected_first(
    cluster: Connectable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.stacks, "outputs", {})
    with pytest.raises(Rejected, match="run `nodesmith connect web` first"):
        adopt_cluster(CLUSTER, cluster.around(), AdoptOptions(is_asked=False))


def test_disconnecting_a_released_cluster_leaves_karpenters_nodepools_alone(
    cluster: Connectable, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = "/apis/karpenter.sh/v1/nodepools"
    cluster.server.create(pools, builders.nodepool_manifest())
    assert release_cluster(CLUSTER, cluster.around(), AdoptOptions(is_asked=False)) == 0
    run_karpenter(cluster, "kube-system")
    assert cluster.leave() == 0
    capsys.readouterr()
    assert cluster.server.get(f"{pools}/default") is not None
    assert cluster.server.get("/api/v1/namespaces/nodesmith") is None
