"""Dynamic resource allocation: a node is bought for claims to devices, and opened once its driver has published them.

The driver is the test: it writes the ResourceSlices that a driver would. Claims, their allocation and the binding of
pods are Kubernetes' own.
"""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import INITIALIZED, INSTANCE_FAMILY
from nodesmith.model.kubernetes.devices import REQUESTED_DRIVERS
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.devices import DRIVER, declaring, gpus, model, parted, profile, shared
from tests.objects.manifests import deployment, nodeclass, nodepool

API = "resource.k8s.io/v1"
CLASS = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def template(name: str, **exactly: Any) -> dict[str, Any]:
    """Return a ResourceClaimTemplate with one request."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, **exactly}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


TWO = template("two", count=2, selectors=[{"cel": {"expression": model("a100")}}])
LARGE = template("large", selectors=[{"cel": {"expression": profile("large")}}])
SHARE = template(
    "share", capacity={"requests": {"memory": "30Gi"}}, selectors=[{"cel": {"expression": model("nic")}}]
)


def claiming(name: str, replicas: int, of: str = "two") -> dict[str, Any]:
    """Return a Deployment each of whose pods has a claim made from a template."""
    made = deployment(name, replicas, cpu="100m")
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": of}]
    for container in spec["containers"]:
        container["resources"]["claims"] = [{"name": "gpu"}]
    return made


def piece(node: str, name: str, total: int, **spec: Any) -> dict[str, Any]:
    """Return one of the ResourceSlices that a driver writes for a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": total}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{name}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
    }


def published(node: str, count: int) -> dict[str, Any]:
    """Return the ResourceSlice of a node with GPUs."""
    attributes = {"model": {"string": "a100"}}
    devices = [
        {"name": f"gpu-{n}", "attributes": {**attributes, "uuid": {"string": f"{node}-{n}"}}}
        for n in range(count)
    ]
    return piece(node, "gpus", 1, devices=devices)


def divided(node: str) -> list[dict[str, Any]]:
    """Return the ResourceSlices of a node with a GPU in partitions, as `parted` declares, and a shared device."""
    entry = parted()
    values = {name: {"value": amount} for name, amount in entry["counters"].items()}
    devices: list[dict[str, Any]] = []
    for each in entry["partitions"]:
        kind = each["attributes"]["profile"]
        counters = {name: {"value": amount} for name, amount in each["consumes"].items()}
        devices += [
            {
                "name": f"{kind}-{number}",
                "attributes": {"profile": {"string": kind}, "model": {"string": "a100"}},
                "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}],
            }
            for number in range(each.get("count", 1))
        ]
    nic = {
        "name": "nic",
        "attributes": {"model": {"string": "nic"}, "profile": {"string": "none"}},
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    return [
        piece(node, "counters", 2, sharedCounters=[{"name": "gpu-0", "counters": values}]),
        piece(node, "devices", 2, devices=[*devices, nic]),
    ]


def _with_models(entry: dict[str, Any]) -> dict[str, Any]:
    named = [{**each, "attributes": {**each["attributes"], "model": "a100"}} for each in entry["partitions"]]
    return {**entry, "partitions": named}


def nodes(system: System) -> dict[str, dict[str, str]]:
    """Return the labels of the nodes of the family with devices."""
    found = {str(each["metadata"]["name"]): each["metadata"]["labels"] for each in system.nodes()}
    return {name: labels for name, labels in found.items() if labels.get(INSTANCE_FAMILY) == "m5"}


@pytest.mark.slow  # without real controllers: tests/unit/decisions/scheduling/test_devices.py
def test_a_node_is_bought_for_claims_and_opened_once_its_devices_are_published(start: Start) -> None:
    system = start(speed=10)
    system.apply(nodeclass(CLUSTER), nodepool(), CLASS, TWO, declaring([gpus(8)], "m5"), claiming("job", 4))
    system.until("a node with devices has joined", lambda: len(nodes(system)) == 1, 120)
    (claim,) = system.claims()
    assert claim["metadata"]["annotations"][REQUESTED_DRIVERS] == DRIVER
    ((node, labels),) = nodes(system).items()
    system.until(
        "it waits for its driver",
        lambda: "DRADriverPoolsNotPublished" in system.kubectl("get", "nodeclaims", "-o", "yaml"),
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


@pytest.mark.slow  # without real controllers: tests/unit/decisions/scheduling/test_devices.py
def test_nodes_are_bought_for_partitions_and_for_shares_of_a_device(start: Start) -> None:
    system = start(speed=10)
    named = {"attributes": {"model": "nic", "profile": "none"}}
    overlay = declaring([_with_models(parted()), {**shared(), **named}], "m5")
    system.apply(nodeclass(CLUSTER), nodepool(), CLASS, LARGE, SHARE, overlay)
    system.apply(claiming("large", 3, "large"), claiming("share", 3, "share"))

    def publish() -> bool:
        """Publish the devices of every node, and return whether all pods run."""
        for name in nodes(system):
            system.apply(*divided(name))
        return all(pod["status"].get("phase") == "Running" for pod in system.pods())

    system.until("all pods run", publish, 240)
    taken: dict[str, list[str]] = {}
    for pod in system.pods():
        taken.setdefault(str(pod["spec"]["nodeName"]), []).append(str(pod["metadata"]["labels"]["app"]))
    assert all(names.count("large") <= 2 and names.count("share") <= 2 for names in taken.values())
    assert 2 <= len(taken) <= 4  # two of a kind share a node, and different kinds may
    system.until_settled(120)
