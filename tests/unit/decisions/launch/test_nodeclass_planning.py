"""What fields of an EC2NodeClass mean for the pods of a plan: storage, interfaces, zones, tenancy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.controllers.launching.launch import TypeTable
from nodesmith.decisions.disruption.costs import price_of
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.launch.templates import needs_dedicated_tenancy
from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, Offering, ProductPrices
from nodesmith.model.nodeclasses.status import Image, Subnet
from nodesmith.model.policies import NodeSettings
from tests import builders
from tests.builders import expression
from tests.objects.launching import instance_of

TYPE = "node.kubernetes.io/instance-type"
GENERAL = [
    expression("karpenter.sh/capacity-type", "In", "on-demand"),
    expression(TYPE, "In", "m5.large", "m5d.large", "m5d.xlarge"),
]


def planned(
    requests: Mapping[str, str],
    *,
    count: int = 1,
    requirements: Any = GENERAL,
    status: Mapping[str, Any] | None = None,
    catalog: Catalog | None = None,
    settings: NodeSettings | None = None,
    pod: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Plan:
    """Plan for pods with these requests and an EC2NodeClass with these fields."""
    shape = builders.shape("100m", "64Mi", requests=requests, **(pod or {}))
    snapshot = builders.snapshot(
        pods=builders.pods(shape, count),
        nodepools=(builders.nodepool_manifest(requirements=requirements),),
        nodeclasses=(builders.nodeclass_manifest(**spec),),
    )
    resolved = {"default": builders.nodeclass_status(**(status or {}))}
    more: dict[str, Any] = {"catalog": catalog} if catalog else {}
    more |= {"settings": settings} if settings else {}
    return decide(builders.inputs(snapshot=snapshot, ledger=builders.ledger(nodeclasses=resolved), **more))


def types(plan: Plan) -> set[str]:
    """Return the types that may be launched for the plan's nodes."""
    return {row.instance_type for node in plan.nodes for row in node.request.overrides}


def volume(size: str, **fields: Any) -> dict[str, Any]:
    return {"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}, **fields}


def test_ephemeral_storage_is_planned_against_the_root_volume() -> None:
    sixty = {"ephemeral-storage": "60Gi"}
    assert planned(sixty).nodes == ()
    assert types(planned(sixty, blockDeviceMappings=[volume("100Gi")])) >= {"m5.large"}
    two = [volume("100Gi"), {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "30Gi"}, "rootVolume": True}]
    assert planned(sixty, blockDeviceMappings=two).nodes == (), "rootVolume comes before the device's name"


def test_ephemeral_storage_is_planned_against_the_instance_store_with_raid0() -> None:
    sixty, hundred = {"ephemeral-storage": "60Gi"}, {"ephemeral-storage": "100Gi"}
    assert types(planned(sixty, instanceStorePolicy="RAID0")) == {"m5d.large", "m5d.xlarge"}
    assert types(planned(hundred, instanceStorePolicy="RAID0")) == {"m5d.xlarge"}, "75 GB are too few"
    assert types(planned(sixty)) == set(), "without the policy, disks are not used"


def test_pods_share_the_storage_of_a_node() -> None:
    plan = planned({"ephemeral-storage": "30Gi"}, count=4, blockDeviceMappings=[volume("100Gi")])
    assert sorted(len(node.claim.nominated) for node in plan.nodes) == [2, 2], "89 GiB are left of 100"


@pytest.mark.parametrize(("number", "fits"), [(9, True), (10, False)])
def test_pods_with_security_groups_of_their_own_need_branch_interfaces(number: int, fits: bool) -> None:
    plan = planned(
        {"vpc.amazonaws.com/pod-eni": "1"},
        count=number,
        requirements=[
            expression("karpenter.sh/capacity-type", "In", "on-demand"),
            expression(TYPE, "In", "m5.large"),
        ],
    )
    assert (len(plan.nodes) == 1) is fits


def test_a_type_without_trunking_serves_no_pod_with_security_groups_of_its_own() -> None:
    only = [expression(TYPE, "In", "t3.large")]
    assert planned({"vpc.amazonaws.com/pod-eni": "1"}, requirements=only).nodes == ()


def test_custom_networking_leaves_fewer_pods() -> None:
    only = [expression("karpenter.sh/capacity-type", "In", "on-demand"), expression(TYPE, "In", "m5.large")]
    settings = NodeSettings(fragility_tolerance=0, reserved_enis=1)
    assert len(planned({"cpu": "1m"}, count=29, requirements=only).nodes) == 1
    assert len(planned({"cpu": "1m"}, count=29, requirements=only, settings=settings).nodes) == 2


def test_a_nodepool_that_requires_dedicated_hardware_launches_on_it() -> None:
    dedicated = expression("karpenter.k8s.aws/instance-tenancy", "In", "dedicated")
    (node,) = planned({}, requirements=[*GENERAL, dedicated]).nodes
    assert {t.data["Placement"]["Tenancy"] for t in node.templates} == {"dedicated"}
    assert node.claim.labels["karpenter.k8s.aws/instance-tenancy"] == "dedicated"
    (shared,) = planned({}).nodes
    assert all("Placement" not in t.data for t in shared.templates)


