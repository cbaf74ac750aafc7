"""What each function's role may do, as IAM evaluates it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.functions.concerns import CLUSTER_CONCERNS
from nodesmith.keys import (
    budget_partition_key,
    catalog_key,
    commitments_key,
    decision_key,
    decision_snapshot_key,
    learned_partition_key,
    metrics_key,
    on_sale_key,
    partition_key,
    snapshot_base_key,
    snapshot_key,
    snapshot_keys,
)
from nodesmith.model.functions import INFORMED, MEASURED, TALKING, WOKEN
from nodesmith.settings import function_name
from tests.infra.deployment import ACCOUNT, PRIVATE, REGION, ROOT, VPC
from tests.infra.iam import allows, may, session
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
BUCKET = "arn:aws:s3:::nodesmith-111122223333-eu-west-1-an"
OWN = {"aws__ResourceAccount": "111122223333"}
TABLE = "arn:aws:dynamodb:eu-west-1:111122223333:table/nodesmith"
LAMBDA = "arn:aws:lambda:eu-west-1:111122223333:function"
SESSION = session("alpha", VPC)


def may_for_alpha(template: Template, concern: str, action: str, resource: str, **context: Any) -> bool:
    """Ask in alpha's session; write `__` for `:` in condition keys."""
    tags = {key.replace(":", "__", 1): value for key, value in SESSION.items()}
    return may(template, concern, action, resource, **tags, **context)


# Calls without resource-level permissions, or that Lambda itself makes; all others name their resources.
EVERYTHING = {
    "arc-zonal-shift:GetManagedResource",
    "arc-zonal-shift:ListManagedResources",
    "ec2:DescribePlacementGroups",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
    "pricing:GetProducts",
    "savingsplans:DescribeSavingsPlanRates",
    "savingsplans:DescribeSavingsPlans",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeReservedInstances",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "iam:ListInstanceProfiles",
}
ATTACH_TO_VPC = {
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
}


def roles(templates: dict[str, Template]) -> list[tuple[Template, str]]:
    """Return all roles of all regions; clusters have none of their own."""
    return [
        (template, id_)
        for template in templates.values()
        for id_, each in template.resources.items()
        if each["Type"] == "AWS::IAM::Role"
    ]


def all_statements(templates: dict[str, Template]) -> list[dict[str, Any]]:
    return [statement for template, role in roles(templates) for statement in template.statements(role)]


def test_no_statement_has_a_wildcard_action_or_grants_by_exception(templates: dict[str, Template]) -> None:
    for statement in all_statements(templates):
        assert not [action for action in statement["Action"] if "*" in action or "?" in action]
        assert not statement.keys() & {"NotAction", "NotResource", "NotPrincipal"}


def test_only_calls_without_resource_level_permissions_allow_all_resources(
    templates: dict[str, Template],
) -> None:
    for statement in all_statements(templates):
        if "*" in statement["Resource"] and statement["Effect"] == "Allow":
            assert set(statement["Action"]) <= EVERYTHING or set(statement["Action"]) == ATTACH_TO_VPC


def test_describe_calls_are_limited_to_the_region(region: Template) -> None:
    for concern in ("provisioning", "interruption", "lifecycle", "termination", "garbagecollection"):
        assert may_for_alpha(region, concern, "ec2:DescribeInstances", "*", aws__RequestedRegion=REGION)
        assert not may_for_alpha(
            region, concern, "ec2:DescribeInstances", "*", aws__RequestedRegion="us-east-1"
        )


