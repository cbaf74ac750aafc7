"""CreateFleet: its arguments, and the interpretation of its responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.adapters.ec2.fleetanswers import (
    FleetError,
    call_failure,
    fleet_errors,
    fleet_instances,
    refusal_reason,
    shortfalls,
    subnet_shortfalls,
    unfulfilled,
)
from nodesmith.adapters.ec2.fleetcalls import client_token, fleet_request
from nodesmith.model.ec2.launches import (
    LaunchOutcome,
    LaunchRequest,
    NoCapacity,
    OfferingKey,
    Override,
    Refused,
    Shortfall,
    SubnetShortfall,
    TemplateMissing,
    Unfulfilled,
)
from tests.objects.launching import CLAIM, NOW, plan

REQUEST, TEMPLATES = plan("m5.large", "m6g.large")
POOLS = REQUEST.offerings()


def error_in(pool: OfferingKey, code: str, message: str = "words") -> dict[str, Any]:
    override = {"InstanceType": pool.instance_type, "AvailabilityZone": pool.zone}
    return {
        "ErrorCode": code,
        "ErrorMessage": message,
        "LaunchTemplateAndOverrides": {"Overrides": override},
        "Lifecycle": pool.capacity_type,
    }


def meaning(*errors: dict[str, Any]) -> LaunchOutcome:
    return unfulfilled(REQUEST, fleet_errors(REQUEST, {"Errors": list(errors), "Instances": []}))


def test_a_fleet_is_instant_for_one_instance_and_names_each_template_once() -> None:
    asked = fleet_request(REQUEST, "express")
    assert asked["Type"] == "instant"
    assert asked["TargetCapacitySpecification"] == {
        "TotalTargetCapacity": 1,
        "DefaultTargetCapacityType": "spot",
    }
    named = [c["LaunchTemplateSpecification"]["LaunchTemplateName"] for c in asked["LaunchTemplateConfigs"]]
    assert sorted(named) == [template.name for template in TEMPLATES]
    overrides = [o for config in asked["LaunchTemplateConfigs"] for o in config["Overrides"]]
    assert len(overrides) == len(REQUEST.overrides)
    first = REQUEST.overrides[0]
    assert {
        "InstanceType": first.instance_type,
        "SubnetId": first.subnet_id,
        "AvailabilityZone": first.zone,
    } in overrides


def test_spot_is_allocated_by_price_and_capacity_and_on_demand_by_price() -> None:
    spot = fleet_request(REQUEST, "express")
    on_demand = fleet_request(plan("m5.large", capacity_type="on-demand")[0], "express")
    assert spot["SpotOptions"] == {"AllocationStrategy": "price-capacity-optimized"}
    assert "OnDemandOptions" not in spot
    assert on_demand["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert "SpotOptions" not in on_demand


def test_fleet_instance_volume_and_interface_carry_the_claims_tags() -> None:
    specs = {
        spec["ResourceType"]: spec["Tags"] for spec in fleet_request(REQUEST, "express")["TagSpecifications"]
    }
    assert set(specs) == {"fleet", "instance", "volume", "network-interface"}
    assert {"Key": "karpenter.sh/nodeclaim", "Value": CLAIM.name} in specs["instance"]


def test_a_claims_client_token_is_stable_unique_to_the_cluster_and_valid() -> None:
    token = client_token("express", "x" * 253)
    assert token == client_token("express", "x" * 253)
    assert token.isascii()
    assert len(token) == 64
    assert token != client_token("other", "x" * 253)


def test_an_instance_has_its_pool_subnet_and_image() -> None:
    override = REQUEST.overrides[2]
    reported = {"InstanceType": override.instance_type, "SubnetId": override.subnet_id}
    answer = {
        "Instances": [
            {
                "InstanceIds": ["i-1"],
                "InstanceType": override.instance_type,
                "LaunchTemplateAndOverrides": {"Overrides": reported},
            }
        ]
    }
    (instance,) = fleet_instances(REQUEST, answer, {override.template: "ami-7"}, NOW)
    assert (instance.id, instance.claim, instance.zone) == ("i-1", CLAIM.name, override.zone)
    assert (instance.image_id, instance.subnet_id) == ("ami-7", override.subnet_id)
    (unknown,) = fleet_instances(REQUEST, answer, {}, NOW)
    assert unknown.image_id == ""


def test_a_response_without_an_instance_yields_none() -> None:
    assert fleet_instances(REQUEST, {"Instances": [], "FleetId": "fleet-1"}, {}, NOW) == []
    assert fleet_instances(REQUEST, {"Instances": [{"InstanceIds": []}]}, {}, NOW) == []


@pytest.mark.parametrize(
    "code",
    [
        "InsufficientInstanceCapacity",
        "UnfulfillableCapacity",
        "Unsupported",
        "ReservationCapacityExceeded",
    ],
)
def test_exactly_the_named_pools_have_no_capacity(code: str) -> None:
    assert meaning(error_in(POOLS[1], code)) == NoCapacity(CLAIM.name, (Shortfall(POOLS[1], code),))


@pytest.mark.parametrize("code", ["InsufficientFreeAddressesInSubnet", "InvalidSubnetID.NotFound"])
def test_a_full_or_missing_subnet_is_a_shortfall_of_the_subnet_not_of_the_instance_type(code: str) -> None:
    row = REQUEST.overrides[0]
    reported = {"InstanceType": row.instance_type, "SubnetId": row.subnet_id}
    error = {"ErrorCode": code, "LaunchTemplateAndOverrides": {"Overrides": reported}}
    full = (SubnetShortfall(row.subnet_id, code),)
    assert meaning(error, error) == NoCapacity(CLAIM.name, (), subnets=full)
    assert subnet_shortfalls(fleet_errors(REQUEST, {"Errors": [error]})) == full
    message = f"There are not enough free addresses in subnet '{row.subnet_id}' to satisfy the request."
    named = call_failure(
        replace(REQUEST, overrides=(replace(row, subnet_id="subnet-1"),)), FleetError(code, "")
    )
    assert named == NoCapacity(CLAIM.name, (), subnets=(SubnetShortfall("subnet-1", code),))
    assert call_failure(
        REQUEST, FleetError(code, message.replace(row.subnet_id, "subnet-0a1b"))
    ) == NoCapacity(CLAIM.name, (), subnets=(SubnetShortfall("subnet-0a1b", code),))


def test_a_pool_is_reported_once() -> None:
    errors = fleet_errors(REQUEST, {"Errors": [error_in(POOLS[0], "InsufficientInstanceCapacity")] * 3})
    assert shortfalls(errors) == (Shortfall(POOLS[0], "InsufficientInstanceCapacity"),)


def test_an_empty_response_means_that_no_pool_has_capacity() -> None:
    outcome = meaning()
    assert isinstance(outcome, NoCapacity)
    assert {s.offering for s in outcome.shortfalls} == set(POOLS)
    assert not outcome.quota


@pytest.mark.parametrize(
    "code",
    [
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "MaxFleetCountExceeded",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    ],
)
def test_an_exceeded_quota_counts_for_every_requested_pool(code: str) -> None:
    outcome = meaning(error_in(POOLS[1], code), error_in(POOLS[0], "InsufficientInstanceCapacity"))
    assert isinstance(outcome, NoCapacity)
    assert outcome.quota
    codes = {s.offering: s.code for s in outcome.shortfalls}
    assert set(codes) == set(POOLS)
    assert codes[POOLS[0]] == "InsufficientInstanceCapacity"
    assert codes[POOLS[2]] == code


@pytest.mark.parametrize(
    "code", ["RequestLimitExceeded", "Throttling", "InternalError", "ServiceUnavailable"]
)
@pytest.mark.parametrize("prefix", ["", "Client.", "Server."])
def test_a_response_with_only_transient_errors_ends_the_claim_without_a_pool_shortfall(
    prefix: str, code: str
) -> None:
    found = meaning(error_in(POOLS[0], prefix + code), error_in(POOLS[1], prefix + code))
    assert found == Unfulfilled(CLAIM.name, code, "words")


def test_a_transient_error_next_to_a_shortfall_affects_only_the_short_pool() -> None:
    short = error_in(POOLS[0], "InsufficientInstanceCapacity")
    found = meaning(short, error_in(POOLS[1], "RequestLimitExceeded"))
    assert found == NoCapacity(CLAIM.name, (Shortfall(POOLS[0], "InsufficientInstanceCapacity"),))


@pytest.mark.parametrize(
    "code",
    [
        "InvalidFleetConfiguration",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacityOnHost",
        "VolumeLimitExceeded",
        "IdempotentParameterMismatch",
        "UnauthorizedOperation",
    ],
)
def test_an_error_that_names_a_pool_affects_that_pool_and_not_the_nodepool(code: str) -> None:
    short = [error_in(pool, "InsufficientInstanceCapacity") for pool in POOLS[1:]]
    outcome = meaning(error_in(POOLS[0], code), *short)
    assert isinstance(outcome, NoCapacity)
    assert {s.offering: s.code for s in outcome.shortfalls} == {
        POOLS[0]: code,
        **dict.fromkeys(POOLS[1:], "InsufficientInstanceCapacity"),
    }


def test_a_launch_reports_a_pool_that_refused_it() -> None:
    errors = fleet_errors(REQUEST, {"Errors": [error_in(POOLS[0], "Client.InvalidFleetConfiguration")]})
    assert shortfalls(errors) == (Shortfall(POOLS[0], "InvalidFleetConfiguration"),)


def test_a_capacity_block_is_requested_without_an_allocation_strategy() -> None:
    asked = fleet_request(
        replace(REQUEST, capacity_type="reserved", reservations="capacity-block"), "express"
    )
    assert asked["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "capacity-block"
    assert not {"OnDemandOptions", "SpotOptions"} & asked.keys()


@pytest.mark.parametrize(
    "code",
    [
        "InvalidCapacityReservationId.NotFound",
        "InvalidCapacityReservationState.PendingActivation",
        "InvalidCapacityReservationState.Unavailable",
    ],
)
def test_a_reservation_that_cannot_be_used_is_a_pool_without_capacity(code: str) -> None:
    request = replace(REQUEST, capacity_type="reserved", reservations="default")
    pool = request.offerings()[0]
    short = (Shortfall(pool, code),)
    answered = unfulfilled(request, fleet_errors(request, {"Errors": [error_in(pool, code)]}))
    assert answered == NoCapacity(CLAIM.name, short)
    alone = replace(request, overrides=request.overrides[:1])
    assert call_failure(alone, FleetError(code, "words")) == NoCapacity(CLAIM.name, short)


@pytest.mark.parametrize(
    "code", ["InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"]
)
def test_a_missing_template_takes_precedence_over_other_errors(code: str) -> None:
    errors = [error_in(POOLS[0], "UnauthorizedOperation"), error_in(POOLS[1], code)]
    assert meaning(*errors) == TemplateMissing(CLAIM.name, is_answered=True)
    assert call_failure(REQUEST, FleetError(code, "words")) == TemplateMissing(CLAIM.name)


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("UnauthorizedOperation", "You are not authorized", "Unauthorized"),
        ("IdempotentParameterMismatch", "token", "LaunchFailed"),
        (
            "InvalidParameterValue",
            "Value (x). Invalid IAM Instance Profile name",
            "InstanceProfileNameInvalid",
        ),
        ("InvalidParameterValue", "User data is limited to 16384 bytes", "UserDataSizeLimitExceeded"),
        ("InvalidUserData.Malformed", "bad", "UserDataSizeLimitExceeded"),
        ("InvalidAMIID.Malformed", "bad", "InvalidAMIID"),
        ("InvalidAMIID.NotFound", "gone", "AMINotFound"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        ("InvalidParameter", "sg and subnet belong to different networks", "SecurityGroupSubnetVPCMismatch"),
        ("InvalidParameterCombination", "not eligible for Free Tier", "FreeTierIneligible"),
        ("PendingVerification", "Your account is being verified", "AccountPendingVerification"),
        ("SomethingNew", "words", "LaunchFailed"),
    ],
)
def test_an_error_that_users_must_fix_is_refused_with_karpenters_reason(
    code: str, message: str, reason: str
) -> None:
    assert refusal_reason(code, message) == reason
    assert meaning(error_in(POOLS[0], code, message)) == Refused(CLAIM.name, reason, f"{code}: {message}")


def test_offerings_that_are_denied_one_by_one_are_named_and_the_rest_may_be_permitted() -> None:
    outcome = meaning(*(error_in(pool, "UnauthorizedOperation", "a policy denies it") for pool in POOLS))
    assert isinstance(outcome, Refused)
    assert (outcome.reason, outcome.message) == ("Unauthorized", "UnauthorizedOperation: a policy denies it")
    assert outcome.denied == tuple(Shortfall(pool, "UnauthorizedOperation") for pool in sorted(POOLS))


@pytest.mark.parametrize(
    ("resource", "is_of_types"),
    [
        ("iam:PassRole on resource: arn:aws:iam::123456789012:role/nodes", False),
        ("ec2:RunInstances on resource: arn:aws:ec2:us-east-1::image/ami-1", False),
        ("ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/*", True),
    ],
)
def test_a_denial_of_another_resource_than_the_instance_holds_for_all_offerings(
    resource: str, is_of_types: bool
) -> None:
    why = f"User: arn:aws:sts::123456789012:assumed-role/r/s is not authorized to perform: {resource} because"
    outcome = meaning(*(error_in(pool, "UnauthorizedOperation", why) for pool in POOLS))
    assert isinstance(outcome, Refused)
    assert bool(outcome.denied) == is_of_types


def test_a_refusal_that_may_hold_for_all_offerings_names_none() -> None:
    denied = [error_in(pool, "UnauthorizedOperation") for pool in POOLS]
    unnamed = {"ErrorCode": "UnauthorizedOperation", "ErrorMessage": "words"}
    for errors in (
        denied[:-1],
        [unnamed],
        [*denied, unnamed],
        [*denied[:-1], error_in(POOLS[-1], "InvalidAMIID")],
    ):
        outcome = meaning(*errors)
        assert isinstance(outcome, Refused)
        assert outcome.denied == ()


def test_an_error_of_the_whole_call_affects_every_pool() -> None:
    outcome = call_failure(REQUEST, FleetError("InsufficientInstanceCapacity", "words"))
    assert isinstance(outcome, NoCapacity)
    assert {s.offering for s in outcome.shortfalls} == set(POOLS)
    assert {s.code for s in outcome.shortfalls} == {"InsufficientInstanceCapacity"}


def test_a_launch_template_is_requested_in_version_one() -> None:
    request = LaunchRequest(
        "web-1", "spot", (Override("nodesmith/test/abc", "m5.large", "us-east-1a", "subnet-a", 0.1),), {}
    )

    (config,) = fleet_request(request, "test")["LaunchTemplateConfigs"]

    assert config["LaunchTemplateSpecification"] == {
        "LaunchTemplateName": "nodesmith/test/abc",
        "Version": "1",
    }


def test_a_context_is_sent_only_if_there_is_one() -> None:
    assert fleet_request(replace(REQUEST, context="context-1"), "express")["Context"] == "context-1"
    assert "Context" not in fleet_request(REQUEST, "express")