def test_a_pod_that_requires_dedicated_hardware_gets_it_from_a_nodepool_that_allows_both() -> None:
    selector = {"karpenter.k8s.aws/instance-tenancy": "dedicated"}
    (node,) = planned({}, pod={"nodeSelector": selector}).nodes
    assert {t.data["Placement"]["Tenancy"] for t in node.templates} == {"dedicated"}


def test_pods_that_ask_for_different_tenancies_share_no_node() -> None:
    key = "karpenter.k8s.aws/instance-tenancy"
    shapes = [
        builders.shape("100m", "64Mi", app=value, nodeSelector={key: value})
        for value in ("default", "dedicated")
    ]
    pods = [pod for shape in (*shapes, builders.shape("100m", "64Mi")) for pod in builders.pods(shape, 2)]
    pools = (builders.nodepool_manifest(requirements=GENERAL),)
    plan = decide(builders.inputs(snapshot=builders.snapshot(pods=pods, nodepools=pools)))
    placed = {node.claim.labels[key]: set(node.claim.nominated) for node in plan.nodes}
    assert placed["default"] >= {"default/default-0000", "default/default-0001"}
    assert placed["dedicated"] >= {"default/dedicated-0000", "default/dedicated-0001"}
    assert len(plan.nodes) == 2


@pytest.mark.parametrize("tenancy", ["default", "dedicated"])
def test_a_launched_node_is_labelled_with_its_tenancy(tenancy: str) -> None:
    asked = {"nodeSelector": {"karpenter.k8s.aws/instance-tenancy": "dedicated"}}
    (node,) = planned({}, pod=asked if tenancy == "dedicated" else {}).nodes
    launched = launched_claim(node.claim, instance_of(node), None, builders.NOW)
    assert launched.labels["karpenter.k8s.aws/instance-tenancy"] == tenancy


def with_prices(**by_product: Mapping[str, float]) -> Catalog:
    """Return the catalogue with on-demand prices of products in its region."""
    known = builders.catalog()
    prices = {
        name.replace("_", "-"): ProductPrices({known.region: listed}) for name, listed in by_product.items()
    }
    return Catalog.of(known.region, known.made_at, known.facts, known.offerings, prices=prices)


EFA = "vpc.amazonaws.com/efa"
TWO_CARDS = [
    expression("karpenter.sh/capacity-type", "In", "on-demand"),
    expression(TYPE, "In", "c6in.32xlarge"),
]


def test_pods_that_need_several_efa_interfaces_learn_that_a_public_address_forbids_them() -> None:
    assert len(planned({EFA: "2"}, requirements=TWO_CARDS).nodes) == 1
    plan = planned({EFA: "2"}, requirements=TWO_CARDS, associatePublicIPAddress=True)
    assert plan.nodes == ()
    (group,) = plan.unplaced
    assert str(group.cause) == (
        "NodePool default: its EC2NodeClass has associatePublicIPAddress true, which EC2 allows with a single "
        "network interface only, and the pods ask for more vpc.amazonaws.com/efa than such nodes have; "
        "remove associatePublicIPAddress, and reach the internet through a NAT gateway"
    )


def test_a_node_with_a_public_address_has_one_efa_interface() -> None:
    (node,) = planned({EFA: "1"}, requirements=TWO_CARDS, associatePublicIPAddress=True).nodes
    (interface,) = node.templates[0].data["NetworkInterfaces"]
    assert (interface["InterfaceType"], interface["AssociatePublicIpAddress"]) == ("efa", True)
    assert node.claim.allocatable.of(EFA) == 1


