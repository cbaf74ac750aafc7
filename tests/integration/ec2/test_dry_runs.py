"""Dry runs check whether EC2 permits launching nodes of an EC2NodeClass. A denial becomes a condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.nodeclasses.nodeclasses import BELIEVED
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.labels import INSTANCE_FAMILY, INSTANCE_TYPE, TENANCY
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm, EC2NodeClass
from nodesmith.model.nodeclasses.status import NodeClassStatus, StatusCondition
from tests.aws.account import NODECLASS, SETTINGS, account, client
from tests.fakes.cloud import CLUSTER

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
DEDICATED = Requirements.from_labels({TENANCY: "dedicated"})
ASKED = ["create_launch_template", "create_fleet", "run_instances"]


class Ec2:
    """An EC2 that returns errors for some calls and records all calls."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self.families: frozenset[str] | None = None
        """the only families that a policy permits; None for all"""
        self.asked: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**parameters: Any) -> Any:
            if name in ASKED:
                self.asked.append(name)
                self.parameters.append(parameters)
            type_ = parameters.get("InstanceType", "")
            is_denied = self.families is not None and type_ and type_.split(".")[0] not in self.families
            if is_denied:
                raise ClientError(
                    {"Error": {"Code": "UnauthorizedOperation", "Message": f"no {type_} by a policy"}}, name
                )
            if name in self.errors:
                raise ClientError(
                    {"Error": {"Code": self.errors[name], "Message": "by a policy of the organization"}}, name
                )
            return getattr(client("ec2"), name)(**parameters)

        return call if name in ASKED else getattr(client("ec2"), name)


class Subject:
    """An AwsCloud with its own clock."""

    def __init__(self) -> None:
        self.ec2 = Ec2()
        self.now = START
        self.cloud = AwsCloud(
            lambda service: self.ec2 if service == "ec2" else client(service), SETTINGS, lambda: self.now
        )

    def resolve(
        self, nodeclass: EC2NodeClass = NODECLASS, pools: Sequence[Requirements] = ()
    ) -> NodeClassStatus:
        return self.cloud.resolve(nodeclass, CLUSTER, self.now, pools)

    def validation(
        self, nodeclass: EC2NodeClass = NODECLASS, pools: Sequence[Requirements] = ()
    ) -> StatusCondition:
        return next(c for c in self.resolve(nodeclass, pools).conditions if c.type == "ValidationSucceeded")


@pytest.fixture
def subject() -> Iterator[Subject]:
    with account():
        yield Subject()


def test_a_permitted_nodeclass_is_ready_and_nothing_is_launched(subject: Subject) -> None:
    status = subject.resolve()
    assert status.is_ready
    assert subject.ec2.asked == ASKED
    _, fleet, run = subject.ec2.parameters
    assert fleet["DryRun"] is run["DryRun"] is True
    assert client("ec2").describe_instances()["Reservations"] == []


def test_the_fleet_of_a_dry_run_has_the_context_of_the_nodeclass(subject: Subject) -> None:
    subject.resolve(replace(NODECLASS, context="context-1"))
    assert subject.ec2.parameters[1]["Context"] == "context-1"


def test_a_dry_run_has_the_tenancy_of_the_nodepools_and_is_repeated_when_it_changes(subject: Subject) -> None:
    subject.resolve()
    subject.resolve(pools=[DEDICATED])
    first, second = (
        asked["LaunchTemplateData"] for asked in subject.ec2.parameters if "LaunchTemplateData" in asked
    )
    assert "Placement" not in first
    assert second["Placement"] == {"Tenancy": "dedicated"}


