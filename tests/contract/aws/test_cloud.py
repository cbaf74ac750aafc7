"""The contract of the Cloud port, for AwsCloud on moto and for the fake of the core's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.ec2.instances import Ec2MarkedInstances
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan, shared
from nodesmith.model.commands import OwnedKind
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.ec2.launches import (
    Instance,
    Launched,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    OfferingKey,
    Override,
    Refused,
    TemplateMissing,
)
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.ports import Cloud
from tests.aws.account import NODECLASS, REGION, SETTINGS, ZONES, account, client
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER, FakeCloud

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
TYPES = ("c5.large", "m5.large", "m5.xlarge")


@dataclass(frozen=True, slots=True)
class Subject:
    """A Cloud, with direct access to the world behind it, which shows new instances at once."""

    cloud: Cloud
    exhaust: Callable[[OfferingKey], None]
    count_alive: Callable[[], int]


@pytest.fixture(params=["moto", "fake"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "fake":
        fake = FakeCloud()
        yield Subject(fake, lambda pool: fake.stock.update({str(pool): 0}), lambda: len(fake.alive()))
        return
    with account(delayed=False) as furnished:
        cloud, pools = AwsCloud(client, SETTINGS, system_time), furnished.seam.pools
        yield Subject(cloud, lambda pool: pools.exhaust(_pattern(pool)), lambda: _alive(client("ec2")))


def _pattern(pool: OfferingKey) -> str:
    return f"{pool.capacity_type}:{pool.instance_type}:{pool.zone}"


def _alive(ec2: Any) -> int:
    reservations = ec2.describe_instances()["Reservations"]
    states = [i["State"]["Name"] for reservation in reservations for i in reservation["Instances"]]
    return sum(state in {"pending", "running"} for state in states)


def planned(
    cloud: Cloud, claim: str = "default-x7k2p", capacity_type: str = "spot"
) -> tuple[LaunchRequest, tuple[LaunchTemplate, ...]]:
    """Plan a launch for a claim on three types in three zones, from the NodeClass that the cloud resolves."""
    status = cloud.resolve(NODECLASS, CLUSTER, NOW)
    kinds = instance_types(embedded_catalog(REGION), NodeConfiguration.of(NODECLASS))
    options = [
        (kind, offering)
        for kind in kinds
        for offering in kind.offerings
        if kind.name in TYPES and offering.capacity_type == capacity_type and offering.zone in ZONES
    ]
    node = NodeClaim(claim, "default", NodeClassRef("default"), NOW, Phase.PENDING, NOW)
    return launch_plan(node, options, NODECLASS, status, CLUSTER)


def launched(cloud: Cloud, **fields: Any) -> tuple[LaunchRequest, Launched]:
    """Launch an instance for a claim, and return the request and its outcome. Keywords are those of `planned`."""
    request, templates = planned(cloud, **fields)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    assert isinstance(outcome, Launched)
    return request, outcome


def pools_of(overrides: tuple[Override, ...], capacity_type: str = "spot") -> list[OfferingKey]:
    return [OfferingKey(capacity_type, o.instance_type, o.zone) for o in overrides]


def test_a_launch_buys_one_instance_in_the_cheapest_pool_and_describes_it(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    subject.cloud.ensure_templates(templates)
    (outcome,) = subject.cloud.launch([request])
    assert isinstance(outcome, Launched)
    cheapest, instance = request.overrides[0], outcome.instance
    assert (instance.instance_type, instance.zone) == (cheapest.instance_type, cheapest.zone)
    assert (instance.capacity_type, instance.subnet_id) == ("spot", cheapest.subnet_id)
    image = next(t.data["ImageId"] for t in templates if t.name == cheapest.template)
    assert instance.image_id == image
    assert instance.claim == request.claim
    assert instance.is_alive
    assert instance.provider_id == f"aws:///{cheapest.zone}/{instance.id}"
    assert outcome.shortfalls == ()
    assert subject.count_alive() == 1


def test_repeating_a_request_returns_the_same_instance_and_buys_no_other(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    subject.cloud.ensure_templates(templates)
    (first,), (second,) = subject.cloud.launch([request]), subject.cloud.launch([request])
    assert isinstance(first, Launched)
    assert isinstance(second, Launched)
    assert second.instance.id == first.instance.id
    assert subject.count_alive() == 1


def test_claims_with_equal_requests_get_one_instance_each_also_on_repetition(subject: Subject) -> None:
    plans = [planned(subject.cloud, f"default-{letter}") for letter in "abc"]
    subject.cloud.ensure_templates(plans[0][1])
    requests = shared([request for request, _ in plans])
    outcomes = subject.cloud.launch(requests)
    ids = [outcome.instance.id for outcome in outcomes if isinstance(outcome, Launched)]
    assert len(set(ids)) == 3
    (again,) = subject.cloud.launch(requests[1:2], repeated=True)
    assert isinstance(again, Launched)
    assert again.instance.id == ids[1]
    assert subject.count_alive() == 3
    share = requests[0].share
    assert share is not None
    assert [i.id for i in sorted(subject.cloud.fleet_instances([share.fleet])[share.fleet], key=_id)] == ids
    assert subject.cloud.fleet_instances(["unknown"]) == {}


def _id(instance: Instance) -> str:
    return instance.id


def test_an_instance_is_found_by_id_until_it_has_its_claims_tag(
    subject: Subject,
) -> None:
    plans = [planned(subject.cloud, f"default-{letter}") for letter in "ab"]
    subject.cloud.ensure_templates(plans[0][1])
    first, second = subject.cloud.launch(shared([request for request, _ in plans]))
    assert isinstance(first, Launched)
    assert isinstance(second, Launched)
    name, id_ = first.claim, first.instance.id
    assert subject.cloud.instances_of([name]) == {}
    (found,) = subject.cloud.instances_of([name], {name: id_, "default-b": second.instance.id})[name]
    assert (found.id, found.claim) == (id_, name)
    subject.cloud.tag(id_, {"karpenter.sh/nodeclaim": name, "Name": name})
    (found,) = subject.cloud.instances_of([name])[name]
    assert (found.id, found.claim) == (id_, name)
    assert {i.id: i.claim for i in subject.cloud.owned_instances()} == {id_: name, second.instance.id: ""}
    subject.cloud.tag("i-0123456789abcdef0", {"Name": "gone"})


def test_a_different_request_for_the_same_claim_is_refused(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    subject.cloud.ensure_templates(templates)
    subject.cloud.launch([request])
    (outcome,) = subject.cloud.launch([replace(request, overrides=request.overrides[1:])])
    assert isinstance(outcome, Refused)
    assert outcome.reason == "LaunchFailed"
    assert "IdempotentParameterMismatch" in outcome.message
    assert subject.count_alive() == 1


def test_outcomes_are_in_the_order_of_the_requests(subject: Subject) -> None:
    claims = [f"default-{number}" for number in range(5)]
    plans = [planned(subject.cloud, claim) for claim in claims]
    subject.cloud.ensure_templates(plans[0][1])
    outcomes = subject.cloud.launch([request for request, _ in plans])
    assert [outcome.claim for outcome in outcomes] == claims
    assert subject.count_alive() == 5


def test_an_on_demand_request_gives_an_on_demand_instance(subject: Subject) -> None:
    request, outcome = launched(subject.cloud, capacity_type="on-demand")
    assert outcome.instance.capacity_type == "on-demand"
    assert subject.cloud.instances_of([request.claim])[request.claim][0].capacity_type == "on-demand"


def test_a_pool_without_capacity_is_skipped_and_reported(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    empty, next_best = pools_of(request.overrides)[:2]
    subject.exhaust(empty)
    subject.cloud.ensure_templates(templates)
    (outcome,) = subject.cloud.launch([request])
    assert isinstance(outcome, Launched)
    assert (outcome.instance.instance_type, outcome.instance.zone) == (
        next_best.instance_type,
        next_best.zone,
    )
    assert [(s.offering, s.code) for s in outcome.shortfalls] == [(empty, "InsufficientInstanceCapacity")]


def test_no_capacity_anywhere_is_an_outcome_that_names_every_pool(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    for pool in pools_of(request.overrides):
        subject.exhaust(pool)
    subject.cloud.ensure_templates(templates)
    (outcome,) = subject.cloud.launch([request])
    assert isinstance(outcome, NoCapacity)
    assert not outcome.quota
    assert {s.offering for s in outcome.shortfalls} == set(pools_of(request.overrides))
    assert subject.count_alive() == 0


def test_one_claim_without_capacity_does_not_affect_the_others(subject: Subject) -> None:
    starved, templates = planned(subject.cloud, "default-starved")
    served, more = planned(subject.cloud, "default-served", "on-demand")
    for pool in pools_of(starved.overrides):
        subject.exhaust(pool)
    subject.cloud.ensure_templates([*templates, *more])
    outcomes = subject.cloud.launch([starved, served])
    assert [type(outcome) for outcome in outcomes] == [NoCapacity, Launched]


def test_a_missing_launch_template_is_reported_and_buys_nothing(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    assert subject.cloud.launch([request]) == [TemplateMissing(request.claim)]
    assert subject.count_alive() == 0
    subject.cloud.ensure_templates(templates)
    (outcome,) = subject.cloud.launch([request])
    assert isinstance(outcome, Launched)


def test_ensuring_launch_templates_is_idempotent(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    for _ in range(3):
        subject.cloud.ensure_templates(templates)
    (outcome,) = subject.cloud.launch([request])
    assert isinstance(outcome, Launched)


def test_instances_are_found_only_by_the_claims_they_were_bought_for(subject: Subject) -> None:
    for claim in ("default-one", "default-two", "default-three"):
        request, templates = planned(subject.cloud, claim)
        subject.cloud.ensure_templates(templates)
        subject.cloud.launch([request])
    found = subject.cloud.instances_of(["default-one", "default-three", "default-never"])
    assert set(found) == {"default-one", "default-three"}
    assert [instance.claim for instance in found["default-one"]] == ["default-one"]


def test_a_later_lookup_returns_the_launched_instance(subject: Subject) -> None:
    request, outcome = launched(subject.cloud)
    (found,) = subject.cloud.instances_of([request.claim])[request.claim]
    assert replace(found, launched_at=NOW) == replace(outcome.instance, launched_at=NOW)
    assert found.private_dns_name, "the name under which its kubelet joins"
    assert outcome.instance.private_dns_name == "", "the response to a launch does not contain it"
    assert found.launched_at.tzinfo is not None


def test_a_lookup_of_no_claims_makes_no_call(subject: Subject) -> None:
    assert subject.cloud.instances_of([]) == {}


def test_a_terminated_instance_is_still_returned_but_not_alive(subject: Subject) -> None:
    request, outcome = launched(subject.cloud)
    subject.cloud.terminate([outcome.instance.id])
    (found,) = subject.cloud.instances_of([request.claim])[request.claim]
    assert not found.is_alive
    assert subject.count_alive() == 0
    assert outcome.instance.state_since is None
    assert found.state_since is not None
    assert abs(found.state_since - outcome.instance.launched_at) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("reason", "ended"),
    [
        ("User initiated (2026-11-21 07:59:20 GMT)", NOW - timedelta(seconds=40)),
        ("Service initiated (2026-11-21 07:59:20 GMT)", NOW - timedelta(seconds=40)),
        ("User initiated (2026-13-21 07:59:20 GMT)", None),
        ("Server.SpotInstanceTermination", None),
        ("", None),
    ],
)
def test_the_time_of_an_instances_end_is_read_if_ec2_says_it(reason: str, ended: datetime | None) -> None:
    with account(delayed=False):
        cloud = AwsCloud(client, SETTINGS, system_time)
        request, outcome = launched(cloud)
        cloud.terminate([outcome.instance.id])
        ec2_backends[DEFAULT_ACCOUNT_ID][REGION].get_instance(outcome.instance.id)._reason = reason
        assert cloud.instances_of([request.claim])[request.claim][0].state_since == ended


def test_terminating_a_missing_instance_is_ignored_and_the_others_are_terminated(subject: Subject) -> None:
    _request, outcome = launched(subject.cloud)
    subject.cloud.terminate(["i-0123456789abcdef0", outcome.instance.id])
    assert subject.count_alive() == 0
    subject.cloud.terminate([outcome.instance.id])
    subject.cloud.terminate([])


def _stopped(subject: Subject) -> Instance:
    """Return an instance that has been launched on demand and stopped."""
    request, outcome = launched(subject.cloud, capacity_type="on-demand")
    subject.cloud.stop(outcome.instance.id)
    if isinstance(subject.cloud, FakeCloud):
        subject.cloud.become(outcome.instance.id, "stopped")
    (found,) = subject.cloud.instances_of([request.claim])[request.claim]
    assert (found.state, found.is_alive) == ("stopped", True)
    return outcome.instance


def test_an_instance_is_stopped_and_started_and_both_may_be_repeated(subject: Subject) -> None:
    instance = _stopped(subject)
    subject.cloud.stop(instance.id)
    subject.cloud.stop("i-0123456789abcdef0")
    for _ in range(2):
        assert subject.cloud.start([instance.id]) == {}
    (found,) = subject.cloud.instances_of([instance.claim])[instance.claim]
    assert found.state in ("pending", "running")


def test_an_instance_whose_pool_is_empty_is_refused_and_stays_stopped(subject: Subject) -> None:
    instance = _stopped(subject)
    subject.exhaust(OfferingKey("on-demand", instance.instance_type, instance.zone))
    refusal = subject.cloud.start([instance.id])[instance.id]
    assert (refusal.code, refusal.is_short) == ("InsufficientInstanceCapacity", True)
    (found,) = subject.cloud.instances_of([instance.claim])[instance.claim]
    assert found.state == "stopped"


def test_our_living_instances_are_listed_with_their_template(subject: Subject) -> None:
    request, outcome = launched(subject.cloud)
    (listed,) = subject.cloud.owned_instances()
    assert (listed.id, listed.claim) == (outcome.instance.id, request.claim)
    assert listed.template_id in {owned.id for owned in subject.cloud.owned(OwnedKind.LAUNCH_TEMPLATE)}
    selected = subject.cloud.resolve(NODECLASS, CLUSTER, NOW).security_groups
    assert listed.security_groups == tuple(sorted(group.id for group in selected)) != ()
    assert set(subject.cloud.living([listed.id, "i-0123456789abcdef0"])) == {listed.id}
    subject.cloud.terminate([listed.id])
    assert list(subject.cloud.owned_instances()) == []
    assert list(subject.cloud.living([listed.id])) == []


def test_an_instance_yields_a_notice_only_once_it_no_longer_runs(subject: Subject) -> None:
    _request, outcome = launched(subject.cloud)
    assert list(subject.cloud.notices([outcome.instance.id, "i-0123456789abcdef0"])) == []
    subject.cloud.terminate([outcome.instance.id])
    (notice,) = subject.cloud.notices([outcome.instance.id])
    assert (notice.cause, notice.instance_id) == (InterruptionCause.TERMINATED, outcome.instance.id)
    assert list(subject.cloud.notices([])) == []


def test_a_cluster_reads_only_spot_requests_of_its_own_launches() -> None:
    """Some requests carry the tags of our launch template, some carry other tags, some none."""
    with account():
        ec2, cloud = client("ec2"), AwsCloud(client, SETTINGS, system_time)
        template = planned(cloud)[1][0]
        (ours,) = (
            spec
            for spec in template.data["TagSpecifications"]
            if spec["ResourceType"] == "spot-instances-request"
        )
        neighbours = {**ours, "Tags": [{"Key": "nodesmith.dev/managed-by", "Value": "neighbour"}]}
        requests = [warned_spot_request(ec2, template, tags) for tags in ([ours], [neighbours], [])]

        with answers(ec2, "DescribeSpotInstanceRequests") as read:
            reported = cloud.notices([request["InstanceId"] for request in requests])

    assert [(notice.cause, notice.instance_id) for notice in reported] == [
        (InterruptionCause.SPOT, requests[0]["InstanceId"])
    ]
    assert [len(answer["SpotInstanceRequests"]) for answer in read] == [1]


def test_routing_reads_only_marked_spot_requests_of_our_launches() -> None:
    with account():
        ec2 = client("ec2")
        template = planned(AwsCloud(client, SETTINGS, system_time))[1][0]
        tagged = {"ResourceType": "spot-instances-request"}
        clusters = [{"Key": "nodesmith.dev/managed-by", "Value": name} for name in ("shop", "bank", "calm")]
        others = {"Key": "team", "Value": "others"}
        shop, bank, calm, _ = (
            warned_spot_request(ec2, template, [{**tagged, "Tags": [tag]}]) for tag in (*clusters, others)
        )
        spot_requests()[calm["SpotInstanceRequestId"]]._status_code = "fulfilled"

        routing = acting(client, Role("routing", "", REGION))
        with answers(ec2, "DescribeSpotInstanceRequests") as read:
            marked = Ec2MarkedInstances(lambda: ec2).ids()
        assert Ec2MarkedInstances(lambda: routing("ec2")).ids() == marked

    assert marked == {shop["InstanceId"], bank["InstanceId"]}
    assert [len(answer["SpotInstanceRequests"]) for answer in read] == [2]


def spot_requests() -> Any:
    """Return moto's spot requests, by id."""
    return ec2_backends[DEFAULT_ACCOUNT_ID][REGION].spot_instance_requests


