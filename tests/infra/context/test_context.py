"""The schema of regions and clusters in cdk.json, and the messages for faults."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.context.clusters import ClusterContext
from infra.context.context import environments_region, read_context
from infra.context.regions import RegionContext, Vpc
from nodesmith.model.costs.commitmentsettings import CommitmentSettings, parse_commitment_settings
from nodesmith.registration import Registration, read_registration

KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TOPIC = "arn:aws:sns:us-east-1:111122223333:t"
VPC = "vpc-0123456789abcdef0"
GOOD: dict[str, Any] = {"name": "prod", "region": "us-east-1", "vpcId": VPC}
PRIVATE = {"subnetIds": ["subnet-0a0a0a0a"], "securityGroupIds": ["sg-0b0b0b0b"]}


def test_a_cluster_needs_only_a_name_a_region_and_its_vpc() -> None:
    found = read_context(None, [GOOD])
    registration = Registration("prod", VPC, ("KarpenterNodeRole-prod",))
    assert found.clusters == (ClusterContext("us-east-1", registration),)
    assert found.regions == {"us-east-1": RegionContext("us-east-1")}


def test_the_cdk_command_passes_both_as_text() -> None:
    regions = {"us-east-1": {"isolated": True}}
    assert read_context(json.dumps(regions), json.dumps([GOOD])) == read_context(regions, [GOOD])


@pytest.mark.parametrize("nothing", [(None, None), ({}, []), ("{}", "[]")])
def test_the_environments_region_is_deployed_if_no_region_is_named(nothing: tuple[Any, Any]) -> None:
    assert dict(read_context(*nothing, "eu-west-3").regions) == {"eu-west-3": RegionContext("eu-west-3")}


def test_the_cdk_commands_region_precedes_awss_own() -> None:
    both = {"CDK_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-2"}
    assert environments_region(both) == "eu-west-1"
    assert environments_region({"AWS_REGION": "eu-west-2", "CDK_DEFAULT_REGION": ""}) == "eu-west-2"
    assert environments_region({}) == "us-east-1"
    with pytest.raises(
        ValueError, match="AWS_REGION: expected an AWS region such as us-east-1, found 'home'"
    ):
        environments_region({"AWS_REGION": "home"})


def test_the_regions_of_both_are_deployed_and_no_other() -> None:
    regions = read_context({"eu-west-1": {}}, [GOOD], "ap-south-1").regions
    assert list(regions) == ["eu-west-1", "us-east-1"]


def test_every_key_is_read() -> None:
    region = {
        "nodeRoles": ["team/b"],
        "kmsKeyArns": [KEY],
        "ssmParameters": ["/golden/image"],
        "alarmTopicArn": TOPIC,
        "interruptionConcurrency": 2,
        "isolated": True,
        "tracing": True,
        "dashboard": True,
        "notifications": False,
        "vpcs": {"private": PRIVATE},
    }
    cluster = {
        **GOOD,
        "nodeRoles": ["team/b", "KarpenterNodeRole-prod"],
        "reachedFrom": "private",
        "settings": {"CLUSTER_VERSION": "1.33"},
    }
    found = read_context({"us-east-1": region}, [cluster])
    assert found.regions["us-east-1"] == RegionContext(
        name="us-east-1",
        node_roles=("team/b",),
        kms_key_arns=(KEY,),
        ssm_parameters=("/golden/image",),
        alarm_topic_arn=TOPIC,
        interruption_concurrency=2,
        isolated=True,
        tracing=True,
        dashboard=True,
        notifications=False,
        vpcs={"private": Vpc(("subnet-0a0a0a0a",), ("sg-0b0b0b0b",))},
    )
    (read,) = found.clusters
    assert read.registration == Registration(
        "prod", VPC, ("team/b", "KarpenterNodeRole-prod"), "private", {"CLUSTER_VERSION": "1.33"}
    )
    assert read_registration("prod", read.registration.to_json()) == read.registration


def test_commitments_are_a_setting_of_the_functions_and_name_the_payers_role() -> None:
    role = "arn:aws:iam::999988887777:role/read"
    entry = {"commitments": {"share": 0.5, "payerRoleArn": role}}
    found = read_context({"us-east-1": entry}, [GOOD]).regions["us-east-1"]
    assert found.payer_role_arn == role
    assert parse_commitment_settings(found.commitments) == CommitmentSettings(role, 0.5)
    assert (
        read_context({"us-east-1": {"commitments": True}}, [GOOD]).regions["us-east-1"].commitments == "true"
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "yes",
            "regions.us-east-1.commitments: expected true or an object with some of payerRoleArn, share, listed",
        ),
        ({"payerRole": "x"}, "commitments.payerRole: unknown, did you mean 'payerRoleArn'?"),
        (
            {"listed": [{"kind": "computeSavingsPlan", "hourly": -1}]},
            "commitments.listed: commitment 1: hourly is -1",
        ),
        ({"listed": [{"kind": "x"}] * 300}, "commitments: expected at most 2,500 characters"),
    ],
)
def test_a_fault_in_commitments_is_reported(setting: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_context({"us-east-1": {"commitments": setting}}, [GOOD])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "-x"}, "clusters[0].name: expected 2 to 64 letters, digits, - and _, found '-x'"),
        ({"name": "x"}, "clusters[0].name: expected 2 to 64 letters, digits, - and _, found 'x'"),
        ({"name": None}, "clusters[0].name: expected the name of an EKS cluster, found None"),
        (
            {"region": "Ireland"},
            "clusters[0].region: expected an AWS region such as us-east-1, found 'Ireland'",
        ),
        ({"nodeRole": "x"}, "clusters[0].nodeRole: unknown; did you mean nodeRoles?"),
        (
            {"kmsKeyArns": [KEY]},
            "clusters[0].kmsKeyArns: unknown; it belongs to the region: regions.us-east-1.kmsKeyArns",
        ),
        (
            {"nodeRoles": ["arn:aws:iam::1:role/x"]},
            "clusters[0].nodeRoles[0]: expected the name (not the ARN) of an IAM role, found 'arn:aws:iam::1:role/x'",
        ),
        (
            {"nodeRoles": ["KarpenterNodeRole-prd"]},
            (
                "clusters[0].nodeRoles[0]: expected KarpenterNodeRole-prod, or a role that "
                "regions.us-east-1.nodeRoles lists, found 'KarpenterNodeRole-prd'; did you mean KarpenterNodeRole-prod?"
            ),
        ),
        (
            {"vpcId": None},
            "clusters[0].vpcId: expected the id of the cluster's VPC, found None; `aws eks describe-cluster",
        ),
        (
            {"vpcId": "subnet-0a0a0a0a"},
            "clusters[0].vpcId: expected the id of the cluster's VPC, found 'subnet-0a0a0a0a'; `aws eks",
        ),
        (
            {"reachedFrom": "privat"},
            (
                "clusters[0].reachedFrom: expected the name of a VPC in regions.us-east-1.vpcs, found 'privat'; "
                "did you mean private?"
            ),
        ),
        (
            {"reachedFrom": "private", "region": "eu-west-1"},
            "clusters[0].reachedFrom: expected the name of a VPC in regions.eu-west-1.vpcs, found 'private'; known are",
        ),
        (
            {"settings": {"RESERVED_ENI": "1"}},
            "clusters[0].settings.RESERVED_ENI: unknown, did you mean 'RESERVED_ENIS'?",
        ),
        (
            {"settings": {"RESERVED_ENIS": "-1"}},
            "clusters[0].settings.RESERVED_ENIS: must not be negative, found '-1'",
        ),
        ({"settings": {"RESERVED_ENIS": 1}}, "clusters[0].settings.RESERVED_ENIS: expected text, found 1"),
        ({"settings": {"TABLE_NAME": "mine"}}, "clusters[0].settings.TABLE_NAME: unknown"),
        (
            {"name": "p" * 47},
            "clusters[0].nodeRoles: the default, KarpenterNodeRole-<name>, would have 65 characters, and IAM allows 64",
        ),
        (
            {"settings": {"CLUSTER_CA_BUNDLE": "x" * 4096}},
            "clusters[0]: a registration may have at most 4096 bytes, found 4",
        ),
    ],
)
def test_a_fault_of_a_cluster_names_what_is_expected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the message is what is tested
        read_context({"us-east-1": {"vpcs": {"private": PRIVATE}}}, [{**GOOD, **change}])
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([], ": expected an object with some of nodeRoles, kmsKeyArns,"),
        ({"nodeRole": []}, ".nodeRole: unknown; did you mean nodeRoles?"),
        (
            {"nodeRoles": ["arn:aws:iam::1:role/x"]},
            ".nodeRoles[0]: expected names (not ARNs) of IAM roles, found 'arn:aws:iam::1:role/x'",
        ),
        (
            {"kmsKeyArns": ["alias/ebs"]},
            ".kmsKeyArns[0]: expected ARNs of KMS keys (not aliases) in us-east-1, found 'alias/ebs'",
        ),
        (
            {"kmsKeyArns": [KEY.replace("us-east-1", "eu-west-1")]},
            ".kmsKeyArns[0]: expected ARNs of KMS keys (not aliases) in us-east-1, found 'arn",
        ),
        (
            {"ssmParameters": ["/golden/*"]},
            ".ssmParameters[0]: expected names (not ARNs) of SSM parameters, found '/golden/*'",
        ),
        (
            {"alarmTopicArn": "ops@example.com"},
            ".alarmTopicArn: expected the ARN of an SNS topic in us-east-1, found 'ops",
        ),
        (
            {"alarmTopicArn": TOPIC.replace("us-east-1", "eu-west-1")},
            ".alarmTopicArn: expected the ARN of an SNS topic in us-east-1, found 'arn",
        ),
        (
            {"interruptionConcurrency": 1},
            ".interruptionConcurrency: expected a number from 2 to 1000, found 1",
        ),
        ({"interruptionConcurrency": True}, ".interruptionConcurrency: expected a number from 2 to 1000,"),
        ({"tracing": "true"}, ".tracing: expected true or false, found 'true'"),
        ({"notifications": "no"}, ".notifications: expected true or false, found 'no'"),
        ({"vpcs": []}, ".vpcs: expected an object of VPCs by name, found []"),
        (
            {"vpcs": {"Private": PRIVATE}},
            (
                ".vpcs.Private: expected a name of at most 16 characters (a-z, 0-9, -) that starts with a letter, "
                "found 'Private'"
            ),
        ),
        (
            {"vpcs": {"private": {**PRIVATE, "securityGroupIds": []}}},
            ".vpcs.private.securityGroupIds: expected a list of security group ids, found []",
        ),
        (
            {"vpcs": {"private": {**PRIVATE, "subnetIds": ["sg-0b0b0b0b"]}}},
            ".vpcs.private.subnetIds[0]: expected subnet ids, found 'sg-0b0b0b0b'",
        ),
        (
            {"vpcs": {"private": None}},
            ".vpcs.private: expected an object with subnetIds and securityGroupIds, found None",
        ),
    ],
)
def test_a_fault_of_a_region_names_what_is_expected(entry: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the message is what is tested
        read_context({"us-east-1": entry}, [GOOD])
    assert str(raised.value).startswith(f"regions.us-east-1{message}")


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match=r"regions\.home: .*\nclusters\[0\]\.name.*\nclusters\[1\]\.region"):
        read_context({"home": {}}, [{**GOOD, "name": ""}, {**GOOD, "region": ""}])


@pytest.mark.parametrize(
    ("regions", "clusters", "message"),
    [
        (None, "prod", r"clusters: expected a JSON list, found 'prod' \("),
        (None, {}, r"clusters: expected a JSON list, found '{}'"),
        ("[]", None, r"regions: expected a JSON object, found '\[\]'"),
        (None, ["prod"], r"clusters\[0\]: expected an object with name, region and vpcId, found 'prod'"),
    ],
)
def test_a_value_of_the_wrong_type_is_shown(regions: Any, clusters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_context(regions, clusters)


def test_a_cluster_is_listed_once_per_region() -> None:
    assert len(read_context(None, [GOOD, {**GOOD, "region": "eu-west-1"}]).clusters) == 2
    with pytest.raises(ValueError, match=r"^clusters: prod in us-east-1 is listed twice$"):
        read_context(None, [GOOD, GOOD])


def test_two_clusters_whose_stacks_would_share_a_name_are_refused() -> None:
    one, other = ({**GOOD, "name": name} for name in ("a_b", "a-b"))
    assert read_context(None, [one]).clusters[0].stack_name == "nodesmith-us-east-1-a-b"
    with pytest.raises(ValueError, match=r"^clusters: a_b and a-b in us-east-1 would have the same stack"):
        read_context(None, [one, other])