@pytest.mark.parametrize(
    "concern",
    [each for each in ALL if each not in ("observation", "shadow")],
)
def test_a_function_reaches_only_its_clusters_partition_of_the_table(region: Template, concern: str) -> None:
    for action in ("Query", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"):
        for cluster, expected in (("alpha", True), ("beta", False)):
            keys = [partition_key(cluster)]
            assert (
                may_for_alpha(region, concern, f"dynamodb:{action}", TABLE, dynamodb__LeadingKeys=keys)
                is expected
            )
        assert not may_for_alpha(region, concern, f"dynamodb:{action}", TABLE), (
            "a call without keys must be denied"
        )
    assert not may_for_alpha(region, concern, "dynamodb:Scan", TABLE)


def test_only_buying_concerns_and_readiness_reach_what_clusters_share(region: Template) -> None:
    def may_on(concern: str, action: str, key: str) -> bool:
        return may_for_alpha(region, concern, f"dynamodb:{action}", TABLE, dynamodb__LeadingKeys=[key])

    own = budget_partition_key(REGION)
    for concern in ("provisioning", "interruption", "disruption"):
        assert may_on(concern, "Query", own)
        assert may_on(concern, "PutItem", own)
        assert not may_on(concern, "DeleteItem", own)
        assert not may_on(concern, "PutItem", budget_partition_key("us-east-1"))
    assert may_on("readiness", "BatchGetItem", own)
    for concern in ("lifecycle", "termination", "observation", "repair", "garbagecollection"):
        assert not may_on(concern, "Query", own)


def test_buying_concerns_read_lessons_and_only_lifecycle_writes_them(region: Template) -> None:
    def may_on(concern: str, action: str, key: str) -> bool:
        return may_for_alpha(region, concern, f"dynamodb:{action}", TABLE, dynamodb__LeadingKeys=[key])

    shared = learned_partition_key(REGION)
    who = {"provisioning": False, "interruption": False, "disruption": False, "lifecycle": True}
    for concern, writes in who.items():
        assert may_on(concern, "Query", shared)
        assert may_on(concern, "PutItem", shared) is writes
        assert not may_on(concern, "Query", learned_partition_key("us-east-1"))
        for action in ("UpdateItem", "DeleteItem", "BatchWriteItem"):
            assert not may_on(concern, action, shared)
    for concern in ("termination", "readiness", "observation", "garbagecollection"):
        assert not may_on(concern, "Query", shared)
        assert not may_on(concern, "PutItem", shared)


def test_observation_cannot_reach_the_ledger(region: Template) -> None:
    assert not may_for_alpha(
        region, "observation", "dynamodb:Query", TABLE, dynamodb__LeadingKeys=["CLUSTER#alpha"]
    )


def test_each_function_writes_only_its_own_objects(region: Template) -> None:
    objects = [
        snapshot_key("alpha"),
        snapshot_key("beta"),
        snapshot_base_key("alpha", "0" * 64),
        decision_key("alpha", "d-1"),
        decision_snapshot_key("alpha", "d-1"),
        decision_key("beta", "d-1"),
        catalog_key(REGION),
        commitments_key(REGION),
        *(metrics_key(cluster, each) for cluster in ("alpha", "beta") for each in ALL),
        on_sale_key("alpha"),
        on_sale_key("beta"),
    ]
    written = {
        concern: [
            key for key in objects if may_for_alpha(region, concern, "s3:PutObject", f"{BUCKET}/{key}", **OWN)
        ]
        for concern in ALL
    }
    metrics = {concern: [metrics_key("alpha", concern)] if concern in MEASURED else [] for concern in ALL}
    decisions = [decision_key("alpha", "d-1"), decision_snapshot_key("alpha", "d-1")]
    assert written == {
        **metrics,
        **{each: [*decisions, *metrics[each]] for each in ("provisioning", "interruption", "disruption")},
        "provisioning": [*decisions, *metrics["provisioning"], on_sale_key("alpha")],
        "observation": [snapshot_key("alpha")],
    }
    assert [key for key in objects if may(region, "catalog", "s3:PutObject", f"{BUCKET}/{key}", **OWN)] == [
        catalog_key(REGION),
        commitments_key(REGION),
    ]


@pytest.mark.parametrize("concern", ALL)
def test_each_function_reads_its_clusters_snapshot_and_gets_404_if_it_is_missing(
    region: Template, concern: str
) -> None:
    for key in (snapshot_key("alpha"), snapshot_base_key("alpha", "0" * 64)):
        assert may_for_alpha(region, concern, "s3:GetObject", f"{BUCKET}/{key}", **OWN)
    assert not may_for_alpha(region, concern, "s3:GetObject", f"{BUCKET}/{snapshot_key('beta')}", **OWN)
    assert may_for_alpha(
        region, concern, "s3:ListBucket", BUCKET, **OWN
    )  # without this permission, S3 answers 403 instead of 404


def test_no_role_may_use_a_bucket_of_the_same_name_in_another_account(templates: dict[str, Template]) -> None:
    actions = ("s3:GetObject", "s3:ListBucket", "s3:PutObject")
    theirs = {"aws:ResourceAccount": "999988887777", "aws:PrincipalTag/eks-cluster-name": "alpha"}
    asked = 0
    for template, role in roles(templates):
        statements = template.statements(role)
        patterns = {each for statement in statements for each in statement["Resource"]}
        for pattern in (each for each in patterns if each.startswith("arn:aws:s3:::")):
            resource = re.sub(r"\$\{[^}]*\}", "alpha", pattern)
            for action in actions:
                asked += 1
                for context in (theirs, {**theirs, **SESSION}):
                    assert not allows(statements, action, resource, context), (
                        f"{role}: {action} on {resource}"
                    )
    assert asked > len(ALL)


@pytest.mark.parametrize("concern", ALL)
def test_a_function_may_wake_the_concerns_that_its_controller_wakes(region: Template, concern: str) -> None:
    controllers = ROOT / "layers/core/python/nodesmith/controllers"
    source = next(controllers.rglob(f"{concern}.py")).read_text()
    # Modules that do some of its work.
    for part in (
        "provisioning",
        "disruption.moves.runstate",
        "disruption.moves.moves",
    ):
        if f"controllers.{part} import" in source:
            source += (controllers / f"{part.replace('.', '/')}.py").read_text()
    woken = set(re.findall(r"(?<!_lock\()Concern\.([A-Z]+)", source))
    woken |= {each.name for each in INFORMED if "INFORMED" in source}
    for place in ("", PRIVATE) if concern in TALKING else ("",):
        statements = region.statements(region.role_of(concern, place))
        for other in ALL:
            for vpc in ("", PRIVATE):
                there = (
                    vpc in ({place} if concern in TALKING else {"", PRIVATE}) if other in TALKING else not vpc
                )
                function = f"{LAMBDA}:{function_name(other, vpc)}"
                expected = there and other.upper() in woken
                assert allows(statements, "lambda:InvokeFunction", f"{function}:live") is expected
                assert not allows(statements, "lambda:InvokeFunction", function)


def test_dispatch_lists_registrations_and_wakes_concerns_but_reaches_no_cluster(
    region: Template,
) -> None:
    parameters = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/nodesmith/clusters"
    for resource in (parameters, f"{parameters}/alpha"):
        assert may(region, "dispatch", "ssm:GetParametersByPath", resource)
    assert not may(region, "dispatch", "ssm:GetParametersByPath", parameters.replace("/clusters", ""))
    for concern in ALL:
        for vpc in ("", PRIVATE) if concern in TALKING else ("",):
            function = f"{LAMBDA}:{function_name(concern, vpc)}:live"
            assert may(region, "dispatch", "lambda:InvokeFunction", function)
    ledger = [partition_key("alpha")]
    assert not may(region, "dispatch", "dynamodb:Query", TABLE, dynamodb__LeadingKeys=ledger)


@pytest.mark.parametrize("concern", ALL)
def test_a_function_reads_registrations_only_outside_sessions(region: Template, concern: str) -> None:
    parameters = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter"
    serves, observes = concern != "shadow", concern in ("observation", "shadow")
    for cluster in ("alpha", "beta"):
        for path, expected in (("clusters", serves), ("observed", observes)):
            registration = f"{parameters}/nodesmith/{path}/{cluster}"
            assert may(region, concern, "ssm:GetParameters", registration) is expected
            assert not may_for_alpha(region, concern, "ssm:GetParameters", registration)
    assert not may(region, concern, "ssm:GetParameters", f"{parameters}/password")


def test_routing_reads_indexes_but_no_ledger_and_wakes_only_interruption_and_readiness(
    region: Template,
) -> None:
    keys = [partition_key("alpha")]
    for index in ("instance", "reservation"):
        resource = f"{TABLE}/index/{index}"
        assert may(region, "routing", "dynamodb:Query", resource)
        for concern in ALL:
            for asks in (may, may_for_alpha):
                assert not asks(region, concern, "dynamodb:Query", resource, dynamodb__LeadingKeys=keys)
    assert not may(region, "routing", "dynamodb:Query", TABLE, dynamodb__LeadingKeys=keys)
    for concern in ALL:
        function = f"{LAMBDA}:nodesmith-{concern}:live"
        woken = concern in {"interruption", "readiness"}
        assert may(region, "routing", "lambda:InvokeFunction", function) is woken


def test_a_session_reads_the_zonal_shifts_of_its_own_cluster_only(region: Template) -> None:
    for name in ("alpha", "beta"):
        arn = f"arn:aws:eks:{REGION}:111122223333:cluster/{name}"
        asked: dict[str, Any] = {"arc-zonal-shift__ResourceIdentifier": arn}
        may_read = may_for_alpha(region, "readiness", "arc-zonal-shift:GetManagedResource", "*", **asked)
        assert may_read is (name == "alpha")
    assert may(region, "routing", "arc-zonal-shift:ListManagedResources", "*", aws__RequestedRegion=REGION)


def test_images_are_read_from_awss_public_parameters(region: Template) -> None:
    parameter = "arn:aws:ssm:eu-west-1:{}:parameter/{}"
    public = parameter.format("", "aws/service/eks/optimized-ami/1.33/amazon-linux-2023/recommended")
    assert may_for_alpha(region, "readiness", "ssm:GetParameter", public)
    assert not may_for_alpha(
        region, "readiness", "ssm:GetParameter", parameter.format("111122223333", "password")
    )


def test_only_readiness_reads_the_accounts_parameters_that_cdk_json_names(
    region: Template, plain: Template
) -> None:
    for name in ("golden/image", "team-image"):
        parameter = f"arn:aws:ssm:eu-west-1:111122223333:parameter/{name}"
        assert [each for each in ALL if may_for_alpha(region, each, "ssm:GetParameter", parameter)] == [
            "readiness"
        ]
        assert not [
            each for each in ALL if may_for_alpha(region, each, "ssm:GetParameter", f"{parameter}/other")
        ]
        assert not [each for each in ALL if may_for_alpha(plain, each, "ssm:GetParameter", parameter)]


def test_concerns_that_call_api_servers_describe_the_cluster(region: Template) -> None:
    cluster = "arn:aws:eks:eu-west-1:111122223333:cluster/"
    asking = [each for each in ALL if may_for_alpha(region, each, "eks:DescribeCluster", f"{cluster}alpha")]
    assert asking == list(TALKING)
    assert not [each for each in ALL if may_for_alpha(region, each, "eks:DescribeCluster", f"{cluster}beta")]


def test_of_the_functions_in_vpcs_only_garbage_collection_deletes_interfaces(
    region: Template,
) -> None:
    action, interface = (
        "ec2:DeleteNetworkInterface",
        f"arn:aws:ec2:{REGION}:{ACCOUNT}:network-interface/eni-1",
    )

    def tagged(cluster: str, managed_by: str) -> dict[str, str]:
        return {
            "aws:ResourceTag/eks:eks-cluster-name": cluster,
            "aws:ResourceTag/karpenter.sh/nodepool": "default",
            **({"aws:ResourceTag/nodesmith.dev/managed-by": managed_by} if managed_by else {}),
        }

    for concern in TALKING:
        statements = region.statements(region.role_of(concern, PRIVATE))
        collects = concern == "garbagecollection"
        assert allows(statements, action, interface, {**SESSION, **tagged("alpha", "alpha")}) is collects
        for tags in (tagged("beta", "beta"), tagged("alpha", "beta"), tagged("alpha", "")):
            assert not allows(statements, action, interface, {**SESSION, **tags})


@pytest.mark.parametrize(
    ("partition", "region_name"), [("aws", "ap-southeast-99"), ("aws-us-gov", "us-gov-west-1")]
)
def test_roles_stay_within_iams_size_limits_in_every_partition(
    templates: dict[str, Template], partition: str, region_name: str
) -> None:
    def size(statements: list[dict[str, Any]]) -> int:
        text = json.dumps(statements, separators=(",", ":"))
        return len(text.replace("arn:aws:", f"arn:{partition}:").replace(REGION, region_name))

    for template, role in roles(templates):
        assert size(template.statements(role)) <= 10_240, role
        assert size(template.trust(role)) <= 2_048, role


def test_no_function_reads_another_functions_metrics(region: Template) -> None:
    for concern in ALL:
        for other in ALL:
            is_own = concern == other and concern in MEASURED
            mine, theirs = (f"{BUCKET}/{metrics_key(cluster, other)}" for cluster in ("alpha", "beta"))
            assert may_for_alpha(region, concern, "s3:GetObject", mine, **OWN) is is_own
            assert not may_for_alpha(region, concern, "s3:GetObject", theirs, **OWN)


def test_the_forwarder_writes_one_object_reads_metrics_and_wakes_concerns(region: Template) -> None:
    cluster, statements = (
        "${aws:PrincipalTag/eks-cluster-name}",
        region.statements(region.role_named(f"nodesmith-forwarder-{REGION}")),
    )
    woken = [
        function_name(each, vpc)
        for each in (*WOKEN, "shadow")
        for vpc in (("", PRIVATE) if each in TALKING else ("",))
    ]
    measured = (*(metrics_key(cluster, each) for each in MEASURED), on_sale_key(cluster))
    asked = {
        (action, each) for every in statements for action in every["Action"] for each in every["Resource"]
    }
    assert asked == {
        *(("s3:GetObject", f"{BUCKET}/{key}") for key in measured),
        ("s3:PutObject", f"{BUCKET}/{snapshot_keys(cluster)}"),
        ("dynamodb:PutItem", TABLE),
        *(("lambda:InvokeFunction", f"{LAMBDA}:{name}:live") for name in woken),
    }
