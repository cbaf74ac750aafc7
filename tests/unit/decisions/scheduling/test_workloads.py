"""Which pods belong to one workload: those of a controller with equal constraints, whatever their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.scheduling.workloads import Workloads, controller
from nodesmith.model.kubernetes.pods import Pod
from tests.builders import anti_affinity, pods, shape, spread


def named(pod: Pod) -> str:
    return Workloads().of(pod)


def of(**fields: Any) -> Pod:
    return pods(shape(**fields))[0]


def test_pods_of_one_controller_belong_to_one_workload_whatever_their_names() -> None:
    first, second = pods(shape(), 2)
    assert named(first) == named(second) == named(replace(of(), key="default/web-other"))


def test_a_pod_without_a_controller_is_a_workload_of_its_own() -> None:
    bare = replace(shape(), owner="")
    first, second = pods(bare, 2)
    assert named(first) != named(second)
    assert named(first) == named(pods(bare, 1)[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu": "2"},
        {"namespace": "other"},
        {"owner": "ReplicaSet/web-2"},
        {"owner": "StatefulSet/web"},
        {"nodeSelector": {"disk": "ssd"}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"topologySpreadConstraints": spread(hard=True)},
        {"affinity": anti_affinity()},
        {"priority": 100},
    ],
    ids=str,
)
def test_pods_with_other_constraints_or_another_controller_are_another_workload(
    fields: dict[str, Any],
) -> None:
    assert named(of(**fields)) != named(of())


def test_volumes_and_labels_of_a_single_pod_do_not_matter() -> None:
    mine = replace(of().shape, labels={"app": "web", "statefulset.kubernetes.io/pod-name": "web-3"})
    attached = of(attachments={"attachable-volumes-csi-ebs.csi.aws.com": "2"})
    assert named(replace(of(), shape=mine)) == named(attached) == named(of())


def test_a_workloads_name_contains_its_controller() -> None:
    names = Workloads()
    small, large = of(), of(cpu="4")
    assert controller(names.of(small)) == controller(names.of(large)) == names.controller_of(small)
    assert controller(names.of(of(namespace="other"))) != names.controller_of(small)


def test_names_do_not_depend_on_the_process() -> None:
    assert named(of()) == "31c05e20-5d0aa048"
