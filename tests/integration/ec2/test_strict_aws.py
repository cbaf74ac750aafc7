"""The simulated AWS of tests and `nodesmith local`: it has AWS's validation, rate limits and eventual consistency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.nodeclasses.selectedresources import capacity_reservations
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan
from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import Launched, LaunchRequest, LaunchTemplate, Refused, TemplateMissing
from nodesmith.model.nodeclasses.nodeclasses import CapacityReservationSelectorTerm
from nodesmith_local.aws.strict import StrictAws
from nodesmith_local.aws.strict.ec2buckets import RESOURCES, Ec2Buckets, rate_of
from nodesmith_local.aws.strict.filternames import documented_filters
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal
from tests.aws.account import NODECLASS, SETTINGS, Account, account, client, unvalidated_client
from tests.clocks import StillClock
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NOW, options

Plan = tuple[LaunchRequest, tuple[LaunchTemplate, ...]]
TARGET = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"}


@pytest.fixture
def world() -> Iterator[Account]:
    with account() as furnished:
        yield furnished


def refusal(service: str, operation: str, **asked: Any) -> str:
    with pytest.raises(ClientError) as caught:
        getattr(unvalidated_client(service), operation)(**asked)
    return str(caught.value.response["Error"]["Code"])


def fleet(**changes: Any) -> dict[str, Any]:
    named = {"LaunchTemplateName": "existing", "Version": "1"}
    configs = [{"LaunchTemplateSpecification": named}]
    return {
        "LaunchTemplateConfigs": configs,
        "TargetCapacitySpecification": TARGET,
        "Type": "instant",
        **changes,
    }


def planned(cloud: AwsCloud) -> Plan:
    status = cloud.resolve(NODECLASS, CLUSTER, NOW)
    return launch_plan(CLAIM, options(["m5.large"]), NODECLASS, status, CLUSTER)


def launched(cloud: AwsCloud) -> Launched:
    request, templates = planned(cloud)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Launched)
    return outcome


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("describe_capacity_reservations", "capacity-reservation-id"),
        ("describe_instances", "claim"),
        ("describe_launch_templates", "launch-template-id"),
        ("describe_spot_instance_requests", "instance"),
    ],
)
@pytest.mark.usefixtures("world")
def test_an_undocumented_filter_is_refused(operation: str, name: str) -> None:
    filters = [{"Name": name, "Values": ["x"]}]
    assert refusal("ec2", operation, Filters=filters) == "InvalidParameterValue"


def test_documented_filters_are_accepted_and_listed_once() -> None:
    assert {"instance-id", "tag:<key>", "tag-key"} <= documented_filters("DescribeInstances")
    assert {"state", "owner-id", "instance-match-criteria"} <= documented_filters(
        "DescribeCapacityReservations"
    )
    assert "pending" not in documented_filters("DescribeInstances"), "the value of a filter is not a filter"


@pytest.mark.parametrize(
    ("service", "operation", "asked", "code"),
    [
        ("ec2", "create_fleet", fleet(Type="sometimes"), "InvalidParameterValue"),
        ("ec2", "create_fleet", {"Type": "instant", "LaunchTemplateConfigs": []}, "MissingParameter"),
        ("ec2", "describe_subnets", {"MaxResults": 4}, "InvalidParameterValue"),
        ("iam", "create_instance_profile", {"InstanceProfileName": "with space"}, "ValidationError"),
        ("iam", "create_instance_profile", {"InstanceProfileName": "p", "Path": "p"}, "ValidationError"),
        (
            "iam",
            "create_instance_profile",
            {"InstanceProfileName": "p", "Tags": [{"Key": "k*", "Value": ""}]},
            "ValidationError",
        ),
        (
            "dynamodb",
            "put_item",
            {"TableName": "t", "Item": {}, "ReturnValues": "EVERYTHING"},
            "ValidationException",
        ),
        ("ssm", "get_parameter", {"Name": ""}, "ValidationException"),
    ],
)
@pytest.mark.usefixtures("world")
def test_requests_that_violate_the_service_model_are_refused(
    service: str, operation: str, asked: dict[str, Any], code: str
) -> None:
    assert refusal(service, operation, **asked) == code


@pytest.mark.usefixtures("world")
def test_a_pattern_of_the_model_matches_letters_of_any_alphabet() -> None:
    tags = [{"Key": "Größe 1", "Value": "größer/als:1"}]
    client("iam").create_instance_profile(InstanceProfileName="p", Tags=tags)
    assert client("iam").get_instance_profile(InstanceProfileName="p")["InstanceProfile"]["Tags"] == tags


CAPACITY_BLOCK = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "capacity-block"}
LOWEST = {"AllocationStrategy": "lowest-price"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (
            {"TargetCapacitySpecification": CAPACITY_BLOCK, "OnDemandOptions": LOWEST},
            "InvalidParameterCombination",
        ),
        (
            {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}},
            "InvalidParameterCombination",
        ),
        ({"ExcessCapacityTerminationPolicy": "termination"}, "InvalidParameterCombination"),
        ({"ReplaceUnhealthyInstances": True}, "InvalidParameterCombination"),
        ({"ValidUntil": datetime(2026, 12, 1, tzinfo=UTC)}, "InvalidParameterCombination"),
        ({"Type": "request", "OnDemandOptions": {"SingleInstanceType": True}}, "InvalidParameterCombination"),
        (
            {"TargetCapacitySpecification": {**TARGET, "OnDemandTargetCapacity": 1, "SpotTargetCapacity": 1}},
            "InvalidParameterValue",
        ),
        ({"TagSpecifications": [{"ResourceType": "spot-instances-request"}]}, "InvalidParameterValue"),
        (
            {"LaunchTemplateConfigs": [{"LaunchTemplateSpecification": {"LaunchTemplateName": "existing"}}]},
            "MissingParameter",
        ),
        (
            {
                "TagSpecifications": [
                    {"ResourceType": "fleet", "Tags": [{"Key": "k", "Value": v} for v in "ab"]}
                ]
            },
            "InvalidParameterValue",
        ),
        ({"ClientToken": "für"}, "InvalidParameterValue"),
    ],
)
@pytest.mark.usefixtures("world")
def test_an_invalid_fleet_is_refused(changes: dict[str, Any], code: str) -> None:
    assert refusal("ec2", "create_fleet", **fleet(**changes)) == code


@pytest.mark.usefixtures("world")
def test_ids_and_a_page_size_exclude_each_other() -> None:
    for operation in ("describe_instances", "describe_instance_status"):
        asked = {"InstanceIds": ["i-1"], "MaxResults": 5}
        assert refusal("ec2", operation, **asked) == "InvalidParameterCombination"


def test_moto_is_restored_when_the_gate_is_closed() -> None:
    with mock_aws():
        with StrictAws():
            assert refusal("ec2", "describe_subnets", MaxResults=4) == "InvalidParameterValue"
        unvalidated_client("ec2").describe_subnets(MaxResults=4)


def taken(buckets: Ec2Buckets, operation: str, **asked: Any) -> bool:
    try:
        buckets.check(AwsRequest("ec2", operation, asked))
    except Refusal as refused:
        return refused.code != "RequestLimitExceeded"
    return True


@pytest.mark.parametrize(
    ("operation", "asked", "burst", "refill"),
    [
        ("CreateFleet", {"TargetCapacitySpecification": TARGET}, 50, 5),
        ("CreateLaunchTemplate", {}, 50, 5),
        ("CreateKeyPair", {}, 50, 5),
        ("CreateTags", {}, 100, 10),
        ("TerminateInstances", {}, 100, 5),
        ("RunInstances", {}, 5, 2),
        ("DescribeSubnets", {}, 100, 20),
        ("DescribeInstances", {}, 50, 10),
        ("DescribeInstances", {"Filters": [{"Name": "vpc-id"}]}, 100, 20),
        ("DescribeVolumes", {"MaxResults": 5}, 100, 20),
    ],
)
def test_calls_beyond_a_buckets_burst_are_refused_until_it_is_refilled(
    operation: str, asked: dict[str, Any], burst: int, refill: int
) -> None:
    clock = StillClock()
    buckets = Ec2Buckets(clock)
    assert [taken(buckets, operation, **asked) for _ in range(burst + 1)] == [True] * burst + [False]
    clock.time += timedelta(seconds=1)
    assert [taken(buckets, operation, **asked) for _ in range(refill + 1)] == [True] * refill + [False]
    rate = rate_of(AwsRequest("ec2", operation, asked))
    assert (rate.burst, rate.refill_per_second) == (burst, refill)


def test_each_action_has_its_own_bucket_and_all_launches_share_one_for_instances() -> None:
    clock = StillClock()
    buckets = Ec2Buckets(clock)
    thousand = {"TotalTargetCapacity": 1000}
    assert taken(buckets, "CreateFleet", TargetCapacitySpecification=thousand)
    assert not taken(buckets, "RunInstances", MaxCount=1)
    assert taken(buckets, "DeleteLaunchTemplate")
    for operation in ("StartInstances", "StopInstances", "TerminateInstances"):
        assert taken(buckets, operation, InstanceIds=[str(n) for n in range(1000)])
    assert not taken(buckets, "TerminateInstances", InstanceIds=["i-1"])
    clock.time += timedelta(seconds=1)
    for operation, rate in RESOURCES.items():
        assert buckets.bucket(f"{operation}/resources", rate).available() == rate.refill_per_second


def test_rate_limits_apply_to_every_call(world: Account) -> None:
    world.strict.buckets = Ec2Buckets(StillClock())
    codes = [
        refusal("ec2", "run_instances", ImageId="x", MinCount=1, MaxCount=1, DryRun=True) for _ in range(6)
    ]
    assert [code == "RequestLimitExceeded" for code in codes] == [False] * 5 + [True]
    world.strict.limit_rates(on=False)
    assert (
        refusal("ec2", "run_instances", ImageId="x", MinCount=1, MaxCount=1, DryRun=True)
        != "RequestLimitExceeded"
    )


def test_a_new_instance_cannot_be_found_by_tags_or_id_for_some_seconds(world: Account) -> None:
    cloud = AwsCloud(client, SETTINGS, system_time)
    world.strict.visibility.instances_after = timedelta(hours=1)
    instance = launched(cloud).instance
    assert cloud.instances_of([CLAIM.name]) == {}
    assert cloud.owned_instances() == []
    assert refusal("ec2", "describe_instances", InstanceIds=[instance.id]) == "InvalidInstanceID.NotFound"
    world.strict.visibility.settle()
    assert [found.id for found in cloud.instances_of([CLAIM.name])[CLAIM.name]] == [instance.id]


RESERVATION = {
    "CapacityReservationId": "cr-0123456789abcdef0",
    "InstanceType": "m5.large",
    "AvailabilityZone": "us-east-1a",
    "AvailableInstanceCount": 3,
    "InstanceMatchCriteria": "open",
    "OwnerId": "123456789012",
    "ReservationType": "default",
    "State": "active",
    "Tags": [{"Key": "team", "Value": "ml"}],
}


@pytest.mark.parametrize(
    ("term", "count"),
    [
        (CapacityReservationSelectorTerm(id="cr-0123456789abcdef0"), 1),
        (CapacityReservationSelectorTerm(id="cr-00000000000000000"), 0),
        (CapacityReservationSelectorTerm({"team": "ml"}, owner_id="123456789012"), 1),
        (CapacityReservationSelectorTerm({"team": "*"}, instance_match_criteria="open"), 1),
        (CapacityReservationSelectorTerm({"team": "web"}), 0),
    ],
)
def test_capacity_reservations_are_found_with_valid_calls(
    world: Account, term: CapacityReservationSelectorTerm, count: int
) -> None:
    world.strict.reservations.append(RESERVATION)
    assert len(capacity_reservations(client("ec2"), [term], NOW, [])) == count


def test_instances_are_shown_two_seconds_after_their_launch(world: Account) -> None:
    cloud, made = AwsCloud(client, SETTINGS, system_time), datetime.now(UTC)
    launched(cloud)
    world.strict.visibility.now = lambda: made + timedelta(seconds=60)
    assert len(cloud.owned_instances()) == 1
    assert world.strict.visibility.instances_after == timedelta(seconds=2)


@pytest.mark.usefixtures("world")
def test_a_launch_repeated_before_ec2_shows_its_instance_returns_the_same_one() -> None:
    cloud = AwsCloud(client, SETTINGS, system_time)
    first = launched(cloud).instance
    again = launched(AwsCloud(client, SETTINGS, system_time)).instance
    assert again == first or again.id == first.id


def test_a_new_template_is_missing_at_first_and_found_later(world: Account) -> None:
    cloud = AwsCloud(client, SETTINGS, system_time)
    request, templates = planned(cloud)
    world.strict.visibility.templates_after = timedelta(minutes=1)
    cloud.ensure_templates(templates)
    assert cloud.launch([request]) == [TemplateMissing(CLAIM.name)]
    world.strict.visibility.settle()
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Launched)


def test_an_ipv6_address_is_given_only_in_a_subnet_that_has_some(world: Account) -> None:
    cloud = AwsCloud(client, SETTINGS, system_time)
    ipv6 = replace(CLUSTER, ip_family="ipv6")
    request, templates = launch_plan(
        CLAIM, options(["m5.large"]), NODECLASS, cloud.resolve(NODECLASS, CLUSTER, NOW), ipv6
    )
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Refused)
    assert "No IPv6 CIDR block is associated with subnet" in outcome.message
    for number, subnet in enumerate(world.network.subnets.values()):
        block = f"2600:1f18:0:{number}::/64"
        client("ec2").associate_subnet_cidr_block(SubnetId=subnet, Ipv6CidrBlock=block)
    (outcome,) = cloud.launch([LaunchRequest.from_item("default-later", request.to_item())])
    assert isinstance(outcome, Launched)
    world.strict.visibility.settle()
    (found,) = (
        each
        for reservation in client("ec2").describe_instances()["Reservations"]
        for each in reservation["Instances"]
    )
    assert found["NetworkInterfaces"][0]["Ipv6Addresses"]


def test_a_new_profile_is_refused_at_first_and_accepted_later(world: Account) -> None:
    cloud = AwsCloud(client, SETTINGS, system_time)
    request, templates = planned(cloud)
    world.strict.visibility.profiles_after = timedelta(minutes=1)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Refused)
    assert outcome.reason == "InstanceProfileNameInvalid"
    world.strict.visibility.settle()
    (outcome,) = cloud.launch([LaunchRequest.from_item("default-later", request.to_item())])
    assert isinstance(outcome, Launched)


def test_ec2_terminates_instances_of_zones_without_a_protected_one_and_fails(world: Account) -> None:
    ec2, subnets = client("ec2"), sorted(world.network.subnets.values())
    image = ec2.describe_images()["Images"][0]["ImageId"]
    ids = [
        ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, SubnetId=subnet, InstanceType="m5.large")[
            "Instances"
        ][0]["InstanceId"]
        for subnet in (subnets[0], subnets[0], subnets[1])
    ]
    world.strict.visibility.settle()
    ec2.modify_instance_attribute(InstanceId=ids[0], DisableApiTermination={"Value": True})
    assert refusal("ec2", "terminate_instances", InstanceIds=ids) == "OperationNotPermitted"
    assert states(ids) == ["running", "running", "terminated"]
    with pytest.raises(Transient, match=f"{ids[0]}: OperationNotPermitted"):
        AwsCloud(client, SETTINGS, system_time).terminate(ids)
    assert states(ids) == ["running", "terminated", "terminated"]


def states(ids: list[str]) -> list[str]:
    found = client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
    by_id = {i["InstanceId"]: i["State"]["Name"] for reservation in found for i in reservation["Instances"]}
    return [by_id[one] for one in ids]
