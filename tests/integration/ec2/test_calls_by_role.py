"""AWS calls in the name of a role: they are granted by the role's policy, or the test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan
from tests.aws.account import NODECLASS, REGION, SETTINGS, Account, account, client
from tests.awscalls.acting import Role, access_key, acting
from tests.awscalls.plugin import recorder
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NOW, options


@pytest.fixture(autouse=True)
def world() -> Iterator[Account]:
    with account() as furnished:
        yield furnished


def as_(concern: str, cluster: str = CLUSTER.name) -> AwsCloud:
    return AwsCloud(acting(client, Role(concern, cluster, REGION)), SETTINGS, system_time)


def refused() -> list[str]:
    """Accept denied calls, so that they do not fail the test."""
    found, recorder().refused = recorder().refused, []
    return [each.partition(", {")[0] for each in found]


def launch(cloud: AwsCloud) -> None:
    status = AwsCloud(client, SETTINGS, system_time).resolve(NODECLASS, CLUSTER, NOW)
    request, templates = launch_plan(CLAIM, options(["m5.large"], NODECLASS), NODECLASS, status, CLUSTER)
    cloud.ensure_templates(templates)
    cloud.launch([request])


@pytest.mark.parametrize("concern", ["provisioning", "interruption", "disruption"])
def test_the_provisioning_role_may_make_all_calls_of_a_launch_and_its_lookup(concern: str) -> None:
    launch(as_(concern))
    as_(concern).instances_of([CLAIM.name])
    assert refused() == []


def test_a_role_is_denied_calls_that_only_another_role_may_make() -> None:
    as_("repair").instances_of([CLAIM.name])
    assert refused() == ["repair: ec2:DescribeInstances on *"]


def test_another_clusters_role_has_no_access_to_this_clusters_resources() -> None:
    launch(as_("provisioning", cluster="other"))
    created = [each for each in refused() if each.startswith("provisioning: ec2:CreateFleet on")]
    assert f"provisioning: ec2:CreateFleet on arn:aws:ec2:{REGION}:123456789012:fleet/new" in created


def test_a_launch_into_a_vpc_that_is_not_the_clusters_is_refused() -> None:
    tags = [{"Key": "karpenter.sh/discovery", "Value": CLUSTER.name}]
    vpc = client("ec2").create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    own = client("ec2").describe_subnets(Filters=[{"Name": "tag-key", "Values": ["karpenter.sh/discovery"]}])
    client("ec2").delete_tags(Resources=[each["SubnetId"] for each in own["Subnets"]], Tags=tags)
    foreign = []
    for number, letter in enumerate("abc"):
        made = client("ec2").create_subnet(
            VpcId=vpc, AvailabilityZone=f"{REGION}{letter}", CidrBlock=f"10.1.{number}.0/24"
        )
        foreign.append(made["Subnet"]["SubnetId"])
    client("ec2").create_tags(Resources=foreign, Tags=tags)
    launch(as_("provisioning"))
    into = {each for each in refused() if ":subnet/" in each}
    assert into
    assert {each.rpartition("/")[2] for each in into} <= set(foreign)


def test_a_paginators_calls_are_made_in_the_roles_name() -> None:
    ec2 = acting(client, Role("repair", CLUSTER.name, REGION))("ec2")
    pages = list(ec2.get_paginator("describe_volumes").paginate())
    assert pages
    assert refused() == ["repair: ec2:DescribeVolumes on *"]


def test_a_role_is_read_from_the_access_key_that_names_it() -> None:
    for role in (Role("lifecycle", "a.b-c_d", REGION), Role("routing", "", REGION)):
        assert Role.parse(access_key(role)) == role
    assert Role.parse("AKIAIOSFODNN7EXAMPLE") is None
