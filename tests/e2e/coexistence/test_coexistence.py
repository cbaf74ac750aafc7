"""Beside EKS Auto Mode on the real API server, nodesmith leaves Auto Mode's objects alone until it is uninstalled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODECLASS
from tests.e2e.commands.pages import blocks, typed_from
from tests.e2e.conftest import Start
from tests.e2e.incluster.site import kwok_node
from tests.e2e.systems.system import CLUSTER, HURRIED, ROOT, System
from tests.objects import foreign
from tests.objects.manifests import Manifest, deployment, nodeclass, nodepool
from tests.patience import patient

pytestmark = pytest.mark.slow  # tests/integration/resilience/test_coexistence.py protects the same objects

_THEIRS = {"nodepools": foreign.BUILT_IN, "nodeclaims": ("gp-1", "gp-coming"), "nodes": ("i-auto1",)}


def test_objects_of_auto_mode_are_left_alone_from_the_first_pod_to_the_uninstallation(
    start: Start, tmp_path: Path
) -> None:
    system = start(speed=HURRIED)
    add_auto_mode(system)
    before = written(system)
    assert checked(system, tmp_path) == ("overlays/shared-crds/", 0)

    system.apply(nodeclass(CLUSTER), nodepool("ours"), deployment("fits", 2, cpu="1"))
    system.until_running(2, "fits")
    assert {pod["spec"]["nodeName"] for pod in system.pods("fits")} == {"i-auto1"}
    assert system.instances() == []

    system.apply(deployment("bought", 2, cpu="5"))
    system.until_running(2, "bought")
    system.until("our NodePool is ready", lambda: "ours" in ready(system))
    assert written(system) == before
    system.stays(
        "Auto Mode's objects are as Auto Mode wrote them", lambda: written(system) == before, seconds=10
    )
    assert explained(system, tmp_path) == "EKS Auto Mode"

    removed = nodesmith(system, tmp_path, "uninstall", "--yes", "-o", "json")
    assert removed.returncode == 0, removed.stderr
    assert json.loads(removed.stdout)["done"]
    assert "waiting for NodeClaim/" in removed.stderr
    assert written(system) == before
    system.until("our instances are gone", lambda: system.instances() == [])
    assert not [node for node in system.nodes() if NODECLASS in node["metadata"]["labels"]]
    left = system.kubectl("get", "crd", "-o", "name").split()
    assert sorted(left) == [
        f"customresourcedefinition.apiextensions.k8s.io/{plural}.karpenter.sh"
        for plural in ("nodeclaims", "nodepools")
    ]
    assert "nodesmith" not in system.kubectl(
        "get",
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
        "-o",
        "name",
    )


def test_a_workload_moves_to_nodesmith_and_back_by_the_commands_of_the_guide(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, typed = start(speed=HURRIED), typed_from("auto-mode.md")
    add_auto_mode(system)
    monkeypatch.chdir(folder)
    for name, text in zip(("apps", "to-nodesmith", "to-auto-mode"), blocks("auto-mode.md"), strict=True):
        (folder / f"{name}.yaml").write_text(text)
    auto = {"eks.amazonaws.com/compute-type": "auto"}
    system.apply(nodeclass(CLUSTER), deployment("shop", 2, cpu="1", nodeSelector=auto))
    system.until_running(2, "shop")
    before = written(system)
    checked = nodesmith(system, folder, *typed("nodesmith", "check-cluster"))
    assert "overlays/shared-crds/" in checked.stdout

    typed("kubectl", "apply", "-k", "overlays/shared-crds/")  # the system has applied it, with its own image
    system.kubectl(*typed("kubectl", "apply", "-f", "apps.yaml"))
    system.kubectl(*typed(*"kubectl wait --for=condition=Ready nodepool/apps --timeout=2m".split()))
    assert system.instances() == []

    rollout = typed(*"kubectl rollout status deployment shop --timeout=10m".split())
    system.kubectl(
        *typed(*"kubectl patch deployment shop --type merge --patch-file to-nodesmith.yaml".split())
    )
    system.kubectl(*rollout)
    system.until_running(2, "shop")
    ours = {node["metadata"]["name"] for node in system.nodes() if NODECLASS in node["metadata"]["labels"]}
    assert {pod["spec"]["nodeName"] for pod in system.pods("shop")} <= ours
    assert written(system) == before

    system.kubectl(
        *typed(*"kubectl patch deployment shop --type merge --patch-file to-auto-mode.yaml".split())
    )
    system.kubectl(*rollout)
    system.until_running(2, "shop")
    assert {pod["spec"]["nodeName"] for pod in system.pods("shop")} == {"i-auto1"}
    system.kubectl(*typed(*"kubectl delete nodepool apps --timeout=10m".split()))
    system.until("nodesmith's instances are gone", lambda: system.instances() == [], 120)
    assert written(system) == before


def add_auto_mode(system: System) -> None:
    """Add the built-in NodePools, a node with its NodeClaim, and a NodeClaim that has not launched yet."""
    objects = system.cluster.objects
    uids = {}
    for name in foreign.BUILT_IN:
        created(system, "nodepools", foreign.auto_mode_nodepool(name))
        found = objects.find("nodepools", name)
        assert found is not None
        uids[name] = found["metadata"]["uid"]
    for name, instance in (("gp-1", "i-auto1"), ("gp-coming", "")):
        claim = foreign.nodeclaim(name, "general-purpose", instance=instance)
        claim["metadata"]["ownerReferences"][0]["uid"] = uids["general-purpose"]
        created(system, "nodeclaims", claim)
    theirs, own = foreign.node("i-auto1", "general-purpose"), kwok_node("i-auto1")
    about = {**theirs["metadata"], "labels": theirs["metadata"]["labels"] | own["metadata"]["labels"]}
    objects.create("nodes", {**own, "metadata": without_uid(about), "spec": theirs["spec"]})


def created(system: System, resource: str, manifest: Manifest) -> None:
    """Create an object with its status, as its own controller does."""
    metadata = without_uid(manifest["metadata"])
    system.cluster.objects.create(resource, {**manifest, "metadata": metadata})
    if "status" in manifest:
        patch = {"status": manifest["status"]}
        objects = system.cluster.objects
        objects.patch(resource, metadata["name"], patch, subresource="status")


def without_uid(metadata: Manifest) -> Manifest:
    return {
        key: value for key, value in metadata.items() if key not in {"uid", "creationTimestamp", "generation"}
    }


def written(system: System) -> dict[str, Any]:
    """Return what the API server records about writes to Auto Mode's objects.

    The kubelet and Kubernetes' controllers keep writing to a Node, so for a Node this is what nodesmith might write.
    """
    found: dict[str, Any] = {}
    for resource, names in _THEIRS.items():
        for name in names:
            there = system.cluster.objects.find(resource, name)
            assert there is not None, f"{resource}/{name} is gone"
            metadata = there["metadata"]
            is_node = resource == "nodes"
            found[f"{resource}/{name}"] = _of_node(there) if is_node else metadata["resourceVersion"]
    return found


def _of_node(node: Mapping[str, Any]) -> list[Any]:
    metadata = node["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if not key.startswith("beta.")}
    parts = ("finalizers", "deletionTimestamp", "uid")
    return [labels, *(metadata.get(part) for part in parts), node["spec"].get("unschedulable")]


def ready(system: System) -> set[str]:
    """Return the names of the NodePools that are Ready."""
    return {
        pool["metadata"]["name"]
        for pool in system.cluster.objects.list("nodepools")
        for condition in (pool.get("status") or {}).get("conditions") or ()
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }


def checked(system: System, folder: Path) -> tuple[str, int]:
    """Return the overlay folder that `nodesmith check-cluster` recommends, and its exit status."""
    ran = nodesmith(system, folder, "check-cluster", "-o", "json")
    return json.loads(ran.stdout)["overlay"], ran.returncode


def explained(system: System, folder: Path) -> str | None:
    """Return what serves Auto Mode's node, according to `nodesmith explain node`."""
    reported = json.loads(nodesmith(system, folder, "explain", "node", "i-auto1", "-o", "json").stdout)
    served_by: str | None = reported["servedBy"]
    return served_by


def nodesmith(system: System, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user with the administrator's kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(system.plane.kubeconfig()))
    paths = os.pathsep.join(
        str(ROOT / path) for path in ("layers/core/python", "cli", "formats", "forwarder", "local")
    )
    command = [sys.executable, "-m", "nodesmith_cli.main", *arguments, "--kubeconfig", str(kubeconfig)]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(240), check=False
    )