@pytest.mark.parametrize(
    ("family", "alias", "name"),
    [
        ("AL2023", "al2023@latest", "-standard-"),
        ("Bottlerocket", "bottlerocket@latest", "bottlerocket-aws-k8s-1.33"),
        ("Windows2022", "windows2022@latest", "Windows_Server-2022"),
    ],
)
def test_a_dry_run_uses_an_image_without_drivers_of_accelerators(
    family: str, alias: str, name: str, subject: Subject
) -> None:
    status = subject.resolve(
        replace(NODECLASS, ami_family=family, ami_selector_terms=(AMISelectorTerm(alias=alias),))
    )
    assert status.is_ready, status.first_obstacle
    template, *_ = subject.ec2.parameters
    used = next(i for i in status.images if i.id == template["LaunchTemplateData"]["ImageId"])
    assert name in used.name
    assert "nvidia" not in used.name


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("create_launch_template", "CreateLaunchTemplateAuthCheckFailed"),
        ("create_fleet", "CreateFleetAuthCheckFailed"),
        ("run_instances", "RunInstancesAuthCheckFailed"),
    ],
)
def test_a_denial_is_a_condition_with_karpenters_reason(subject: Subject, call: str, reason: str) -> None:
    subject.ec2.errors[call] = "UnauthorizedOperation"
    found = subject.validation()
    assert (found.status, found.reason) == ("False", reason)
    assert "by a policy of the organization" in found.message
    assert not subject.resolve().is_ready


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("DescribeSubnets", "SubnetsReady"),
        ("DescribeSecurityGroups", "SecurityGroupsReady"),
        ("DescribeImages", "AMIsReady"),
    ],
)
def test_the_condition_of_a_denied_read_names_the_operation(
    subject: Subject, operation: str, kind: str
) -> None:
    def denied(**_: object) -> tuple[SimpleNamespace, dict[str, object]]:
        error = {"Code": "UnauthorizedOperation", "Message": "by a policy"}
        return SimpleNamespace(status_code=403), {"Error": error, "ResponseMetadata": {}}

    events, call = subject.ec2.meta.events, f"before-call.ec2.{operation}"
    events.register(call, denied)
    try:
        found = next(c for c in subject.resolve().conditions if c.type == kind)
    finally:
        events.unregister(call, denied)
    assert (found.status, found.reason) == ("False", "UnauthorizedOperation")
    assert found.message.startswith(f"{operation}: UnauthorizedOperation: by a policy")


def test_one_permitted_subnet_is_enough(subject: Subject) -> None:
    subject.ec2.errors["run_instances"] = "UnauthorizedOperation"
    subject.validation()
    subnets = [each["NetworkInterfaces"][0]["SubnetId"] for each in subject.ec2.parameters[2:]]
    assert len(subnets) == len(set(subnets)) == 3


@pytest.mark.parametrize(
    "labels",
    [
        {INSTANCE_TYPE: "m6i.large", "example.com/team": "web"},
        {INSTANCE_FAMILY: "m6i"},
        {
            "karpenter.k8s.aws/instance-category": "m",
            "karpenter.k8s.aws/instance-generation": "6",
            "karpenter.k8s.aws/instance-cpu-manufacturer": "intel",
        },
    ],
)
def test_a_policy_that_permits_only_the_types_of_a_nodepool_leaves_the_nodeclass_ready(
    subject: Subject, labels: dict[str, str]
) -> None:
    subject.ec2.families = frozenset({"m6i"})
    other = Requirements.from_labels({INSTANCE_FAMILY: "c5"})
    assert subject.validation(pools=[other, Requirements.from_labels(labels)]).status == "True"


def test_a_policy_that_permits_no_type_of_the_nodepools_is_a_condition_that_names_one(
    subject: Subject,
) -> None:
    subject.ec2.families = frozenset({"m6i"})
    found = subject.validation(pools=[Requirements.from_labels({INSTANCE_FAMILY: "c5"})])
    assert (found.status, found.reason) == ("False", "RunInstancesAuthCheckFailed")
    assert "c5.large" in found.message


def test_the_dry_runs_are_repeated_when_a_nodepool_asks_for_other_types(subject: Subject) -> None:
    subject.ec2.families = frozenset({"m6i"})
    assert subject.validation().status == "False"
    pools = [Requirements.from_labels({INSTANCE_FAMILY: "m6i"})]
    assert subject.validation(pools=pools).status == "True"


def test_other_errors_do_not_affect_the_nodeclass(subject: Subject) -> None:
    subject.ec2.errors["run_instances"] = "Unsupported"
    assert subject.validation().status == "True"


def test_transient_errors_are_raised_and_not_cached(subject: Subject) -> None:
    subject.ec2.errors["create_fleet"] = "RequestLimitExceeded"
    with pytest.raises(Transient, match=r"ec2:CreateFleet \(dry run\)"):
        subject.resolve()
    del subject.ec2.errors["create_fleet"]
    assert subject.validation().status == "True"


@pytest.mark.parametrize("code", ["", "UnauthorizedOperation"])
def test_a_result_is_cached_for_half_an_hour_and_for_the_same_nodeclass(subject: Subject, code: str) -> None:
    subject.ec2.errors = {"create_launch_template": code} if code else {}
    subject.resolve()
    count = len(subject.ec2.asked)
    subject.now += BELIEVED - timedelta(seconds=1)
    subject.resolve()
    assert len(subject.ec2.asked) == count
    subject.resolve(replace(NODECLASS, annotations={"checked": "again"}))
    assert len(subject.ec2.asked) == 2 * count
    subject.now += BELIEVED
    subject.resolve(replace(NODECLASS, annotations={"checked": "again"}))
    assert len(subject.ec2.asked) == 3 * count


def test_an_incomplete_nodeclass_has_no_dry_run(subject: Subject) -> None:
    subject.resolve(replace(NODECLASS, subnet_selector_terms=()))
    assert subject.ec2.asked == []