def test_a_type_whose_first_card_takes_no_efa_gets_it_on_the_others() -> None:
    p5 = builders.catalog().facts["p5.48xlarge"]
    assert isinstance(p5, InstanceFacts)
    facts = replace(p5, name="p6-b300.48xlarge", network_cards=17, efa_interfaces=16)
    offered = (Offering(builders.ZONES[0], "on-demand", 100.0),)
    known = Catalog.of("us-east-1", builders.NOW, {facts.name: facts}, {facts.name: offered})
    only = [expression(TYPE, "In", "p6-b300.48xlarge")]
    any_image = {"images": (Image("ami-any", "any"),)}
    (node,) = planned({EFA: "16"}, requirements=only, catalog=known, status=any_image).nodes
    interfaces = [
        (i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"])
        for i in node.templates[0].data["NetworkInterfaces"]
    ]
    assert interfaces == [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]


DEDICATED = {"karpenter.k8s.aws/instance-tenancy": "dedicated"}


@pytest.mark.parametrize("asking", ["NodePool", "pods"])
def test_dedicated_hardware_is_chosen_by_its_own_prices(asking: str) -> None:
    catalog = with_prices(dedicated={"m5.large": 0.5, "m5d.large": 0.2})
    pool = [expression(*DEDICATED, "In", "dedicated")] if asking == "NodePool" else []
    pod = {"nodeSelector": DEDICATED} if asking == "pods" else None
    (node,) = planned({}, catalog=catalog, requirements=[*GENERAL, *pool], pod=pod).nodes
    assert node.request.cheapest.instance_type == "m5d.large"
    assert (node.price_hourly_usd, node.estimated) == (0.2, False)
    assert {row.instance_type for row in node.request.overrides} <= {"m5.large", "m5d.large"}
    assert types(planned({}, catalog=catalog)) >= {"m5.large"}, "on shared hardware it is the cheapest"


def test_a_type_without_dedicated_hardware_is_not_bought_for_it() -> None:
    catalog = with_prices(dedicated={"c5.large": 0.1})
    plan = planned({}, catalog=catalog, pod={"nodeSelector": DEDICATED})
    assert plan.nodes == ()


def test_pods_that_do_not_ask_for_dedicated_hardware_never_pay_for_it() -> None:
    catalog = with_prices(dedicated={"m5.large": 0.001})
    shapes = (
        builders.shape("100m", "64Mi", app="own", nodeSelector=DEDICATED),
        builders.shape("100m", "64Mi"),
    )
    pods = [pod for each in shapes for pod in builders.pods(each, 1)]
    pools = (builders.nodepool_manifest(requirements=GENERAL),)
    plan = decide(builders.inputs(snapshot=builders.snapshot(pods=pods, nodepools=pools), catalog=catalog))
    bought = {
        node.claim.nominated: (node.price_hourly_usd, needs_dedicated_tenancy(node.claim))
        for node in plan.nodes
    }
    assert bought == {("default/own-0000",): (0.001, True), ("default/web-0000",): (0.096, False)}


def test_an_unknown_price_of_dedicated_hardware_is_estimated_and_says_so() -> None:
    (node,) = planned({}, pod={"nodeSelector": DEDICATED}).nodes
    assert node.price_hourly_usd == pytest.approx(0.096 * 1.1)
    assert node.estimated


def test_the_price_of_a_launched_node_is_that_of_its_tenancy() -> None:
    catalog = with_prices(dedicated={"m5.large": 0.2})
    (node,) = planned({}, catalog=catalog, pod={"nodeSelector": DEDICATED}).nodes
    table = TypeTable(
        builders.snapshot(nodeclasses=(builders.nodeclass_manifest(),)),
        catalog,
        NodeSettings(),
        builders.ledger(),
    )
    launched = launched_claim(node.claim, instance_of(node), table(node.claim, "m5.large"), builders.NOW)
    assert launched.price_hourly_usd == 0.2
    assert price_of(launched, builders.node(), catalog) == 0.2


def in_zone(zone: str, capacity_types: tuple[str, ...] = ("on-demand",)) -> Catalog:
    """Return the catalogue with an offering of m5.large in one more zone."""
    region = builders.catalog("us-west-2")
    more = tuple(Offering(zone, each, 0.12) for each in capacity_types)
    offerings = {**region.offerings, "m5.large": (*region.offerings["m5.large"], *more)}
    return Catalog.of("us-west-2", region.made_at, region.facts, offerings)


@pytest.mark.parametrize("zone", ["us-west-2-lax-1a", "us-west-2-wl1-las-wlz-1"])
def test_a_nodeclass_with_a_subnet_in_a_local_or_wavelength_zone_launches_there(zone: str) -> None:
    subnets = (Subnet("subnet-far", zone, free_ips=100),)
    only = [expression(TYPE, "In", "m5.large")]
    plan = planned({}, requirements=only, catalog=in_zone(zone), status={"subnets": subnets})
    (node,) = plan.nodes
    assert [(row.zone, row.subnet_id) for row in node.request.overrides] == [(zone, "subnet-far")]
    assert node.request.capacity_type == "on-demand", "the zone sells no spot capacity"


def test_pods_spread_over_a_local_zone_like_over_any_other() -> None:
    zone = "us-west-2-lax-1a"
    subnets = tuple(Subnet(f"subnet-{each}", each, free_ips=100) for each in (zone, "us-west-2a"))
    only = [expression("karpenter.sh/capacity-type", "In", "on-demand"), expression(TYPE, "In", "m5.large")]
    spread = {"topologySpreadConstraints": builders.spread(hard=True)}
    plan = planned(
        {}, count=2, requirements=only, catalog=in_zone(zone), status={"subnets": subnets}, pod=spread
    )
    assert {row.zone for node in plan.nodes for row in node.request.overrides} == {zone, "us-west-2a"}


def test_public_addresses_of_a_wavelength_zone_come_from_the_carrier() -> None:
    only = [expression(TYPE, "In", "m5.large")]
    found = {}
    for zone in ("us-west-2-wl1-las-wlz-1", "us-west-2-lax-1a"):
        plan = planned(
            {},
            requirements=only,
            catalog=in_zone(zone),
            status={"subnets": (Subnet("subnet-far", zone, free_ips=100),)},
            associatePublicIPAddress=True,
        )
        (interface,) = plan.nodes[0].templates[0].data["NetworkInterfaces"]
        found[zone] = {name for name in interface if name.startswith("Associate")}
    assert found == {
        "us-west-2-wl1-las-wlz-1": {"AssociateCarrierIpAddress"},
        "us-west-2-lax-1a": {"AssociatePublicIpAddress"},
    }
