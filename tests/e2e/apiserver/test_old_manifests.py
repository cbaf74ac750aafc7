"""Manifests of 2022, applied unchanged to Kubernetes' own programs, with the shipped permissions only."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, PROVISIONER_NAME, ZONE
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.integration.commands.planning.test_plans_of_every_age import DEPLOYMENT, PROVISIONER

pytestmark = pytest.mark.slow  # tests/integration/local/test_runs_of_every_age.py runs the same manifests

TEMPLATE = """
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: other}
spec:
  subnetSelector: {karpenter.sh/discovery: blue}
  securityGroupSelector: {karpenter.sh/discovery: blue}
"""


def old() -> list[Any]:
    text = PROVISIONER.replace("    amiFamily: AL2023\n", "").replace("    instanceProfile: nodes\n", "")
    return list(
        yaml.safe_load_all(text.replace("blue", CLUSTER) + TEMPLATE.replace("blue", CLUSTER) + DEPLOYMENT)
    )


def test_pods_that_select_a_provisioner_run_on_its_spot_nodes_in_three_zones(start: Start) -> None:
    system = start()
    system.apply(*old())

    system.until_running(20)
    system.until_settled()

    labels = [node["metadata"]["labels"] for node in system.nodes()]
    assert {each[ZONE] for each in labels} == {f"us-east-1{zone}" for zone in "abc"}
    assert {each[CAPACITY_TYPE] for each in labels} == {"spot"}
    assert {each[PROVISIONER_NAME] for each in labels} == {"default"}
    provisioner, template = shown(system, "provisioners"), shown(system, "awsnodetemplates")
    assert condition(provisioner, "Ready")["status"] == "True"
    assert "lastScaleTime" in provisioner["status"]
    assert {each["zone"] for each in template["status"]["subnets"]} == {f"us-east-1{zone}" for zone in "abc"}
    assert len(template["status"]["securityGroups"]) == 1
    assert template["status"]["amis"]


def shown(system: System, plural: str) -> Any:
    """Return the only object of a kind."""
    (found,) = system.cluster.objects.list(plural)
    return found
