"""AwsCloud with EC2 errors, and the properties of launched instances."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan
from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import (
    Deferred,
    Launched,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    Refused,
    TemplateMissing,
    Unfulfilled,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from tests.aws.account import NODECLASS, REGION, SETTINGS, Account, account, client
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NOW, options

Plan = tuple[LaunchRequest, tuple[LaunchTemplate, ...]]


@pytest.fixture(autouse=True)
def world() -> Iterator[Account]:
    # So that a missing instance does not match. Other tests cover delayed visibility.
    with account(delayed=False) as furnished:
        yield furnished


@pytest.fixture
def cloud() -> AwsCloud:
    return AwsCloud(acting(client, Role("provisioning", CLUSTER.name, REGION)), SETTINGS, system_time)


def planned(nodeclass: EC2NodeClass = NODECLASS, claim: str = CLAIM.name) -> Plan:
    """Return a launch, planned from the NodeClass that readiness has resolved."""
    status = AwsCloud(client, SETTINGS, system_time).resolve(nodeclass, CLUSTER, NOW)
    node = replace(CLAIM, name=claim)
    return launch_plan(node, options(["m5.large"], nodeclass), nodeclass, status, CLUSTER)


def launched(cloud: AwsCloud, plan: Plan) -> Launched:
    cloud.ensure_templates(plan[1])
    (outcome,) = cloud.launch([plan[0]])
    assert isinstance(outcome, Launched)
    return outcome


def described(instance_id: str) -> dict[str, Any]:
    found = client("ec2").describe_instances(InstanceIds=[instance_id])
    return dict(found["Reservations"][0]["Instances"][0])


def tags_of(described: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in described["Tags"]}


def test_the_instance_matches_the_launch_template(world: Account, cloud: AwsCloud) -> None:
    request, templates = planned()
    found = described(launched(cloud, (request, templates)).instance.id)
    assert found["InstanceLifecycle"] == "spot"
    assert found["IamInstanceProfile"]["Arn"].endswith(templates[0].data["IamInstanceProfile"]["Name"])
    assert [group["GroupId"] for group in found["SecurityGroups"]] == [world.network.security_group_id]
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert tags_of(found).items() >= request.tags.items()
    (device,) = found["BlockDeviceMappings"]
    (volume,) = client("ec2").describe_volumes(VolumeIds=[device["Ebs"]["VolumeId"]])["Volumes"]
    assert (device["DeviceName"], volume["Size"], volume["Encrypted"]) == ("/dev/xvda", 20, True)
    assert tags_of(volume).items() >= request.tags.items()
    user_data = client("ec2").describe_instance_attribute(
        InstanceId=found["InstanceId"], Attribute="userData"
    )
    assert b"node.eks.aws" in base64.b64decode(user_data["UserData"]["Value"])


def test_a_throttled_launch_is_deferred_and_succeeds_when_repeated(world: Account, cloud: AwsCloud) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    world.seam.fail("CreateFleet", "RequestLimitExceeded")
    (first,), (second,) = cloud.launch([request]), cloud.launch([request])
    assert first == Deferred(CLAIM.name, "RequestLimitExceeded", "Failed on demand.")
    assert isinstance(second, Launched)


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Server.InternalError"])
def test_an_error_inside_a_response_uses_up_the_token_so_the_claim_is_not_retried(
    world: Account, cloud: AwsCloud, code: str
) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    world.seam.fail_inside(code)
    first, again = cloud.launch([request]), cloud.launch([request])
    spent = Unfulfilled(CLAIM.name, code.removeprefix("Server."), "Failed on demand.")
    assert first == again == [spent], "EC2 always repeats its response"
    (anew,) = cloud.launch([planned(claim="default-anew")[0]])
    assert isinstance(anew, Launched)


def test_a_template_reported_missing_inside_a_response_is_recreated_for_another_claim(
    world: Account, cloud: AwsCloud
) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    world.seam.fail_inside("InvalidLaunchTemplateName.NotFoundException")
    assert cloud.launch([request]) == [TemplateMissing(CLAIM.name, is_answered=True)]
    cloud.ensure_templates(templates)
    assert world.seam.calls["CreateLaunchTemplate"] == 3  # one of them for dry runs


def test_a_launch_does_not_wait_for_a_template_that_exists_although_ec2_throttles_its_creation(
    world: Account, cloud: AwsCloud
) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    newly_started = AwsCloud(
        acting(client, Role("provisioning", CLUSTER.name, REGION)), SETTINGS, system_time
    )
    world.seam.fail("CreateLaunchTemplate", "RequestLimitExceeded")
    launched(newly_started, (request, templates))


def test_a_launch_whose_template_could_not_be_created_is_repeated_with_it(
    world: Account, cloud: AwsCloud
) -> None:
    request, templates = planned()
    world.seam.fail("CreateLaunchTemplate", "RequestLimitExceeded")
    cloud.ensure_templates(templates)
    assert cloud.launch([request]) == [TemplateMissing(CLAIM.name)]
    launched(cloud, (request, templates))


def test_one_throttled_launch_does_not_stop_the_others(world: Account, cloud: AwsCloud) -> None:
    plans = [planned(claim=f"default-{number}") for number in range(3)]
    cloud.ensure_templates(plans[0][1])
    world.seam.fail("CreateFleet", "RequestLimitExceeded")
    outcomes = cloud.launch([request for request, _ in plans])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Deferred", "Launched", "Launched"]


def test_a_launch_without_permission_is_refused(world: Account, cloud: AwsCloud) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    world.seam.fail("CreateFleet", "UnauthorizedOperation")
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Refused)
    assert outcome.reason == "Unauthorized"


def test_a_launch_whose_credentials_have_expired_is_deferred_and_does_not_count_as_throttled(
    world: Account, cloud: AwsCloud
) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    world.seam.fail("CreateFleet", "RequestExpired")
    assert cloud.launch([request]) == [Deferred(CLAIM.name, "RequestExpired", "Failed on demand.")]
    assert isinstance(launched(cloud, (request, templates)), Launched)


def test_a_lack_of_capacity_is_an_answer_although_its_status_is_500(cloud: AwsCloud) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)

    def short(**_: object) -> tuple[SimpleNamespace, dict[str, object]]:
        error = {"Code": "InsufficientInstanceCapacity", "Message": "none left"}
        reported = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 500}}
        return SimpleNamespace(status_code=500), reported

    events = client("ec2").meta.events
    events.register("before-call.ec2.CreateFleet", short)
    try:
        (outcome,) = cloud.launch([request])
    finally:
        events.unregister("before-call.ec2.CreateFleet", short)
    assert isinstance(outcome, NoCapacity)
    assert {s.offering for s in outcome.shortfalls} == set(request.offerings())


def test_an_exhausted_quota_of_the_whole_call_is_no_capacity(world: Account, cloud: AwsCloud) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    world.seam.fail("CreateFleet", "MaxFleetCountExceeded")
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, NoCapacity)
    assert outcome.quota
    assert {s.offering for s in outcome.shortfalls} == set(request.offerings())


def test_a_template_that_ec2_fails_to_create_is_transient_after_the_others_are_created(
    world: Account, cloud: AwsCloud
) -> None:
    plans = [planned(), planned(replace(NODECLASS, detailed_monitoring=True), "default-other")]
    world.seam.fail("CreateLaunchTemplate", "ServiceUnavailable")
    with pytest.raises(Transient, match="CreateLaunchTemplate") as caught:
        cloud.ensure_templates([template for _, templates in plans for template in templates])
    assert caught.value.code == "ServiceUnavailable"
    made = {
        each["LaunchTemplateName"] for each in client("ec2").describe_launch_templates()["LaunchTemplates"]
    }
    assert len(made & {template.name for _, templates in plans for template in templates}) == 1


def test_a_template_that_ec2_rejects_refuses_only_the_launches_that_name_it(
    world: Account, cloud: AwsCloud
) -> None:
    bad, good = planned(), planned(replace(NODECLASS, detailed_monitoring=True), "default-good")
    world.seam.fail("CreateLaunchTemplate", "InvalidUserData.Malformed")
    cloud.ensure_templates(bad[1])
    cloud.ensure_templates(good[1])
    outcomes = cloud.launch([bad[0], good[0]])
    assert isinstance(outcomes[0], Refused)
    assert outcomes[0].reason == "UserDataSizeLimitExceeded"
    assert isinstance(outcomes[1], Launched)
    assert isinstance(launched(cloud, bad), Launched), "the retry finds the template in EC2"


def test_a_known_template_costs_no_call_until_it_is_found_missing(world: Account, cloud: AwsCloud) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    cloud.ensure_templates(templates)
    assert world.seam.calls["CreateLaunchTemplate"] == 2  # one of them for dry runs
    client("ec2").delete_launch_template(LaunchTemplateName=templates[0].name)
    assert cloud.launch([request]) == [TemplateMissing(CLAIM.name)]
    assert isinstance(launched(cloud, (request, templates)), Launched)


def test_a_process_that_did_not_create_the_template_still_returns_the_image(
    world: Account, cloud: AwsCloud
) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    (outcome,) = AwsCloud(client, SETTINGS, system_time).launch([request])
    assert isinstance(outcome, Launched)
    assert outcome.instance.image_id == templates[0].data["ImageId"]
    assert world.seam.calls["DescribeInstances"] == 1


def test_a_missing_profile_is_refused_with_its_name(cloud: AwsCloud) -> None:
    nodeclass = replace(NODECLASS, role="", instance_profile="nobody-made-it")
    request, templates = planned(nodeclass)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Refused)
    assert outcome.reason == "InstanceProfileNameInvalid"
    assert "nobody-made-it" in outcome.message


def test_a_throttled_instance_lookup_is_transient(world: Account, cloud: AwsCloud) -> None:
    world.seam.fail("DescribeInstances", "RequestLimitExceeded")
    with pytest.raises(Transient, match="ec2:DescribeInstances"):
        cloud.instances_of(["default-1"])


def test_instances_of_another_cluster_are_not_ours(cloud: AwsCloud) -> None:
    request, templates = planned()
    cloud.ensure_templates(templates)
    stranger = replace(request, tags={**request.tags, "eks:eks-cluster-name": "other"})
    AwsCloud(client, SETTINGS, system_time).launch([stranger])  # which this role may not do
    assert cloud.instances_of([request.claim]) == {}


def test_more_claims_than_fit_into_a_filter_are_looked_up_in_batches(world: Account, cloud: AwsCloud) -> None:
    launched(cloud, planned())
    found = cloud.instances_of([CLAIM.name, *(f"nobody-{number}" for number in range(450))])
    assert set(found) == {CLAIM.name}
    assert world.seam.calls["DescribeInstances"] == 3


def test_a_denied_instance_lookup_is_transient(world: Account, cloud: AwsCloud) -> None:
    world.seam.fail("DescribeInstances", "UnauthorizedOperation")
    with pytest.raises(Transient, match="ec2:DescribeInstances: UnauthorizedOperation"):
        cloud.instances_of(["default-1"])