def warned_spot_request(ec2: Any, template: LaunchTemplate, tags: list[dict[str, Any]]) -> dict[str, Any]:
    """Create a fulfilled spot request whose instance has received an interruption warning."""
    specification = {"ImageId": template.data["ImageId"], "InstanceType": "m5.large"}
    asked = ec2.request_spot_instances(LaunchSpecification=specification, TagSpecifications=tags)
    made: dict[str, Any] = asked["SpotInstanceRequests"][0]
    spot_requests()[made["SpotInstanceRequestId"]]._status_code = "marked-for-termination"
    return made


@contextmanager
def answers(ec2: Any, operation: str) -> Iterator[list[dict[str, Any]]]:
    """Collect the responses that a client receives within the block."""
    collected: list[dict[str, Any]] = []

    def collect(parsed: dict[str, Any], **_: Any) -> None:
        collected.append(parsed)

    event = f"after-call.ec2.{operation}"
    ec2.meta.events.register(event, collect)
    try:
        yield collected
    finally:
        ec2.meta.events.unregister(event, collect)


@pytest.mark.parametrize("missing", ["nodesmith.dev/managed-by", "eks:eks-cluster-name"])
def test_resources_of_others_and_of_other_clusters_are_never_listed_as_ours(
    subject: Subject, missing: str
) -> None:
    request, templates = planned(subject.cloud)
    subject.cloud.ensure_templates(templates)
    karpenters = {key: value for key, value in request.tags.items() if key != missing}
    anothers = {**request.tags, missing: "other"}
    theirs = [replace(request, claim="a", tags=karpenters), replace(request, claim="b", tags=anothers)]
    outcomes = subject.cloud.launch(theirs)
    assert list(subject.cloud.owned_instances()) == []
    ids = {outcome.instance.id for outcome in outcomes if isinstance(outcome, Launched)}
    assert len(ids) == 2
    assert set(subject.cloud.living(ids)) == ids


