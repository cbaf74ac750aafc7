"""Dynamic resource allocation: a node is bought for claims to devices, and opened once its driver has published them.

The driver is the test: it writes the ResourceSlices that a driver would. Claims, their allocation and the binding of
pods are Kubernetes' own.
"""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import INITIALIZED, INSTANCE_FAMILY
from nodesmith.model.kubernetes.devices import REQUESTED_DRIVERS
from tests.devices import DRIVER, declaring, gpus, model
from tests.e2e.conftest import Start
from tests.e2e.manifests import deployment, nodeclass, nodepool
from tests.e2e.system import CLUSTER, System

API = "resource.k8s.io/v1"
CLASS = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
TWO = {
    "apiVersion": API,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "two", "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": DRIVER,
                            "count": 2,
                            "selectors": [{"cel": {"expression": model("a100")}}],
                        },
                    }
                ]
            }
        }
    },
}


def claiming(name: str, replicas: int) -> dict[str, Any]:
    """Return a Deployment each of whose pods claims two devices."""
    made = deployment(name, replicas, cpu="100m")
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "two"}]
    for container in spec["containers"]:
        container["resources"]["claims"] = [{"name": "gpu"}]
    return made


def published(node: str, count: int) -> dict[str, Any]:
    """Return the ResourceSlice that a driver writes for a node."""
    attributes = {"model": {"string": "a100"}}
    devices = [
        {"name": f"gpu-{n}", "attributes": {**attributes, "uuid": {"string": f"{node}-{n}"}}}
        for n in range(count)
    ]
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def nodes(system: System) -> dict[str, dict[str, str]]:
    """Return the labels of the nodes of the family with devices."""
    found = {str(each["metadata"]["name"]): each["metadata"]["labels"] for each in system.nodes()}
    return {name: labels for name, labels in found.items() if labels.get(INSTANCE_FAMILY) == "m5"}


@pytest.mark.slow  # without real controllers: tests/unit/test_devices.py
def test_a_node_is_bought_for_claims_and_opened_once_its_devices_are_published(start: Start) -> None:
    system = start(speed=10)
    system.apply(nodeclass(CLUSTER), nodepool(), CLASS, TWO, declaring([gpus(8)], "m5"), claiming("job", 4))
    system.until("a node with devices has joined", lambda: len(nodes(system)) == 1, 120)
    (claim,) = system.claims()
    assert claim["metadata"]["annotations"][REQUESTED_DRIVERS] == DRIVER
    ((node, labels),) = nodes(system).items()
    system.until(
        "it waits for its driver",
        lambda: "DevicesNotPublished" in system.kubectl("get", "nodeclaims", "-o", "yaml"),
    )
    assert labels.get(INITIALIZED) != "true"

    system.apply(published(node, 8))
    system.until("it is initialized", lambda: nodes(system)[node].get(INITIALIZED) == "true", 120)
    system.until_running(4, seconds=120)
    assert {str(pod["spec"]["nodeName"]) for pod in system.pods("job")} == {node}

    # The four pods have all eight devices, so the fifth needs another node, although there is room for it otherwise.
    system.apply(claiming("job", 5))
    system.until("another node with devices has joined", lambda: len(nodes(system)) == 2, 120)
    (other,) = nodes(system).keys() - {node}
    system.apply(published(other, 8))
    system.until_running(5, seconds=120)
    system.until_settled(120)
