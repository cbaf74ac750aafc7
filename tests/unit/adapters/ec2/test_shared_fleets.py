"""CreateFleet calls for several claims: which claims share a call, and how instances are distributed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith.adapters.ec2.fleetcalls import FleetCalls, Templates, fleet_request
from nodesmith.decisions.launch import launch_plan, matched, shared
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.model.ec2.launches import (
    Deferred,
    FleetShare,
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    NoCapacity,
    Unfulfilled,
)
from nodesmith.model.karpenter.nodeclaims import tags_due
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, NOW, options, status

NAMES = ("default-a", "default-b", "default-c")


def request_for(name: str, *types: str, **changes: Any) -> LaunchRequest:
    claim = replace(CLAIM, name=name)
    offered = options(types or ("m5.large", "m6g.large"))
    return replace(launch_plan(claim, offered, NODECLASS, status(), CLUSTER)[0], **changes)


EQUAL = [request_for(name) for name in NAMES]


def instance(id_: str) -> Instance:
    return Instance(id_, "", "m5.large", "us-east-1a", "spot", "ami-1", "pending", NOW)


def answer(ids: Iterable[str], errors: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    first = EQUAL[0].overrides[0]
    reported = {"InstanceType": first.instance_type, "SubnetId": first.subnet_id}
    launched = [{"InstanceIds": list(ids), "LaunchTemplateAndOverrides": {"Overrides": reported}}]
    return {"FleetId": "fleet-1", "Instances": launched, "Errors": list(errors)}


@dataclass
class Ec2:
    """An EC2 that repeats its response for the same client token, as EC2 does."""

    answers: list[dict[str, Any] | str]
    asked: list[dict[str, Any]] = field(default_factory=list)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def create_fleet(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        token = asked["ClientToken"]
        if token not in self.known:
            found = self.answers.pop(0)
            if isinstance(found, str):
                raise ClientError({"Error": {"Code": found, "Message": "words"}}, "CreateFleet")
            self.known[token] = found
        return self.known[token]


def calls_of(ec2: Ec2, shown: Sequence[Instance] = ()) -> FleetCalls:
    templates = Templates(lambda _: ec2, lambda: NOW)
    templates.images.update({override.template: "ami-1" for override in EQUAL[0].overrides})
    return FleetCalls(lambda _: ec2, "express", templates, lambda: NOW, lambda _: shown)


def one_by_one(
    work: Callable[[Sequence[LaunchRequest]], list[LaunchOutcome]], calls: Sequence[Sequence[LaunchRequest]]
) -> list[list[LaunchOutcome]]:
    return [work(call) for call in calls]


def ids(outcomes: Iterable[LaunchOutcome]) -> list[str]:
    return [outcome.instance.id if isinstance(outcome, Launched) else "" for outcome in outcomes]


def test_equal_requests_share_a_fleet_in_any_order() -> None:
    shares = {request.claim: request.share for request in shared(EQUAL)}
    assert [share.index for name in NAMES if (share := shares[name])] == [0, 1, 2]
    assert len({share.fleet for share in shares.values() if share}) == 1
    assert {share.size for share in shares.values() if share} == {3}
    assert {request.claim: request.share for request in shared(EQUAL[::-1])} == shares


def test_requests_that_differ_in_more_than_their_claim_have_separate_calls() -> None:
    others = [
        request_for("default-x", "m5.large"),
        request_for("default-y", tags={**request_for("default-y").tags, "team": "web"}),
        request_for("default-z", capacity_type="on-demand"),
    ]
    found = shared([*EQUAL, *others])
    assert [request.share is None for request in found] == [False] * 3 + [True] * 3
    assert [request.call for request in found[3:]] == ["default-x", "default-y", "default-z"]


def test_each_capacity_block_has_its_own_call() -> None:
    blocks = [replace(request, reservations="capacity-block") for request in EQUAL]
    assert all(request.share is None for request in shared(blocks))


def test_a_share_is_stored_in_the_ledger_and_a_request_without_one_keeps_its_format() -> None:
    (first, *_) = shared(EQUAL)
    assert LaunchRequest.from_item(first.claim, first.to_item()) == first
    assert "fleet" not in EQUAL[0].to_item()


def test_all_members_request_the_same_fleet_without_naming_a_claim() -> None:
    asked = [fleet_request(request, "express") for request in shared(EQUAL)]
    assert asked[0] == asked[1] == asked[2]
    assert asked[0]["TargetCapacitySpecification"]["TotalTargetCapacity"] == 3
    specifications = {spec["ResourceType"]: spec["Tags"] for spec in asked[0]["TagSpecifications"]}
    tags = {tag["Key"]: tag["Value"] for tag in specifications["instance"]}
    assert not {"Name", "karpenter.sh/nodeclaim"} & tags.keys()
    assert tags["nodesmith.dev/managed-by"] == tags["eks:eks-cluster-name"] == "express"
    assert tags["nodesmith.dev/fleet"]


def test_a_name_tag_of_the_nodeclass_is_set_at_launch() -> None:
    named = [replace(request, tags={**request.tags, "Name": "web"}) for request in EQUAL]
    specification = fleet_request(shared(named)[0], "express")["TagSpecifications"][0]
    assert {"Key": "Name", "Value": "web"} in specification["Tags"]


@pytest.mark.parametrize("seed", range(5))
def test_a_fleets_instances_are_always_distributed_to_the_same_claims(seed: int) -> None:
    instances = [instance(f"i-{number}") for number in range(7)]
    random.Random(seed).shuffle(instances)  # noqa: S311
    hands = [matched(FleetShare("f", index, 10), instances) for index in range(10)]
    assert [hand.id if hand else "" for hand in hands] == [f"i-{n}" for n in range(7)] + [""] * 3


def test_one_call_serves_all_sharing_claims_and_its_repetition_returns_the_same() -> None:
    ec2 = Ec2([answer(["i-3", "i-1", "i-2"])])
    calls = calls_of(ec2)
    assert ids(calls.launch(shared(EQUAL), one_by_one)) == ["i-1", "i-2", "i-3"]
    assert len(ec2.asked) == 1
    assert ids(calls.launch(shared(EQUAL)[2:], one_by_one, repeated=True)) == ["i-3"]
    assert ids(calls.launch(shared(EQUAL)[:1], one_by_one, repeated=True)) == ["i-1"]


def test_claims_without_an_instance_in_a_fleet_are_unfulfilled_and_the_others_launched() -> None:
    first = EQUAL[0].overrides[0]
    reported = {"InstanceType": first.instance_type, "SubnetId": first.subnet_id}
    error = {
        "ErrorCode": "InsufficientInstanceCapacity",
        "LaunchTemplateAndOverrides": {"Overrides": reported},
    }
    outcomes = calls_of(Ec2([answer(["i-1", "i-2"], [error])])).launch(shared(EQUAL), one_by_one)
    assert ids(outcomes) == ["i-1", "i-2", ""]
    assert isinstance(outcomes[2], NoCapacity)
    assert [each.offering.instance_type for each in outcomes[2].shortfalls] == [first.instance_type]


def test_a_pool_that_refuses_some_of_a_fleet_does_not_stop_the_nodepool() -> None:
    first = EQUAL[0].overrides[0]
    reported = {"InstanceType": first.instance_type, "SubnetId": first.subnet_id}
    error = {"ErrorCode": "InvalidFleetConfiguration", "LaunchTemplateAndOverrides": {"Overrides": reported}}
    outcomes = calls_of(Ec2([answer(["i-1"], [error])])).launch(shared(EQUAL), one_by_one)
    assert [type(outcome) for outcome in outcomes] == [Launched, NoCapacity, NoCapacity]


def test_a_too_small_fleet_without_an_error_reports_no_pool() -> None:
    outcomes = calls_of(Ec2([answer(["i-1", "i-2"])])).launch(shared(EQUAL), one_by_one)
    assert isinstance(outcomes[2], Unfulfilled)


def test_an_empty_repeated_response_is_completed_if_ec2_shows_all_instances() -> None:
    nothing: dict[str, Any] = {"FleetId": "fleet-1", "Instances": [], "Errors": []}
    whole = [instance(f"i-{number}") for number in (3, 1, 2)]
    for shown, expected in ((whole, ["i-1", "i-2", "i-3"]), (whole[:2], ["", "", ""])):
        calls = calls_of(Ec2([nothing]), shown)
        assert ids(calls.launch(shared(EQUAL), one_by_one, repeated=True)) == expected
    (outcome,) = calls_of(Ec2([nothing])).launch(EQUAL[:1], one_by_one, repeated=True)
    assert isinstance(outcome, Unfulfilled)


def test_once_ec2_throttles_the_rest_of_a_batch_is_not_requested() -> None:
    ec2 = Ec2(["RequestLimitExceeded"] * 10)
    outcomes = calls_of(ec2).launch(EQUAL, one_by_one)
    assert len(ec2.asked) == 2
    assert all(isinstance(outcome, Deferred) and outcome.nothing_begun for outcome in outcomes)


def test_a_claim_costs_its_requested_price_if_the_catalogue_no_longer_has_its_offering() -> None:
    request = EQUAL[0]
    dearest = max(request.overrides, key=lambda o: o.price_hourly_usd)
    pending = replace(CLAIM, price_hourly_usd=request.price_hourly_usd, launch=request.to_item())
    picked = replace(instance("i-1"), instance_type=dearest.instance_type, zone=dearest.zone)

    assert launched_claim(pending, picked, None, NOW).price_hourly_usd == dearest.price_hourly_usd
    reserved = replace(picked, capacity_type="reserved")
    free = replace(pending, price_hourly_usd=0.0)
    assert launched_claim(free, reserved, None, NOW).price_hourly_usd == 0


def test_a_claim_stores_the_tags_that_its_instance_lacks() -> None:
    first = shared(EQUAL)[0]
    pending = replace(CLAIM, name=first.claim, launch=first.to_item())
    launched = launched_claim(pending, instance("i-1"), None, NOW)
    assert tags_due(launched) == {"Name": first.claim, "karpenter.sh/nodeclaim": first.claim}
    tagged = launched_claim(pending, replace(instance("i-1"), claim=first.claim), None, NOW)
    assert tags_due(tagged) == {}


def test_requests_with_different_contexts_share_no_call() -> None:
    first, second = request_for("default-a", context="context-1"), request_for("default-b")
    assert [each.share for each in shared([first, second])] == [None, None]
