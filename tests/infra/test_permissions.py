"""What may be done: each function's role, asked as IAM would be."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.concerns import CLUSTER_CONCERNS
from nodesmith.settings import (
    INFORMED,
    MEASURED,
    WOKEN,
    catalog_key,
    decision_key,
    decision_snapshot_key,
    learned_partition_key,
    metrics_key,
    on_sale_key,
    partition_key,
    snapshot_key,
)
from tests.infra.deployment import REGION, ROOT, TALKING
from tests.infra.iam import allows, may
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
BUCKET = "arn:aws:s3:::nodesmith-111122223333-eu-west-1-an"
OWN = {"aws__ResourceAccount": "111122223333"}
TABLE = "arn:aws:dynamodb:eu-west-1:111122223333:table/nodesmith"
SQS = "arn:aws:sqs:eu-west-1:111122223333"

# The calls that know no resources, or that Lambda itself makes: everything else names what it is about.
EVERYTHING = {
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
    "pricing:GetProducts",
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


def all_statements(templates: dict[str, Template]) -> list[dict[str, Any]]:
    return [
        statement
        for template in templates.values()
        for role in template.of_type("IAM::Role")
        for statement in template.statements(role)
    ]


def test_no_statement_has_a_wildcard_action_or_grants_by_exception(templates: dict[str, Template]) -> None:
    for statement in all_statements(templates):
        assert not [action for action in statement["Action"] if "*" in action or "?" in action]
        assert not statement.keys() & {"NotAction", "NotResource", "NotPrincipal"}


def test_only_calls_that_know_no_resources_are_allowed_on_everything(templates: dict[str, Template]) -> None:
    for statement in all_statements(templates):
        if "*" in statement["Resource"] and statement["Effect"] == "Allow":
            assert set(statement["Action"]) <= EVERYTHING or set(statement["Action"]) == ATTACH_TO_VPC


def test_describing_stops_at_the_region(alpha: Template) -> None:
    for concern in ("provisioning", "interruption", "lifecycle", "termination", "garbagecollection"):
        assert may(alpha, concern, "ec2:DescribeInstances", "*", aws__RequestedRegion=REGION)
        assert not may(alpha, concern, "ec2:DescribeInstances", "*", aws__RequestedRegion="us-east-1")


@pytest.mark.parametrize(
    "concern",
    [each for each in ALL if each != "observation"],
)
def test_a_function_reaches_its_clusters_partition_of_the_table_and_no_other(
    alpha: Template, concern: str
) -> None:
    for action in ("Query", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"):
        for cluster, expected in (("alpha", True), ("beta", False)):
            keys = [partition_key(cluster)]
            assert may(alpha, concern, f"dynamodb:{action}", TABLE, dynamodb__LeadingKeys=keys) is expected
        assert not may(alpha, concern, f"dynamodb:{action}", TABLE), (
            "a call that names no key is none of ours"
        )
    assert not may(alpha, concern, "dynamodb:Scan", TABLE)


def test_what_nodes_offer_is_read_by_who_buys_and_written_by_who_sees_them(alpha: Template) -> None:
    def may_on(concern: str, action: str, key: str) -> bool:
        return may(alpha, concern, f"dynamodb:{action}", TABLE, dynamodb__LeadingKeys=[key])

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


def test_observation_has_no_way_to_the_ledger(alpha: Template) -> None:
    assert not may(alpha, "observation", "dynamodb:Query", TABLE, dynamodb__LeadingKeys=["CLUSTER#alpha"])


def test_each_function_writes_its_own_objects_only(alpha: Template, account: Template) -> None:
    objects = [
        snapshot_key("alpha"),
        snapshot_key("beta"),
        decision_key("alpha", "d-1"),
        decision_snapshot_key("alpha", "d-1"),
        decision_key("beta", "d-1"),
        catalog_key(REGION),
        *(metrics_key(cluster, each) for cluster in ("alpha", "beta") for each in ALL),
        on_sale_key("alpha"),
        on_sale_key("beta"),
    ]
    written = {
        concern: [key for key in objects if may(alpha, concern, "s3:PutObject", f"{BUCKET}/{key}", **OWN)]
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
    assert [key for key in objects if may(account, "catalog", "s3:PutObject", f"{BUCKET}/{key}", **OWN)] == [
        catalog_key(REGION)
    ]


@pytest.mark.parametrize("concern", ALL)
def test_each_function_reads_its_clusters_snapshot_and_learns_when_there_is_none(
    alpha: Template, concern: str
) -> None:
    assert may(alpha, concern, "s3:GetObject", f"{BUCKET}/{snapshot_key('alpha')}", **OWN)
    assert not may(alpha, concern, "s3:GetObject", f"{BUCKET}/{snapshot_key('beta')}", **OWN)
    assert may(alpha, concern, "s3:ListBucket", BUCKET, **OWN)  # without it S3 says 403 where it means 404


def test_a_bucket_of_that_name_in_another_account_is_nobodys_to_use(templates: dict[str, Template]) -> None:
    actions, theirs = (
        ("s3:GetObject", "s3:ListBucket", "s3:PutObject"),
        {"aws:ResourceAccount": "999988887777"},
    )
    asked = 0
    for template in templates.values():
        for role in template.of_type("IAM::Role"):
            statements = template.statements(role)
            for resource in {each for statement in statements for each in statement["Resource"]}:
                for action in actions if resource.startswith("arn:aws:s3:::") else ():
                    asked += 1
                    assert not allows(statements, action, resource, theirs), f"{role}: {action} on {resource}"
    assert asked > len(ALL)


@pytest.mark.parametrize("concern", ALL)
def test_a_function_may_wake_whom_its_controller_wakes_in_its_own_cluster(
    alpha: Template, concern: str
) -> None:
    controllers = ROOT / "layers/core/python/nodesmith/controllers"
    source = (controllers / f"{concern}.py").read_text()
    for part in ("provisioning", "look", "moves", "secondlooks"):  # of its story some is told in there
        if f"controllers.{part} import" in source:
            source += (controllers / f"{part}.py").read_text()
    woken = set(re.findall(r"Concern\.([A-Z]+)", source))
    woken |= {each.name for each in INFORMED if "INFORMED" in source}
    for other in ALL:
        expected = other.upper() in woken
        assert may(alpha, concern, "sqs:SendMessage", f"{SQS}:nodesmith-alpha-{other}") is expected
        assert not may(alpha, concern, "sqs:SendMessage", f"{SQS}:nodesmith-beta-{other}")


def test_routing_reads_whose_an_instance_is_and_no_ledger_and_reaches_queues_of_interruption_only(
    account: Template, alpha: Template
) -> None:
    for index in ("instance", "reservation"):
        assert may(account, "routing", "dynamodb:Query", f"{TABLE}/index/{index}")
        for concern in ALL:
            keys = [partition_key("alpha")]
            assert not may(
                alpha, concern, "dynamodb:Query", f"{TABLE}/index/{index}", dynamodb__LeadingKeys=keys
            )
    for cluster in ("alpha", "beta"):
        keys = [partition_key(cluster)]
        assert not may(account, "routing", "dynamodb:Query", TABLE, dynamodb__LeadingKeys=keys)
        for concern in ALL:
            queue = f"{SQS}:nodesmith-{cluster}-{concern}"
            assert may(account, "routing", "sqs:SendMessage", queue) is (concern == "interruption")


def test_images_are_looked_up_in_awss_own_parameters_unless_others_are_named(alpha: Template) -> None:
    parameter = "arn:aws:ssm:eu-west-1:{}:parameter/{}"
    public = parameter.format("", "aws/service/eks/optimized-ami/1.33/amazon-linux-2023/recommended")
    assert may(alpha, "readiness", "ssm:GetParameter", public)
    assert not may(alpha, "readiness", "ssm:GetParameter", parameter.format("111122223333", "password"))


def test_own_parameters_are_read_by_readiness_where_they_are_named(alpha: Template, beta: Template) -> None:
    for name in ("golden/image", "team-image"):
        parameter = f"arn:aws:ssm:eu-west-1:111122223333:parameter/{name}"
        assert [each for each in ALL if may(beta, each, "ssm:GetParameter", parameter)] == ["readiness"]
        assert not [each for each in ALL if may(beta, each, "ssm:GetParameter", f"{parameter}/other")]
        assert not [each for each in ALL if may(alpha, each, "ssm:GetParameter", parameter)]


def test_the_cluster_is_described_by_those_who_talk_to_it(alpha: Template) -> None:
    cluster = "arn:aws:eks:eu-west-1:111122223333:cluster/"
    asking = [each for each in ALL if may(alpha, each, "eks:DescribeCluster", f"{cluster}alpha")]
    assert asking == TALKING
    assert not [each for each in ALL if may(alpha, each, "eks:DescribeCluster", f"{cluster}beta")]


def test_code_in_a_vpc_can_not_make_network_interfaces_though_lambda_can(beta: Template) -> None:
    own = "arn:aws:lambda:eu-west-1:111122223333:function:nodesmith-beta-readiness"
    assert may(beta, "readiness", "ec2:CreateNetworkInterface", "*")
    assert not may(beta, "readiness", "ec2:CreateNetworkInterface", "*", lambda__SourceFunctionArn=own)
    assert may(beta, "readiness", "ec2:DescribeSubnets", "*", lambda__SourceFunctionArn=own)


def test_code_in_a_vpc_deletes_no_interfaces_but_garbage_collection_those_that_we_made(
    alpha: Template, beta: Template
) -> None:
    action, interface = (
        "ec2:DeleteNetworkInterface",
        "arn:aws:ec2:eu-west-1:111122223333:network-interface/eni-1",
    )
    tags = {
        "aws:ResourceTag/kubernetes.io/cluster/{}": "owned",
        "aws:ResourceTag/eks:eks-cluster-name": "{}",
        "aws:ResourceTag/karpenter.sh/nodepool": "default",
        "aws:ResourceTag/nodesmith.dev/managed-by": "{}",
    }
    for cluster, template in (("alpha", alpha), ("beta", beta)):
        ours: dict[str, Any] = {key.format(cluster): value.format(cluster) for key, value in tags.items()}
        theirs = {**ours, "aws:ResourceTag/nodesmith.dev/managed-by": "other"}
        karpenters = {key: value for key, value in ours.items() if not key.endswith("managed-by")}
        for concern in ALL:
            function = f"arn:aws:lambda:eu-west-1:111122223333:function:nodesmith-{cluster}-{concern}"
            code: dict[str, Any] = {"lambda:SourceFunctionArn": function}
            collects = concern == "garbagecollection"
            assert may(template, concern, action, interface, **code, **ours) is collects
            assert not may(template, concern, action, interface, **code, **theirs)
            assert not may(template, concern, action, interface, **code, **karpenters)


def test_every_function_has_a_role_of_its_own(templates: dict[str, Template]) -> None:
    for template in templates.values():
        roles = [each["Role"] for each in template.of_type("Lambda::Function").values()]
        assert len(roles) == len(set(roles))


def test_roles_stay_within_iams_size_for_the_longest_cluster_name(alpha: Template) -> None:
    longest = "n" * 100
    for role in alpha.of_type("IAM::Role"):
        document = json.dumps(alpha.statements(role), separators=(",", ":")).replace("alpha", longest)
        assert len(document) <= 10_240, role


def test_a_functions_metrics_are_read_by_itself_and_the_forwarder_and_no_other(alpha: Template) -> None:
    for concern in ALL:
        for other in ALL:
            is_own = concern == other and concern in MEASURED
            mine, theirs = (f"{BUCKET}/{metrics_key(cluster, other)}" for cluster in ("alpha", "beta"))
            assert may(alpha, concern, "s3:GetObject", mine, **OWN) is is_own
            assert not may(alpha, concern, "s3:GetObject", theirs, **OWN)


def test_the_forwarder_writes_one_object_reads_metrics_and_wakes_its_own_queues(alpha: Template) -> None:
    statements = alpha.statements(forwarder(alpha))
    assert sorted((action, each["Resource"]) for each in statements for action in each["Action"]) == [
        (
            "s3:GetObject",
            sorted(
                f"{BUCKET}/{key}"
                for key in (*(metrics_key("alpha", each) for each in MEASURED), on_sale_key("alpha"))
            ),
        ),
        ("s3:PutObject", [f"{BUCKET}/{snapshot_key('alpha')}"]),
        ("sqs:SendMessage", [f"{SQS}:nodesmith-alpha-{each}" for each in sorted(WOKEN)]),
    ]


def test_the_forwarders_role_is_for_one_service_account_of_one_cluster(alpha: Template) -> None:
    association = alpha.only("EKS::PodIdentityAssociation")
    assert association["RoleArn"] == f"{forwarder(alpha)}.Arn"
    trusted = alpha.resources[forwarder(alpha)]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert {action for each in trusted for action in _list(each["Action"])} == {
        "sts:AssumeRole",
        "sts:TagSession",
    }
    for statement in trusted:
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert statement["Condition"] == {
            "StringEquals": {
                "aws:RequestTag/eks-cluster-arn": "arn:aws:eks:eu-west-1:111122223333:cluster/alpha",
                "aws:RequestTag/eks-cluster-name": association["ClusterName"],
                "aws:RequestTag/kubernetes-namespace": association["Namespace"],
                "aws:RequestTag/kubernetes-service-account": association["ServiceAccount"],
            },
        }


def test_the_api_server_knows_writers_and_readers_and_not_provisioning(alpha: Template) -> None:
    groups = {
        each["PrincipalArn"]: each["KubernetesGroups"] for each in alpha.of_type("EKS::AccessEntry").values()
    }
    assert groups == {
        f"{alpha.role_of('disruption')}.Arn": ["nodesmith:writer"],
        f"{alpha.role_of('lifecycle')}.Arn": ["nodesmith:writer"],
        f"{alpha.role_of('termination')}.Arn": ["nodesmith:writer"],
        f"{alpha.role_of('readiness')}.Arn": ["nodesmith:writer"],
        f"{alpha.role_of('observation')}.Arn": ["nodesmith:reader"],
        f"{alpha.role_of('repair')}.Arn": ["nodesmith:writer"],
        f"{alpha.role_of('garbagecollection')}.Arn": ["nodesmith:writer"],
    }


def forwarder(template: Template) -> str:
    """Give the logical id of the role that the pod identity association names."""
    arn: str = template.only("EKS::PodIdentityAssociation")["RoleArn"]
    return arn.removesuffix(".Arn")


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
