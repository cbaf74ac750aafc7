"""NodeOverlays: another family is chosen, an extended resource is served, contradictions show in kubectl."""

from __future__ import annotations

import json
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_FAMILY, ON_DEMAND
from nodesmith.model.karpenter.nodeoverlays import CAPACITY_APPLIED, PRICE_APPLIED
from tests import builders
from tests.builders import expression
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool
from tests.objects.nodeoverlays import family, overlay

FUSE = "smarter-devices/fuse"
CHEAP_M5 = overlay("cheap-m5", family("m5"), priceAdjustment="-90%", weight=2)
DEAR_OTHERS = overlay("dear-others", [expression(INSTANCE_FAMILY, "NotIn", "m5")], priceAdjustment="+5")
"""Pods are moved only if that is worth their restart."""


def families(system: System, app: str) -> set[str]:
    """Return the families of the nodes that an app's pods run on."""
    return set(system.labels_of_nodes(app, INSTANCE_FAMILY))


def asking(name: str, replicas: int) -> dict[str, Any]:
    """Return a Deployment whose pods ask for one extended resource each."""
    made = deployment(name, replicas, cpu="100m")
    for container in made["spec"]["template"]["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources["requests"], FUSE: "1"}
        resources["limits"] = {**resources.get("limits", {}), FUSE: "1"}
    return made


def condition(system: System, name: str) -> tuple[str, str]:
    """Return status and reason of an overlay's ValidationSucceeded, as kubectl shows them."""
    shown = json.loads(system.kubectl("get", "overlays", name, "-o", "json"))
    conditions = (shown.get("status") or {}).get("conditions") or ()
    found: dict[str, str] = next((c for c in conditions if c["type"] == "ValidationSucceeded"), {})
    return str(found.get("status")), str(found.get("reason"))


def marks(system: System, annotation: str) -> list[bool]:
    """Return of each NodeClaim whether an annotation says that an overlay was applied."""
    annotations = [claim["metadata"].get("annotations") or {} for claim in system.claims()]
    return [each.get(annotation) == "true" for each in annotations]


def test_overlays_steer_prices_add_resources_and_show_contradictions(start: Start) -> None:
    system = start(speed=10)
    on_demand = nodepool(requirements=[*builders.EXPRESS, expression(CAPACITY_TYPE, "In", ON_DEMAND)])
    system.apply(nodeclass(CLUSTER), on_demand, deployment("before", 2))
    system.until_running(2)
    assert families(system, "before") != {"m5"}

    system.apply(CHEAP_M5, DEAR_OTHERS, overlay("devices", family("m5"), capacity={FUSE: "2"}))
    system.until("the overlays apply", lambda: condition(system, "cheap-m5")[0] == "True")
    assert "True" in system.kubectl("get", "overlays", "cheap-m5")
    # The cluster is looked at again without another event: its nodes cost more than m5 now.
    system.until("the nodes are replaced", lambda: families(system, "before") == {"m5"}, 120)
    system.until_running(2)
    system.until_settled(120)

    system.apply(asking("devices", 3))
    system.until_running(5, seconds=120)
    system.until_settled()
    system.until(
        "all run on m5, also those that were being moved", lambda: families(system, "devices") == {"m5"}
    )
    # A node from before the overlays may still be empty for a moment.
    system.until("all nodes have an overlaid price", lambda: all(marks(system, PRICE_APPLIED)), 120)
    assert any(marks(system, CAPACITY_APPLIED))
    listed = {claim.name: claim.price_hourly_usd for claim in system.ledger().claims}
    assert all(price > 0.01 for price in listed.values()), "the ledger holds what AWS charges"

    system.apply(overlay("another-m5", family("m5"), price="9", weight=2))
    system.until("the contradiction shows", lambda: condition(system, "another-m5") == ("False", "Conflict"))
    assert "contradicts NodeOverlay cheap-m5" in system.kubectl("get", "overlays", "another-m5", "-o", "yaml")
    assert condition(system, "cheap-m5")[0] == "True"
