"""Devices in the stand-in cluster: claims from templates, their allocation when pods are bound, and their end."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.karpenter.nodeoverlays import parse_annotated
from nodesmith_formats.kubernetes.objects import Object, View, condition_of, dig, name_of
from nodesmith_local.aws.instances.resourceslices import resource_slices
from tests.objects.devices import DRIVER, gpus, model, parted, profile, shared
from tests.servers.standins import StandIns

CLAIMS, TEMPLATES = "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"
CLASSES, SLICES = "deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io"


def asking(*selectors: str, **exactly: Any) -> Object:
    """Return the spec of a claim with one request."""
    cel = [{"cel": {"expression": each}} for each in selectors]
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "selectors": cel, **exactly}}
    return {"devices": {"requests": [request]}}


class Devices(StandIns):
    """Nodes with the devices that entries of the annotation declare, and a template `one` for a claim."""

    def __init__(self, *entries: Object, spec: Object, nodes: int = 1) -> None:
        super().__init__()
        expression = f"device.driver == '{DRIVER}'"
        self.store.create(
            CLASSES,
            {"metadata": {"name": DRIVER}, "spec": {"selectors": [{"cel": {"expression": expression}}]}},
        )
        self.store.create(TEMPLATES, {"metadata": {"name": "one"}, "spec": {"spec": spec}})
        for number in range(nodes):
            self.add_node(f"n{number}")
            node = self.store.get("nodes", f"n{number}")
            for piece in resource_slices(node, DRIVER, parse_annotated(list(entries))):
                self.store.create(SLICES, piece)

    def claim(self, *pods: str, **reference: str) -> None:
        """Create pods with a claim."""
        reference = reference or {"resourceClaimTemplateName": "one"}
        for name in pods:
            self.add_pod(name, cpu="100m", resourceClaims=[{"name": "gpu", **reference}])
        self.settle()

    def bound(self) -> dict[str, str]:
        return {name_of(each): str(dig(each, "spec", "nodeName") or "") for each in self.pods()}

    def claims(self) -> list[View]:
        return list(self.store.list(CLAIMS))

    def devices(self) -> list[str]:
        """Return the devices that are allocated."""
        found = [dig(each, "status", "allocation", "devices", "results") or () for each in self.claims()]
        return sorted(result["device"] for results in found for result in results)

    def why(self, pod: str) -> str:
        return str((condition_of(self.pod(pod), "PodScheduled") or {}).get("message"))


def test_pods_get_claims_from_their_template_and_nodes_with_free_devices() -> None:
    world = Devices(gpus(2), spec=asking(model("a100")), nodes=2)
    world.claim("a", "b", "c", "d", "e")
    assert sorted(filter(None, world.bound().values())) == ["n0", "n0", "n1", "n1"]
    (left,) = [name for name, node in world.bound().items() if not node]
    assert world.why(left) == "0/2 nodes are available: 2 cannot allocate all claims."
    assert world.devices() == ["device-0-0", "device-0-0", "device-0-1", "device-0-1"]
    taken = [each for each in world.claims() if dig(each, "status", "reservedFor")]
    assert {each["metadata"]["ownerReferences"][0]["kind"] for each in taken} == {"Pod"}

    gone = next(name for name, node in world.bound().items() if node)
    world.store.delete("pods", gone, "default")
    world.pass_time(10)
    assert world.bound()[left]
    assert len(world.claims()) == 4


def test_pods_share_a_claim_that_they_name_and_its_node() -> None:
    world = Devices(gpus(1), spec=asking(), nodes=2)
    world.claim("a", "b", resourceClaimName="mine")
    assert world.why("a") == '0/2 nodes are available: resourceclaim "mine" not found.'
    world.store.create(CLAIMS, {"metadata": {"name": "mine", "namespace": "default"}, "spec": asking()})
    world.settle()
    assert len(set(world.bound().values())) == 1
    assert world.devices() == ["device-0-0"]
    assert len(world.claims()[0]["status"]["reservedFor"]) == 2
    for name in ("a", "b"):
        world.store.delete("pods", name, "default")
    world.pass_time(10)
    assert world.devices() == []
    assert [name_of(each) for each in world.claims()] == ["mine"]


@pytest.mark.parametrize(
    ("entry", "spec", "fit"),
    [
        (parted(), asking(profile("large")), 2),
        (parted(), asking(profile("small")), 7),
        (shared(), asking(capacity={"requests": {"memory": "30Gi"}}), 2),
        (shared(default="20Gi"), asking(), 4),
        (gpus(4), asking(count=3), 1),
        (gpus(4), asking(allocationMode="All"), 1),
        (gpus(4), asking(model("h100")), 0),
        (gpus(4), asking("device.attributes['nothing'].x"), 0),
    ],
)
def test_a_node_takes_as_many_pods_as_its_devices_allow(entry: Object, spec: Object, fit: int) -> None:
    world = Devices(entry, spec=spec)
    world.claim(*(f"p{number}" for number in range(8)))
    assert sum(map(bool, world.bound().values())) == fit


def test_a_claim_that_is_not_simulated_is_refused_with_the_reason() -> None:
    world = Devices(gpus(1), spec=asking(adminAccess=True))
    world.claim("a")
    assert "adminAccess, which is not simulated" in world.why("a")


def test_a_pod_waits_for_the_template_of_its_claim() -> None:
    world = Devices(gpus(1), spec=asking())
    world.claim("a", resourceClaimTemplateName="two")
    assert "waiting for the ResourceClaim of pod claim" in world.why("a")
    world.store.create(TEMPLATES, {"metadata": {"name": "two"}, "spec": {"spec": asking()}})
    world.settle()
    assert world.bound() == {"a": "n0"}
