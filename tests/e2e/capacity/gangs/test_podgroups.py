"""PodGroups of Kubernetes on the real scheduler: nodes are bought for all pods of a group, or for none."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, Manifest, System
from tests.objects.manifests import nodeclass, nodepool, pod, requirement

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1.5 each


def group(name: str, least: int) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}},
    }


def members(name: str, count: int) -> list[Manifest]:
    """Return pods of a group; each needs a node of its own."""
    made = [pod(f"{name}-{number}", "1500m", labels={"app": name}) for number in range(count)]
    return [{**each, "spec": {**each["spec"], "schedulingGroup": {"podGroupName": name}}} for each in made]


def ready(system: System) -> None:
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
    system.until_nodepools_ready()


@pytest.mark.slow  # without real controllers: tests/unit/decisions/provisioning/capacity/test_podgroups.py
def test_a_group_gets_a_node_for_each_of_its_pods_and_one_that_is_too_large_gets_none(start: Start) -> None:
    system = start(pod_groups=True)
    ready(system)
    system.kubectl("patch", "nodepool", "default", "--type=merge", "-p", '{"spec":{"limits":{"nodes":"3"}}}')
    system.until_nodepools_ready()
    system.apply(group("large", 4), *members("large", 4))
    system.until(
        "the large group was refused",
        lambda: any(gang.failures for gang in system.ledger().gangs),
        seconds=90,
    )
    assert system.ledger().claims == ()

    system.apply(group("train", 3), *members("train", 3))
    system.until_running(3, "train", seconds=120)

    claims = system.ledger().claims
    assert len(claims) == 3
    assert all(claim.nominated == () for claim in claims), "they were bought for the group as a whole"
    assert all(not each["spec"].get("nodeName") for each in system.pods("large"))
