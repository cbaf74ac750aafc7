"""Pods with volumes, through the command line: nodes are bought where the volumes are, and the scheduler agrees."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from nodesmith_formats.shipped import shipped
from tests.objects.storage import Manifest, claim, storage_class, volume
from tests.processes.localrun import local_run

EXPRESS = shipped("_examples", "examples") / "express-test"
A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


def stateful_set(name: str, replicas: int, storage_class_name: str) -> Manifest:
    """Return a StatefulSet that starts all its pods at once."""
    template = claim("data", storageClassName=storage_class_name)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [
                        {
                            "name": "db",
                            "image": "db:1",
                            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        }
                    ]
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": template["spec"]}],
        },
    }


def typed(api_version: str, kind: str, *manifests: Manifest) -> list[Manifest]:
    return [{"apiVersion": api_version, "kind": kind, **manifest} for manifest in manifests]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("volumes")
    manifests = [
        *typed(
            "storage.k8s.io/v1",
            "StorageClass",
            storage_class("gp3"),
            storage_class("only-c", allowed=[{"topology.ebs.csi.aws.com/zone": [C]}]),
        ),
        *typed(
            "v1",
            "PersistentVolume",
            *(volume(f"pv-{n}", B, claim=f"default/data-bound-{n}") for n in range(3)),
        ),
        *typed(
            "v1", "PersistentVolumeClaim", *(claim(f"data-bound-{n}", bound_to=f"pv-{n}") for n in range(3))
        ),
        stateful_set("bound", 3, "gp3"),
        stateful_set("waiting", 2, "only-c"),
        stateful_set("missing", 1, "gp33"),
    ]
    file = folder / "volumes.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    result = local_run(folder, EXPRESS / "nodepool.yaml", EXPRESS / "nodeclass.yaml", file)
    assert result.stdout, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def zones_of(outcome: dict[str, Any], app_name: str) -> list[str]:
    """Return the zone of each bound pod of an app."""
    return [
        node["zone"]
        for node in outcome["nodes"]
        for pod in node["pods"]
        if f"/{app_name}-" in f"/{pod.rpartition('/')[2]}"
    ]


def test_pods_of_bound_claims_run_in_the_zone_of_their_volumes(outcome: dict[str, Any]) -> None:
    assert zones_of(outcome, "bound") == [B, B, B]


def test_pods_whose_claims_wait_for_them_run_where_the_class_allows(outcome: dict[str, Any]) -> None:
    assert zones_of(outcome, "waiting") == [C, C]


def test_no_node_is_bought_for_a_pod_whose_class_is_missing_and_the_reason_names_it(
    outcome: dict[str, Any],
) -> None:
    (left,) = outcome["pendingPods"]
    assert (
        "storageclass.storage.k8s.io 'gp33' of persistentvolumeclaim 'data-missing-0' not found"
        in json.dumps(left)
    )
    assert sum(len(node["pods"]) for node in outcome["nodes"]) == 5