def test_launch_templates_are_listed_by_name_and_removed(subject: Subject) -> None:
    request, templates = planned(subject.cloud)
    subject.cloud.ensure_templates(templates)
    owned = subject.cloud.owned(OwnedKind.LAUNCH_TEMPLATE)
    names = {each.name for each in owned}  # includes the template that resolving created for its dry runs
    assert {template.name for template in templates} <= names
    assert len(names) == len(owned)
    assert all(each.created_at is not None and each.created_at.tzinfo is not None for each in owned)
    for each in owned:
        subject.cloud.remove(each)
        subject.cloud.remove(each)
    assert list(subject.cloud.owned(OwnedKind.LAUNCH_TEMPLATE)) == []
    assert subject.cloud.launch([request]) == [TemplateMissing(request.claim)]


def test_the_cluster_is_described_completely(subject: Subject) -> None:
    assert subject.cloud.cluster_info() == CLUSTER


def test_a_fully_resolved_nodeclass_is_ready_and_has_its_generation(subject: Subject) -> None:
    nodeclass = replace(NODECLASS, generation=7, hash="abc")
    status = subject.cloud.resolve(nodeclass, CLUSTER, NOW)
    assert status.is_ready
    assert (status.name, status.generation, status.hash, status.resolved_at) == ("default", 7, "abc", NOW)
    assert {c.type for c in status.conditions} == {
        "SubnetsReady",
        "SecurityGroupsReady",
        "AMIsReady",
        "InstanceProfileReady",
        "CapacityReservationsReady",
        "PlacementGroupReady",
        "ValidationSucceeded",
    }
    assert status.subnets
    assert status.security_groups
    assert status.images
    assert status.instance_profile


def test_a_nodeclass_that_cannot_launch_nodes_has_a_false_condition(subject: Subject) -> None:
    broken = replace(NODECLASS, ami_family="Bottlerocket", user_data="a = 1\na = 2\n")
    status = subject.cloud.resolve(broken, CLUSTER, NOW)
    assert not status.is_ready
    obstacle = status.first_obstacle
    assert obstacle is not None
    assert (obstacle.type, obstacle.reason) == ("ValidationSucceeded", "UserDataInvalid")
