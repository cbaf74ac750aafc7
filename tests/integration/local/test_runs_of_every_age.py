"""`nodesmith local run` on manifests of 2022: they are applied unchanged and served, and mistakes are reported once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from nodesmith_formats.shipped import shipped
from tests.integration.commands.planning.test_plans_of_every_age import DEPLOYMENT, PROVISIONER
from tests.processes.localrun import local_run, report_of

EXAMPLES = shipped("_examples", "examples")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("state")
    file = folder / "old.yaml"
    file.write_text(PROVISIONER.replace("    amiFamily: AL2023\n", "") + DEPLOYMENT)
    return local_run(folder, file)


@pytest.fixture(scope="module")
def outcome(ran: Result) -> dict[str, Any]:
    return report_of(ran)


def test_pods_that_select_the_provisioner_run_on_spot_nodes_in_three_zones(outcome: dict[str, Any]) -> None:
    nodes = outcome["nodes"]

    assert outcome["pendingPods"] == []
    assert sum(len(node["pods"]) for node in nodes) == 20
    assert {node["zone"] for node in nodes} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert {node["capacityType"] for node in nodes} == {"spot"}
    assert {node["nodePool"] for node in nodes} == {"default"}


def test_the_provisioners_mistake_is_reported_once(ran: Result, outcome: dict[str, Any]) -> None:
    words = "karpenter.k8s.aws/instance-cpu is read as karpenter.k8s.aws/instance-category"
    assert (ran.stdout + ran.stderr).count(words) == 1
    images, key = outcome["problems"]
    assert images.startswith(
        "Provisioner/default: spec.provider.amiFamily is missing, and AL2 was the default"
    )
    assert words in key


@pytest.fixture(scope="module")
def only_pods(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the report of a folder without a NodePool: a pod, and two that select capacity of managed node groups."""
    folder = tmp_path_factory.mktemp("pods")
    selector = "nodeSelector: {karpenter.sh/provisioner-name: default}"
    plain = DEPLOYMENT.replace(selector, "").replace("20", "1")
    selecting = DEPLOYMENT.replace(selector, "nodeSelector: {eks.amazonaws.com/capacityType: SPOT}")
    file = folder / "pods.yaml"
    file.write_text(f"{plain}---{selecting.replace('inflate', 'spot').replace('20', '2')}")
    return report_of(local_run(folder, file))


def test_a_folder_with_only_pods_gets_the_default_nodepool(only_pods: dict[str, Any]) -> None:
    assert only_pods["pendingPods"] == []
    assert {node["nodePool"] for node in only_pods["nodes"]} == {"default"}
    assert sum(len(node["pods"]) for node in only_pods["nodes"]) == 3


def test_pods_for_managed_node_groups_run_on_the_capacity_they_select(only_pods: dict[str, Any]) -> None:
    theirs = [node["capacityType"] for node in only_pods["nodes"] for pod in node["pods"] if "/spot-" in pod]
    assert theirs == ["spot", "spot"]


BARE_PROVISIONER = """
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: default}
spec:
  provider:
    subnetSelector: {team: search}
    securityGroupSelector: {team: search}
    tags: {team: search}
---
"""


def test_a_provisioner_that_names_no_role_gets_nodes_with_the_clusters_first_node_role(
    tmp_path: Path,
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(BARE_PROVISIONER + DEPLOYMENT)

    found = report_of(local_run(tmp_path, file))

    assert found["pendingPods"] == []
    assert sum(len(node["pods"]) for node in found["nodes"]) == 20
    said = "Provisioner/default: spec.provider.instanceProfile is missing: nodes get the cluster's first node role"
    assert [problem for problem in found["problems"] if problem.startswith(said)]


def test_images_that_manifests_select_exist_also_those_of_any_release(tmp_path: Path) -> None:
    """By an alias that is pinned, and by id, name, tags or parameter."""
    terms = """- {id: ami-0123456789abcdef0}
    - {name: "golden-*", owner: "111122223333"}
    - {tags: {team: search, arch: arm64}}
    - {ssmParameter: /golden/image}"""
    nodeclass, nodepool, deployment = express_test()
    latest = "- alias: al2023@latest"
    classes = {
        "pinned": nodeclass.replace(latest, "- alias: al2023@v20250821"),
        "chosen": nodeclass.replace(latest, terms).replace("spec:", "spec:\n  amiFamily: AL2023", 1),
    }
    for name, text in classes.items():
        select = f"nodeSelector: {{karpenter.sh/nodepool: {name}}}\n      terminationGracePeriodSeconds: 0"
        own = deployment.replace("terminationGracePeriodSeconds: 0", select).replace("express-test", name)
        parts = (text, nodepool, own.replace("replicas: 20", "replicas: 3"))
        (tmp_path / f"{name}.yaml").write_text("---\n".join(parts).replace("name: default", f"name: {name}"))

    found = report_of(local_run(tmp_path / "state", *sorted(tmp_path.glob("*.yaml"))))

    assert found["pendingPods"] == []
    assert {node["nodePool"] for node in found["nodes"]} == set(classes)


def express_test() -> tuple[str, str, str]:
    """Return the example's EC2NodeClass, NodePool and Deployment."""
    nodeclass, nodepool, deployment = (
        (EXAMPLES / "express-test" / f"{name}.yaml").read_text()
        for name in ("nodeclass", "nodepool", "deployment")
    )
    return nodeclass, nodepool, deployment


def test_aliases_of_impossible_releases_are_refused(tmp_path: Path) -> None:
    versions = ["20250821", "vfoo", "v20251340"]
    nodeclass, nodepool, deployment = express_test()
    for number, version in enumerate(versions):
        for name, text in (("nodeclass", nodeclass), ("nodepool", nodepool)):
            changed = text.replace("name: default", f"name: pool-{number}")
            (tmp_path / f"{name}-{number}.yaml").write_text(
                changed.replace("al2023@latest", f"al2023@{version}")
            )
    (tmp_path / "deployment.yaml").write_text(deployment)

    ran = local_run(tmp_path / "state", *sorted(tmp_path.glob("*.yaml")))

    assert ran.exit_code == 1
    assert len(json.loads(ran.stdout)["pendingPods"]) == 20
    for number, version in enumerate(versions):
        (reported,) = (
            line for line in ran.stderr.splitlines() if line.startswith(f"EC2NodeClass/pool-{number}: ")
        )
        assert f"al2023@{version}" in reported
        assert "a date such as v20250821" in reported
