"""Resolution of subnets, security groups and instance profiles: IP families, hints, transitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.ownedresources import profile_name
from nodesmith.composition.parts import system_time
from nodesmith.model.commands import OwnedKind
from nodesmith.model.nodeclasses.nodeclasses import (
    EC2NodeClass,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, StatusCondition
from nodesmith_local.aws.account import make_instance_profile, make_role
from tests.aws.account import NODECLASS, REGION, SETTINGS, Account, account, client
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
IPV6 = replace(CLUSTER, ip_family="ipv6", service_cidr="fd12::/108", dns_ip="fd12::a")


@pytest.fixture(autouse=True)
def world() -> Iterator[Account]:
    with account() as furnished:
        furnished.strict.limit_rates(on=False)
        yield furnished


READINESS = acting(client, Role("readiness", CLUSTER.name, REGION))


def resolved(nodeclass: EC2NodeClass, cluster: ClusterInfo = CLUSTER, **changes: Any) -> NodeClassStatus:
    return AwsCloud(READINESS, replace(SETTINGS, **changes), system_time).resolve(nodeclass, cluster, NOW)


def condition(status: NodeClassStatus, kind: str) -> StatusCondition:
    return next(c for c in status.conditions if c.type == kind)


def give_ipv6(world: Account, *zones: str) -> None:
    """Associate an IPv6 block with the subnets of these zones."""
    for number, zone in enumerate(zones):
        client("ec2").associate_subnet_cidr_block(
            SubnetId=world.network.subnets[zone], Ipv6CidrBlock=f"2600:1f18:0:{number}::/64"
        )


def test_in_an_ipv6_cluster_a_subnet_without_an_ipv6_block_is_left_out_and_named(world: Account) -> None:
    give_ipv6(world, "us-east-1a", "us-east-1b")
    status = resolved(NODECLASS, IPV6)
    lacking = world.network.subnets["us-east-1c"]
    assert {subnet.zone for subnet in status.subnets} == {"us-east-1a", "us-east-1b"}
    reported = condition(status, "SubnetsReady")
    assert (reported.status, reported.message) == (
        "True",
        f"left out: {lacking} has no IPv6 CIDR block, but the cluster is IPv6: associate one with it",
    )
    assert status.is_ready


def test_in_an_ipv6_cluster_without_such_a_subnet_nothing_is_launched() -> None:
    status = resolved(NODECLASS, IPV6)
    reported = condition(status, "SubnetsReady")
    assert (reported.status, reported.reason) == ("False", "SubnetsNotFound")
    assert "has no IPv6 CIDR block, but the cluster is IPv6" in reported.message
    assert status.subnets == ()


def test_a_subnet_with_both_families_serves_an_ipv4_cluster(world: Account) -> None:
    give_ipv6(world, "us-east-1a")
    status = resolved(NODECLASS)
    assert len(status.subnets) == 3
    assert condition(status, "SubnetsReady").message == ""


def test_a_subnet_with_ipv6_only_serves_no_cluster(world: Account) -> None:
    native = client("ec2").create_subnet(
        VpcId=world.network.vpc_id,
        AvailabilityZone="us-east-1a",
        Ipv6CidrBlock="2600:1f18:0:9::/64",
        Ipv6Native=True,
    )["Subnet"]["SubnetId"]
    nodeclass = replace(NODECLASS, subnet_selector_terms=(SubnetSelectorTerm(id=native),))
    for cluster in (CLUSTER, IPV6):
        reported = condition(resolved(nodeclass, cluster), "SubnetsReady")
        assert reported.reason == "SubnetsNotFound"
        assert f"{native} has only IPv6 addresses" in reported.message


def test_a_misspelt_tag_value_is_reported_with_the_one_that_is_meant_in_the_clusters_vpc(
    world: Account,
) -> None:
    nodeclass = replace(
        NODECLASS,
        subnet_selector_terms=(SubnetSelectorTerm({"karpenter.sh/discovery": "expres"}),),
        security_group_selector_terms=(SecurityGroupSelectorTerm({"karpenter.sh/discovery": "other"}),),
    )
    elsewhere = resolved(nodeclass, vpc_id="vpc-0123456789abcdef0")
    assert "but there are some" not in condition(elsewhere, "SubnetsReady").message
    status = resolved(nodeclass, vpc_id=world.network.vpc_id)
    subnets, groups = (condition(status, f"{kind}Ready").message for kind in ("Subnets", "SecurityGroups"))
    assert "but there are some with karpenter.sh/discovery=express, did you mean 'express': tag" in subnets
    assert "but there are some with karpenter.sh/discovery=express: tag" in groups


def test_a_dns_server_of_the_other_family_is_reported_and_nothing_is_launched(world: Account) -> None:
    give_ipv6(world, "us-east-1a")
    kubelet = replace(NODECLASS.kubelet, cluster_dns=("10.100.0.10",))
    reported = condition(resolved(replace(NODECLASS, kubelet=kubelet), IPV6), "ValidationSucceeded")
    assert (reported.status, reported.reason) == ("False", "IPFamilyMismatch")


def test_each_nodeclass_has_a_profile_of_its_own_although_they_share_a_role() -> None:
    first, second = NODECLASS, replace(NODECLASS, name="other", uid="uid-other")
    names = {resolved(each).instance_profile for each in (first, second)}
    assert len(names) == 2
    for name in names:
        profile = client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        assert [role["RoleName"] for role in profile["Roles"]] == [NODECLASS.role]


def test_a_nodeclass_may_change_from_a_role_to_a_profile_and_back() -> None:
    make_instance_profile(client("iam"), "their-own")
    with_role = resolved(NODECLASS).instance_profile
    with_profile = resolved(replace(NODECLASS, role="", instance_profile="their-own")).instance_profile
    back = resolved(NODECLASS).instance_profile
    assert with_role == back == profile_name(NODECLASS, CLUSTER.name, REGION)
    assert with_profile == "their-own"
    owned = AwsCloud(client, SETTINGS, system_time).owned(OwnedKind.INSTANCE_PROFILE)
    assert [each.id for each in owned] == [with_role], "a user's own profile is never nodesmith's to delete"


def test_a_profile_whose_role_somebody_has_exchanged_is_reported() -> None:
    name = resolved(NODECLASS).instance_profile
    make_role(client("iam"), "other")
    client("iam").remove_role_from_instance_profile(InstanceProfileName=name, RoleName=NODECLASS.role)
    client("iam").add_role_to_instance_profile(InstanceProfileName=name, RoleName="other")
    reported = condition(resolved(NODECLASS), "InstanceProfileReady")
    assert (reported.status, reported.reason) == ("False", "RoleMismatch")
    assert f"holds role other instead of {NODECLASS.role}" in reported.message
