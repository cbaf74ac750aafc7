"""Manifests of 2022, applied as they are to Kubernetes' own parts, with the rights that are shipped and no others."""

from __future__ import annotations

from typing import Any

import yaml

from nodesmith.model.labels import CAPACITY_TYPE, PROVISIONER_NAME, ZONE
from nodesmith_cli.local.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.system import CLUSTER, System
from tests.integration.test_plans_of_every_age import DEPLOYMENT, PROVISIONER


def old() -> list[Any]:
    text = PROVISIONER.replace("    amiFamily: AL2023\n", "").replace(
        "    instanceProfile: nodes\n", ""
    )
    provisioner, deployment = yaml.safe_load_all(text.replace("blue", CLUSTER) + DEPLOYMENT)
    return [provisioner, deployment]


def test_pods_that_select_a_provisioner_run_on_its_spot_nodes_in_three_zones(start: Start) -> None:
    system = start()
    system.apply(*old())

    system.until_running(20)
    system.until_settled()

    labels = [node["metadata"]["labels"] for node in system.nodes()]
    assert {each[ZONE] for each in labels} == {f"us-east-1{zone}" for zone in "abc"}
    assert {each[CAPACITY_TYPE] for each in labels} == {"spot"}
    assert {each[PROVISIONER_NAME] for each in labels} == {"default"}
    assert condition(shown(system), "Ready")["status"] == "True"


def shown(system: System) -> Any:
    """Give the Provisioner."""
    (provisioner,) = system.cluster.objects.list("provisioners")
    return provisioner
