"""The resources that a pod uses on a node, by kube-scheduler's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodesmith.model.apimachinery.quantities import QuantityError, parse_resources
from nodesmith.model.kubernetes.pods import pod_requests


def container(
    name: str = "main", *, limits: Mapping[str, str] | None = None, **requests: Any
) -> dict[str, Any]:
    resources = {"requests": requests} if requests else {}
    return {"name": name, "resources": resources | ({"limits": limits} if limits else {})}


def init(name: str = "init", **requests: Any) -> dict[str, Any]:
    return container(name, **requests)


def sidecar(name: str = "sidecar", **requests: Any) -> dict[str, Any]:
    return {**container(name, **requests), "restartPolicy": "Always"}


VECTORS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "containers add up": (
        {"containers": [container("a", cpu="250m", memory="64Mi"), container("b", cpu="1", memory="1Gi")]},
        {"cpu": "1250m", "memory": "1088Mi"},
    ),
    "a container without requests takes nothing": ({"containers": [{"name": "a"}]}, {}),
    "a limit without a request is the request": (
        {"containers": [container(limits={"cpu": "2", "memory": "1Gi"}, cpu="500m")]},
        {"cpu": "500m", "memory": "1Gi"},
    ),
    "the largest init container counts, where it is larger": (
        {
            "containers": [container(cpu="1", memory="1Gi")],
            "initContainers": [init("i1", cpu="2", memory="100Mi"), init("i2", cpu="500m", memory="200Mi")],
        },
        {"cpu": "2", "memory": "1Gi"},
    ),
    "init containers do not add up": (
        {"containers": [container(cpu="1")], "initContainers": [init("a", cpu="1"), init("b", cpu="1")]},
        {"cpu": "1"},
    ),
    "a sidecar runs beside the containers": (
        {"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="200m")]},
        {"cpu": "1200m"},
    ),
    "an init container runs beside the sidecars started before it": (
        {"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="500m"), init(cpu="1")]},
        {"cpu": "1500m"},
    ),
    "an init container needs nothing of sidecars started after it": (
        {"containers": [container(cpu="1")], "initContainers": [init(cpu="2"), sidecar(cpu="500m")]},
        {"cpu": "2"},
    ),
    "an init container between two sidecars": (
        {
            "containers": [container(cpu="100m")],
            "initContainers": [sidecar("s1", cpu="1"), init(cpu="3"), sidecar("s2", cpu="1")],
        },
        {"cpu": "4"},
    ),
    "pod-level resources replace the sum, each resource for itself": (
        {
            "containers": [container(cpu="1", memory="1Gi")],
            "resources": {"requests": {"cpu": "3"}},
        },
        {"cpu": "3", "memory": "1Gi"},
    ),
    "a pod-level limit is the request for what no container asks for, and else the containers' sum is": (
        {
            "containers": [container("a", cpu="1"), container("b", cpu="500m")],
            "initContainers": [sidecar(cpu="100m")],
            "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
        },
        {"cpu": "1600m", "memory": "2Gi"},
    ),
    "pod-level requests hold although init containers ask for more": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [init(cpu="3")],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
        },
        {"cpu": "2"},
    ),
    "overhead comes on top of pod-level resources": (
        {
            "containers": [container(cpu="1")],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        },
        {"cpu": "2250m", "memory": "120Mi"},
    ),
    "extended resources, huge pages and storage of init containers and sidecars": (
        {
            "containers": [init("main", **{"hugepages-2Mi": "4Mi", "example.com/card": "1"})],
            "initContainers": [
                sidecar(**{"ephemeral-storage": "1Gi", "example.com/card": "1"}),
                init(**{"ephemeral-storage": "5Gi", "hugepages-2Mi": "16Mi"}),
            ],
        },
        {"hugepages-2Mi": "16Mi", "example.com/card": "2", "ephemeral-storage": "6Gi"},
    ),
    "extended resources and storage": (
        {
            "containers": [
                container(
                    limits={"nvidia.com/gpu": "2"}, **{"ephemeral-storage": "10Gi", "hugepages-2Mi": "4Mi"}
                )
            ]
        },
        {"nvidia.com/gpu": "2", "ephemeral-storage": "10Gi", "hugepages-2Mi": "4Mi"},
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_requests_follow_the_schedulers_rules(case: str) -> None:
    spec, expected = VECTORS[case]

    assert pod_requests(spec) == parse_resources({**expected, "pods": "1"})


@pytest.mark.parametrize(
    ("status", "cpu_milli"),
    [
        pytest.param({"allocatedResources": {"cpu": "2"}}, 2000, id="shrinking: still allocated more"),
        pytest.param({"allocatedResources": {"cpu": "500m"}}, 1000, id="growing: asks for more"),
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, 3000, id="the kubelet has not shrunk it yet"),
        pytest.param({"name": "other", "allocatedResources": {"cpu": "9"}}, 1000, id="another container"),
        pytest.param({}, 1000, id="no status"),
    ],
)
def test_a_container_that_is_resized_in_place_takes_the_larger_of_both(
    status: dict[str, Any], cpu_milli: int
) -> None:
    spec = {"containers": [container("main", cpu="1")]}

    assert pod_requests(spec, [{"name": "main", **status}]).cpu_milli == cpu_milli


def test_an_invalid_quantity_is_reported() -> None:
    with pytest.raises(QuantityError, match="'1gb' is not a quantity, did you mean '1G'"):
        pod_requests({"containers": [container(memory="1gb")]})
