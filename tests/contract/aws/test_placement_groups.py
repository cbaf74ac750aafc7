"""Placement groups: what an EC2NodeClass's selector finds, and what instances in a group get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.model.nodeclasses.nodeclasses import PlacementGroupSelector
from nodesmith.model.nodeclasses.status import NodeClassStatus, PlacementGroup, StatusCondition
from tests.aws.account import NODECLASS, REGION, SETTINGS, Account, account
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER


@pytest.fixture
def here() -> Iterator[Account]:
    with account() as made:
        yield made


def ec2() -> Any:
    return boto3.client("ec2", region_name=REGION)


def made(name: str, strategy: str, **more: Any) -> str:
    group = ec2().create_placement_group(GroupName=name, Strategy=strategy, **more)
    return str(group["PlacementGroup"]["GroupId"])


def resolved(here: Account, **selector: str) -> NodeClassStatus:
    now = here.strict.visibility.now()
    client = acting(lambda s: boto3.client(s, region_name=REGION), Role("readiness", CLUSTER.name, REGION))
    nodeclass = replace(NODECLASS, placement_group_selector=PlacementGroupSelector(**selector))
    return AwsCloud(client, SETTINGS, lambda: now).resolve(nodeclass, CLUSTER, now)


def condition(status: NodeClassStatus) -> StatusCondition:
    return next(each for each in status.conditions if each.type == "PlacementGroupReady")


@pytest.mark.parametrize(
    ("strategy", "more", "partitions"),
    [("cluster", {}, 0), ("spread", {}, 0), ("partition", {"PartitionCount": 5}, 5)],
)
def test_a_group_is_found_by_name_and_by_id(
    here: Account, strategy: str, more: dict[str, Any], partitions: int
) -> None:
    id_ = made("training", strategy, **more)
    expected = PlacementGroup(id_, "training", strategy, partitions)
    for status in (resolved(here, name="training"), resolved(here, id=id_)):
        assert status.placement_group == expected
        assert condition(status).status == "True"
        assert status.is_ready, status.first_obstacle


def test_a_missing_group_is_reported_with_the_name_that_was_meant(here: Account) -> None:
    made("training", "spread")
    status = resolved(here, name="trainning")
    found = condition(status)
    assert (found.status, found.reason) == ("False", "PlacementGroupNotFound")
    assert "spec.placementGroupSelector.name" in found.message
    assert "did you mean 'training'?" in found.message
    assert not status.is_ready


def test_instances_of_others_in_the_group_are_counted_by_zone(here: Account) -> None:
    made("training", "spread")
    launch(here, "training", "us-east-1b", 3)
    group = resolved(here, name="training").placement_group
    assert group is not None
    assert group.instances == (("us-east-1b", 3),)


def test_a_cluster_group_whose_instances_are_in_another_zone_is_reported(here: Account) -> None:
    made("training", "cluster")
    launch(here, "training", "us-east-1b", 1)
    assert condition(resolved(here, name="training")).status == "True"
    ec2().delete_tags(
        Resources=[here.network.subnets["us-east-1b"]], Tags=[{"Key": "karpenter.sh/discovery"}]
    )
    found = condition(resolved(here, name="training"))
    assert (found.status, found.reason) == ("False", "PlacementGroupResolutionFailed")
    assert "are in us-east-1b, where spec.subnetSelectorTerms select no subnet" in found.message


def launch(here: Account, group: str, zone: str, count: int) -> None:
    """Launch instances of other software into a group."""
    name = f"others-{zone}"
    images = ec2().describe_images(Owners=["amazon"])["Images"]
    data = {"ImageId": images[0]["ImageId"], "Placement": {"GroupName": group}}
    ec2().create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    override = {"InstanceType": "m5.large", "SubnetId": here.network.subnets[zone]}
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "1"},
        "Overrides": [override],
    }
    answer = ec2().create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[config],
        TargetCapacitySpecification={
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "on-demand",
        },
    )
    assert not answer["Errors"]
    here.strict.visibility.settle()
