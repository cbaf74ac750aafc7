"""A node deleted by hand in a whole local system: it drains within its pods' budgets, and nothing of it is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodesmith_cli.main import app
from nodesmith_formats.kubernetes.objects import View, dig, is_true
from nodesmith_formats.manifests.manifests import Document, load_manifests
from nodesmith_formats.shipped import shipped
from nodesmith_local.runs.running import apply, settle
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.system import LocalSystem, Place
from tests.objects.storage import claim, storage_class
from tests.patience import eventually, hurried

EXPRESS = shipped("_examples", "examples") / "express-test"
REPLICAS = 8
_LONGEST_SECONDS = 3600


def document(**manifest: Any) -> Document:
    return Document(manifest, "test", 1)


def workload(kind: str, name: str, replicas: int, **spec: Any) -> Document:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    whole = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    metadata = {"name": name, "namespace": "default"}
    return document(apiVersion="apps/v1", kind=kind, metadata=metadata, spec=whole)


def workloads() -> list[Document]:
    budget = {"minAvailable": REPLICAS - 1, "selector": {"matchLabels": {"app": "web"}}}
    template = {"metadata": {"name": "data"}, "spec": claim("data")["spec"]}
    return [
        document(apiVersion="storage.k8s.io/v1", kind="StorageClass", **storage_class()),
        workload("Deployment", "web", REPLICAS),
        workload("StatefulSet", "db", 1, serviceName="db", volumeClaimTemplates=[template]),
        document(
            apiVersion="policy/v1",
            kind="PodDisruptionBudget",
            metadata={"name": "web", "namespace": "default"},
            spec=budget,
        ),
    ]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    place = Place("us-east-1", "nodesmith-local", zones=("us-east-1a",), speed=hurried(20))
    pools = load_manifests([str(EXPRESS / name) for name in ("nodeclass.yaml", "nodepool.yaml")])
    with LocalSystem(place, tmp_path_factory.mktemp("ends")) as running:
        assert apply(running.first, [*pools.documents, *workloads()]) == []
        assert settle(running.first, _LONGEST_SECONDS) == ""
        yield running.first


def pods_of(system: ServedCluster, app: str) -> list[View]:
    return list(system.objects.list("pods", labels=f"app={app}"))


def ready(system: ServedCluster, app: str) -> int:
    return sum(is_true(p, "Ready") and "deletionTimestamp" not in p["metadata"] for p in pods_of(system, app))


def test_a_node_deleted_by_hand_drains_by_its_budgets_and_leaves_nothing(system: ServedCluster) -> None:
    (db,) = pods_of(system, "db")
    doomed = str(dig(db, "spec", "nodeName"))
    claims = system.claims_by_node()
    instance = system.objects.get("nodes", doomed)["spec"]["providerID"].rpartition("/")[2]
    fewest = REPLICAS

    def gone() -> bool:
        nonlocal fewest
        fewest = min(fewest, ready(system, "web"))
        return system.objects.find("nodes", doomed) is None

    system.objects.delete("nodes", doomed)
    eventually(gone, f"Node {doomed} is gone")
    assert fewest >= REPLICAS - 1
    eventually(lambda: system.objects.find("nodeclaims", claims[doomed]) is None, "its NodeClaim is gone")
    ec2 = system.aws.client("ec2")
    (found,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
    assert found["State"]["Name"] == "terminated"
    eventually(
        lambda: ready(system, "web") == REPLICAS and ready(system, "db") == 1, "all pods run elsewhere"
    )
    places = {dig(pod, "spec", "nodeName") for pod in [*pods_of(system, "web"), *pods_of(system, "db")]}
    assert doomed not in places
    attached = [each["spec"]["nodeName"] for each in system.objects.list("volumeattachments")]
    assert len(attached) == 1
    assert attached[0] in places


def test_a_dead_instances_kubelet_stops_and_its_node_is_deleted(system: ServedCluster) -> None:
    assert settle(system, _LONGEST_SECONDS) == ""
    doomed = str(dig(pods_of(system, "web")[0], "spec", "nodeName"))
    claims = system.claims_by_node()
    instance = system.objects.get("nodes", doomed)["spec"]["providerID"].rpartition("/")[2]
    system.aws.client("ec2").terminate_instances(InstanceIds=[instance])
    eventually(lambda: system.objects.find("nodes", doomed) is None, f"Node {doomed} is gone")
    eventually(lambda: system.objects.find("nodeclaims", claims[doomed]) is None, "its NodeClaim is gone")
    eventually(
        lambda: ready(system, "web") == REPLICAS and ready(system, "db") == 1, "all pods run elsewhere"
    )


def test_a_node_that_cannot_be_drained_is_explained_and_goes_once_it_can(
    system: ServedCluster, tmp_path: Path
) -> None:
    assert settle(system, _LONGEST_SECONDS) == ""
    doomed = str(dig(pods_of(system, "db")[0], "spec", "nodeName"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(system.cluster.kubeconfig()))

    def explained(*options: str) -> str:
        result = CliRunner().invoke(app, ["explain", "node", *options, "--kubeconfig", str(kubeconfig)])
        assert result.exit_code == 0, result.output
        # The functions run in this process and print their metrics.
        lines = result.stdout.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith('{"_aws"'))

    eventually(lambda: explained() == "no node is terminating\n", "nodes that ended before are gone")
    strict = {"selector": {"matchLabels": {"app": "db"}}, "maxUnavailable": 0}
    metadata = {"name": "strict", "namespace": "default"}
    system.objects.create("poddisruptionbudgets", {"metadata": metadata, "spec": strict})
    eventually(lambda: "PodDisruptionBudget default/strict" in explained(doomed), "the obstacle is predicted")
    system.objects.delete("nodes", doomed)
    eventually(
        lambda: f"{doomed}: terminating, Terminating" in explained(doomed), "its termination has started"
    )
    eventually(
        lambda: "guarded by PodDisruptionBudget default/strict" in explained(), "it waits for the budget"
    )
    counted = "(maxUnavailable 0), 0 may go; it never allows any"
    eventually(lambda: counted in explained(doomed), "the budget's counts are explained")
    eventually(lambda: "1 node terminating, ~$" in explained(), "it is counted and priced")
    system.objects.delete("poddisruptionbudgets", "strict", "default")
    eventually(lambda: system.objects.find("nodes", doomed) is None, f"Node {doomed} is gone")


def test_the_functions_log_contains_no_failure(system: ServedCluster) -> None:
    log = (system.keep.path / "local.log").read_text(encoding="utf-8")
    assert '"level":"ERROR"' not in log
