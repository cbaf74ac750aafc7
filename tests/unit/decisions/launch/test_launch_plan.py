"""The CreateFleet request of one claim."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nodesmith.decisions.launch import MAX_OVERRIDES, as_launched, launch_plan, subnet_by_zone
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.nodeclasses.instancesettings import BlockDevice, BlockDeviceMapping, NetworkInterface
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import Subnet
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, NOW, options, plan, status

FAMILIES = [
    f"{family}.{size}"
    for family in ("c5", "m5", "r5", "c6i", "m6i", "r6i", "c7i", "m7i")
    for size in ("large", "xlarge", "2xlarge")
]


def test_overrides_come_cheapest_first_with_ties_by_name_and_zone() -> None:
    request, _ = plan("m5.large", "c5.large", "r5.large")
    order = [(o.price_hourly_usd, o.instance_type, o.zone) for o in request.overrides]
    assert order == sorted(order)
    assert len(order) == 9


def test_a_request_has_at_most_sixty_overrides_and_they_are_the_cheapest() -> None:
    offered = options(FAMILIES)
    request, _ = launch_plan(CLAIM, offered, NODECLASS, status(), CLUSTER)
    assert len(offered) > MAX_OVERRIDES == len(request.overrides)
    prices = sorted(offering.price_hourly_usd for _, offering in offered)
    assert [o.price_hourly_usd for o in request.overrides] == prices[:MAX_OVERRIDES]


def test_the_order_in_which_options_are_found_changes_nothing() -> None:
    offered = options(FAMILIES)
    plans = [launch_plan(CLAIM, some, NODECLASS, status(), CLUSTER) for some in (offered, offered[::-1])]
    assert plans[0] == plans[1]


def test_the_same_type_in_the_same_zone_is_requested_once() -> None:
    offered = options(["m5.large"])
    request, _ = launch_plan(CLAIM, [*offered, *offered], NODECLASS, status(), CLUSTER)
    assert len(request.overrides) == 3


def test_each_zone_uses_its_subnet_with_the_most_free_addresses_and_ties_are_broken_by_id() -> None:
    subnets = (
        Subnet("subnet-3", "us-east-1a", free_ips=10),
        Subnet("subnet-2", "us-east-1a", free_ips=90),
        Subnet("subnet-1", "us-east-1a", free_ips=90),
        Subnet("subnet-4", "us-east-1b", free_ips=1),
    )
    assert {zone: s.id for zone, s in subnet_by_zone(subnets).items()} == {
        "us-east-1a": "subnet-1",
        "us-east-1b": "subnet-4",
    }


def test_a_zone_without_a_subnet_is_left_out() -> None:
    only_b = status(subnets=(Subnet("subnet-b", "us-east-1b", free_ips=5),))
    request, _ = launch_plan(CLAIM, options(["m5.large"]), NODECLASS, only_b, CLUSTER)
    assert [(o.zone, o.subnet_id) for o in request.overrides] == [("us-east-1b", "subnet-b")]


def test_each_type_boots_the_first_image_that_fits_it() -> None:
    request, templates = plan("m5.large", "m6g.large")
    images = {template.name: template.data["ImageId"] for template in templates}
    assert {o.instance_type: images[o.template] for o in request.overrides} == {
        "m5.large": "ami-amd64",
        "m6g.large": "ami-arm64",
    }


def test_a_type_that_no_image_boots_is_left_out() -> None:
    request, _ = plan("m5.large", "g5.xlarge")
    assert {o.instance_type for o in request.overrides} == {"m5.large"}


def test_types_share_a_template_when_image_and_pod_limit_are_the_same() -> None:
    request, templates = plan("m5.large", "c5.large", "m5.xlarge")
    by_type = {o.instance_type: o.template for o in request.overrides}
    assert by_type["m5.large"] == by_type["c5.large"] != by_type["m5.xlarge"]
    assert {template.name for template in templates} == set(by_type.values())


def test_a_fixed_pod_limit_makes_one_template_of_all_types() -> None:
    kubelet = replace(NODECLASS.kubelet, max_pods=40)
    _, templates = plan("m5.large", "m5.xlarge", "m5.2xlarge", nodeclass=replace(NODECLASS, kubelet=kubelet))
    assert len(templates) == 1


def test_only_templates_that_an_override_names_are_returned() -> None:
    _, templates = launch_plan(CLAIM, options(FAMILIES), NODECLASS, status(), CLUSTER)
    request, _ = launch_plan(CLAIM, options(FAMILIES), NODECLASS, status(), CLUSTER)
    assert [t.name for t in templates] == sorted({o.template for o in request.overrides})


def test_template_names_are_valid_in_ec2_for_the_longest_cluster_name() -> None:
    cluster = replace(CLUSTER, name="a" * 100)
    _, (template,) = launch_plan(CLAIM, options(["m5.large"]), NODECLASS, status(), cluster)
    assert re.fullmatch(r"[a-zA-Z0-9().\-/_]{3,128}", template.name)


def test_claims_that_differ_in_name_only_share_their_templates() -> None:
    _, first = plan()
    _, second = plan(claim=replace(CLAIM, name="default-other"))
    assert first == second


@pytest.mark.parametrize(
    "changed",
    [
        replace(NODECLASS, user_data="#!/bin/sh\necho hello\n"),
        replace(NODECLASS, tags={"team": "a"}),
        replace(NODECLASS, detailed_monitoring=True),
    ],
)
def test_a_changed_nodeclass_is_another_template(changed: EC2NodeClass) -> None:
    _, (before,) = plan()
    _, (after,) = plan(nodeclass=changed)
    assert before.name != after.name


def test_everything_launched_carries_the_tags_that_find_it_again() -> None:
    request, (template,) = plan(nodeclass=replace(NODECLASS, tags={"team": "express"}))
    shared = {
        "team": "express",
        "kubernetes.io/cluster/express": "owned",
        "eks:eks-cluster-name": "express",
        "nodesmith.dev/managed-by": "express",
        "karpenter.sh/nodepool": "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }
    assert template.tags == shared
    assert request.tags == {**shared, "karpenter.sh/nodeclaim": CLAIM.name, "Name": CLAIM.name}


def test_volumes_that_must_outlive_their_nodes_are_tagged() -> None:
    disk = BlockDeviceMapping("/dev/xvdb", BlockDevice("1Gi", delete_on_termination=False))
    kept, _ = plan(nodeclass=replace(NODECLASS, block_device_mappings=(disk,)))
    assert kept.tags["nodesmith.dev/keep-volumes"] == "true"
    assert "nodesmith.dev/keep-volumes" not in plan()[0].tags


def test_a_name_tag_of_the_user_is_kept() -> None:
    request, _ = plan(nodeclass=replace(NODECLASS, tags={"Name": "web"}))
    assert request.tags["Name"] == "web"


def test_a_request_is_the_same_after_it_was_stored() -> None:
    request, _ = plan("m5.large", "m6g.large")
    assert LaunchRequest.from_item(CLAIM.name, request.to_item()) == request


def test_efa_interfaces_are_created_only_for_claims_that_request_efa() -> None:
    asking = replace(CLAIM, requests=Resources({"vpc.amazonaws.com/efa": 1}))
    _, (plain,) = plan("c5n.18xlarge")
    _, (efa,) = plan("c5n.18xlarge", claim=asking)
    assert [i["InterfaceType"] for i in plain.data["NetworkInterfaces"]] == ["interface"]
    assert [i["InterfaceType"] for i in efa.data["NetworkInterfaces"]] == ["efa"]


def test_options_of_several_capacity_types_are_an_error_of_the_caller() -> None:
    mixed = [*options(["m5.large"]), *options(["m5.large"], capacity_type="on-demand")]
    with pytest.raises(ValueError, match=r"one capacity type expected.*on-demand.*spot"):
        launch_plan(CLAIM, mixed, NODECLASS, status(), CLUSTER)
    with pytest.raises(ValueError, match="one capacity type expected"):
        launch_plan(
            replace(CLAIM, capacity_type="on-demand"), options(["m5.large"]), NODECLASS, status(), CLUSTER
        )


def test_a_claim_for_which_no_zone_has_a_subnet_is_rejected_with_the_zones() -> None:
    nowhere = status(subnets=(Subnet("subnet-z", "us-west-2a"),))
    with pytest.raises(Rejected, match=r"default-x7k2p.*no subnet in us-east-1a, us-east-1b, us-east-1c"):
        launch_plan(CLAIM, options(["m5.large"]), NODECLASS, nowhere, CLUSTER)


def test_a_claim_for_which_no_image_boots_is_rejected_with_the_types() -> None:
    with pytest.raises(Rejected, match=r"no image of EC2NodeClass default boots on g5\.xlarge"):
        launch_plan(CLAIM, options(["g5.xlarge"]), NODECLASS, status(), CLUSTER)


def test_a_plan_does_not_depend_on_the_time() -> None:
    later = replace(CLAIM, created_at=NOW.replace(year=2030))
    assert plan(claim=later) == plan()


def test_the_context_of_a_nodeclass_is_in_the_request_unless_min_values_were_relaxed() -> None:
    nodeclass = replace(NODECLASS, context="context-1")
    relaxed = {"karpenter.sh/nodeclaim-min-values-relaxed": "true"}
    assert plan(nodeclass=nodeclass)[0].context == "context-1"
    assert plan(nodeclass=nodeclass, claim=replace(CLAIM, annotations=relaxed))[0].context == ""
    assert plan()[0].context == ""


def test_a_stored_request_keeps_its_context() -> None:
    request, _ = plan(nodeclass=replace(NODECLASS, context="context-1"))
    assert LaunchRequest.from_item(request.claim, request.to_item()) == request
    assert "context" not in plan()[0].to_item()


def test_a_claim_promises_efa_only_if_its_instance_gets_such_interfaces() -> None:
    efa = "vpc.amazonaws.com/efa"
    ((p5, _), *_) = options(["p5.48xlarge"], capacity_type="on-demand")
    claim = replace(CLAIM, capacity=p5.capacity, allocatable=p5.allocatable)
    asking = replace(claim, requests=Resources({efa: 1}))
    chosen = replace(NODECLASS, network_interfaces=(NetworkInterface(0, 0, "interface"),))
    for one, nodeclass, promised in (
        (claim, NODECLASS, 0),
        (asking, NODECLASS, 32),
        (claim, chosen, 32),
    ):
        launched = as_launched(one, nodeclass)
        assert (launched.capacity.of(efa), launched.allocatable.of(efa)) == (promised, promised)
        assert launched.capacity.of("nvidia.com/gpu") == 8
