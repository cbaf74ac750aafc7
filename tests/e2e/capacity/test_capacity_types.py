"""Splits on the real kube-scheduler: a part of a workload runs off spot, and stays there when EC2 takes spot back."""

from __future__ import annotations

from collections import Counter

import pytest

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1.5 each
BOTH = requirement(CAPACITY_TYPE, "spot", "on-demand")


def capacity_types(system: System, app: str) -> Counter[str]:
    """Count the pods of an app by the capacity type of their nodes."""
    return Counter(system.labels_of_nodes(app, CAPACITY_TYPE))


@pytest.mark.slow  # without real controllers: tests/unit/decisions/provisioning/capacity/test_splits.py
def test_a_part_of_a_deployment_runs_off_spot(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE, BOTH]))
    system.until_nodepools_ready()
    made = deployment("web", 5, "1500m")
    annotations = {"nodesmith.dev/on-demand-base": "1", "nodesmith.dev/on-demand-percent": "40"}
    made["spec"]["template"]["metadata"]["annotations"] = annotations

    system.apply(made)
    system.until_running(5, "web", seconds=120)

    assert capacity_types(system, "web") == {"on-demand": 2, "spot": 3}
