"""Windows NodePools beside Linux ones: which pods get nodes of which operating system."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.catalog import Catalog, ProductPrices
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.status import Image
from tests.builders import (
    ZONES,
    catalog,
    expression,
    inputs,
    ledger,
    node,
    nodeclass_manifest,
    nodeclass_status,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

BUILD = "10.0.20348"
OS, WINDOWS_BUILD = "kubernetes.io/os", "node.kubernetes.io/windows-build"
IMAGE = Image(
    "ami-windows",
    "Windows_Server-2022-English-Core-EKS_Optimized-1.34-2026.11.12",
    Requirements.of(
        requirement(OS, "In", ["windows"]),
        requirement(WINDOWS_BUILD, "In", [BUILD]),
        requirement("kubernetes.io/arch", "In", ["amd64"]),
    ),
)
CLASSES = (
    nodeclass_manifest(),
    nodeclass_manifest("windows", amiSelectorTerms=[{"alias": "windows2022@latest"}]),
)
OS_TAINT = {"key": "os", "value": "windows", "effect": "NoSchedule"}
TOLERATION = {"key": "os", "operator": "Equal", "value": "windows"}


def windows_pool(**fields: Any) -> dict[str, Any]:
    return nodepool_manifest("a-windows", nodeclass="windows", **fields)  # by name before the Linux pool


def planned(of: Shape, *pools: dict[str, Any], catalog: Catalog | None = None, **fields: Any) -> Plan:
    statuses = {
        "default": nodeclass_status(),
        "windows": nodeclass_status("windows", images=(IMAGE,)),
    }
    known = ledger(nodeclasses=statuses)
    seen = snapshot(pods=pods(of), nodepools=pools, nodeclasses=CLASSES, **fields)
    more: dict[str, Any] = {"catalog": catalog} if catalog else {}
    return decide(inputs(snapshot=seen, ledger=known, **more))


def bought_of(plan: Plan) -> list[str]:
    return [each.claim.nodepool for each in plan.nodes]


MEANT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "operating system": ({"nodeSelector": {OS: "windows"}}, {}),
    "old key": ({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}, {}),
    "build": ({"nodeSelector": {WINDOWS_BUILD: BUILD}}, {}),
    "taint": ({"tolerations": [TOLERATION]}, {"taints": [OS_TAINT]}),
    "NodePool": ({"nodeSelector": {"karpenter.sh/nodepool": "a-windows"}}, {}),
    "requirement": (
        {"nodeSelector": {"team": "b"}},
        {"requirements": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
    ),
    "label": ({"nodeSelector": {"team": "desktop"}}, {"labels": {"team": "desktop"}}),
}


@pytest.mark.parametrize("how", MEANT)
def test_pods_that_say_that_they_run_on_windows_get_windows_nodes(how: str) -> None:
    spec, pool = MEANT[how]
    if how == "taint":
        assert bought_of(planned(shape(**spec), windows_pool(**pool))) == ["a-windows"]
    else:
        assert bought_of(planned(shape(**spec), windows_pool(**pool), nodepool_manifest())) == ["a-windows"]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {OS: "linux"}},
        {"nodeSelector": {"topology.kubernetes.io/zone": ZONES[0]}},
        {"nodeSelector": {"node.kubernetes.io/instance-type": "m5.large"}},
    ],
)
def test_other_pods_never_get_windows_nodes(spec: dict[str, Any]) -> None:
    of = shape(**spec)
    assert bought_of(planned(of, windows_pool(), nodepool_manifest())) == ["default"]
    alone = planned(of, windows_pool())
    assert not alone.nodes
    assert not [group for group in alone.unplaced if "would serve it" in str(group.cause)]


def test_pods_without_an_operating_system_learn_how_to_ask_for_windows() -> None:
    (group,) = planned(shape(), windows_pool()).unplaced
    assert str(group.cause) == (
        "NodePool a-windows: its nodes run Windows, and nothing about the pods says that they do; "
        "if they are Windows pods, give them the node selector kubernetes.io/os: windows"
    )


def test_windows_nodes_are_priced_with_their_licence() -> None:
    known = catalog()
    prices = {"windows": ProductPrices({known.region: {"m5.large": 0.188, "c5.large": 0.177}})}
    listed = Catalog.of(known.region, known.made_at, known.facts, known.offerings, prices=prices)
    of = shape(nodeSelector={OS: "windows"})
    on_demand = expression("karpenter.sh/capacity-type", "In", "on-demand")
    pool = windows_pool(requirements=[on_demand])
    (node_,) = planned(of, pool, catalog=listed).nodes
    assert (node_.request.cheapest.instance_type, node_.price_hourly_usd) == ("c5.large", 0.177)
    assert not node_.estimated
    (guessed,) = planned(of, pool).nodes
    assert guessed.estimated
    linux = {o.zone: o.price_hourly_usd for o in known.offerings[guessed.request.cheapest.instance_type]}
    assert guessed.price_hourly_usd > max(linux.values())


def test_room_on_windows_nodes_is_not_for_linux_pods() -> None:
    there = node("win-1", labels={OS: "windows", WINDOWS_BUILD: BUILD, "team": "desktop"})
    plan = planned(shape(), nodepool_manifest(), nodes=(there,))
    assert bought_of(plan) == ["default"]
    for selector in ({OS: "windows"}, {"team": "desktop"}):
        assert not planned(shape(nodeSelector=selector), windows_pool(), nodes=(there,)).nodes


def test_windows_pods_leave_room_on_linux_nodes_alone() -> None:
    there = node("linux-1", labels={OS: "linux"})
    assert bought_of(planned(shape(nodeSelector={OS: "windows"}), windows_pool(), nodes=(there,))) == [
        "a-windows"
    ]
    assert not planned(shape(), nodepool_manifest(), nodes=(there,)).nodes
