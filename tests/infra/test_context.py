"""What cdk.json may say of clusters, and what it is told when that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra import names
from infra.context import ClusterContext, Vpc, read_clusters
from nodesmith.settings import LONGEST_NAME

KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
VPC = "vpc-0123456789abcdef0"
GOOD: dict[str, Any] = {"name": "prod", "region": "us-east-1", "vpcId": VPC}


def test_a_cluster_needs_a_name_a_region_and_its_vpc_only() -> None:
    assert read_clusters([GOOD]) == (ClusterContext("prod", "us-east-1", VPC, ("KarpenterNodeRole-prod",)),)


def test_the_cdk_command_gives_clusters_as_text() -> None:
    assert read_clusters(json.dumps([GOOD])) == read_clusters([GOOD])


def test_everything_that_can_be_said_is_read() -> None:
    vpc = {"subnetIds": ["subnet-0a0a0a0a"], "securityGroupIds": ["sg-0b0b0b0b"]}
    entry = {
        **GOOD,
        "nodeRoles": ["a", "team/b"],
        "kmsKeyArns": [KEY],
        "ssmParameters": ["/golden/image"],
        "vpc": vpc,
        "settings": {"CLUSTER_VERSION": "1.33"},
        "alarmTopicArn": "arn:aws:sns:us-east-1:111122223333:t",
    }
    assert read_clusters([entry]) == (
        ClusterContext(
            name="prod",
            region="us-east-1",
            vpc_id=VPC,
            node_roles=("a", "team/b"),
            kms_key_arns=(KEY,),
            ssm_parameters=("/golden/image",),
            vpc=Vpc(("subnet-0a0a0a0a",), ("sg-0b0b0b0b",)),
            settings={"CLUSTER_VERSION": "1.33"},
            alarm_topic_arn="arn:aws:sns:us-east-1:111122223333:t",
        ),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "-x"}, "clusters[0].name: expected the name of an EKS cluster, found '-x'"),
        (
            {"region": "Ireland"},
            "clusters[0].region: expected an AWS region such as us-east-1, found 'Ireland'",
        ),
        ({"nodeRole": "x"}, "clusters[0].nodeRole: unknown; did you mean nodeRoles?"),
        (
            {"nodeRoles": ["arn:aws:iam::1:role/x"]},
            "clusters[0].nodeRoles[0]: expected names (not ARNs) of IAM roles, found 'arn:aws:iam::1:role/x'",
        ),
        (
            {"vpcId": None},
            "clusters[0].vpcId: expected the id of the cluster's VPC, as `aws eks describe-cluster --name prod",
        ),
        (
            {"vpcId": "subnet-0a0a0a0a"},
            "clusters[0].vpcId: expected the id of the cluster's VPC, as `aws eks",
        ),
        (
            {"kmsKeyArns": ["alias/ebs"]},
            "clusters[0].kmsKeyArns[0]: expected ARNs of KMS keys (not aliases) in us-east-1, found 'alias/ebs'",
        ),
        (
            {"kmsKeyArns": [KEY.replace("us-east-1", "eu-west-1")]},
            "clusters[0].kmsKeyArns[0]: expected ARNs of KMS keys (not aliases) in us-east-1, found 'arn",
        ),
        (
            {"ssmParameters": ["/golden/*"]},
            "clusters[0].ssmParameters[0]: expected names (not ARNs) of SSM parameters, found '/golden/*'",
        ),
        (
            {"vpc": {"subnetIds": ["subnet-0a0a0a0a"]}},
            "clusters[0].vpc.securityGroupIds: expected a list of security group ids, found None",
        ),
        (
            {"settings": {"RESERVED_ENI": "1"}},
            "clusters[0].settings.RESERVED_ENI: unknown; did you mean RESERVED_ENIS?",
        ),
        (
            {"settings": {"RESERVED_ENIS": "-1"}},
            "clusters[0].settings.RESERVED_ENIS: must not be negative, found '-1'",
        ),
        ({"settings": {"RESERVED_ENIS": 1}}, "clusters[0].settings.RESERVED_ENIS: expected text, found 1"),
        ({"settings": {"TABLE_NAME": "mine"}}, "clusters[0].settings.TABLE_NAME: unknown;"),
        (
            {"interruptionConcurrency": 1},
            "clusters[0].interruptionConcurrency: expected a number from 2 to 1000, found 1",
        ),
        (
            {"alarmTopicArn": "ops@example.com"},
            "clusters[0].alarmTopicArn: expected the ARN of an SNS topic in us-east-1, found 'ops",
        ),
        (
            {"alarmTopicArn": "arn:aws:sns:eu-west-1:111122223333:on-call"},
            "clusters[0].alarmTopicArn: expected the ARN of an SNS topic in us-east-1, found 'arn",
        ),
    ],
)
def test_a_fault_is_named_with_what_would_be_right(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the message is what is tested
        read_clusters([{**GOOD, **change}])
    assert str(raised.value).startswith(message)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"clusters\[0\]\.name.*\nclusters\[1\]\.region"):
        read_clusters([{**GOOD, "name": ""}, {**GOOD, "region": ""}])


def test_text_that_is_no_json_is_shown() -> None:
    with pytest.raises(ValueError, match=r"clusters: expected a JSON list, found 'prod' \("):
        read_clusters("prod")


@pytest.mark.parametrize("raw", [None, [], {}])
def test_no_clusters_at_all_is_a_fault(raw: Any) -> None:
    with pytest.raises(ValueError, match="at least one cluster"):
        read_clusters(raw)


def test_a_cluster_is_listed_once_per_region() -> None:
    assert len(read_clusters([GOOD, {**GOOD, "region": "eu-west-1"}])) == 2
    with pytest.raises(ValueError, match="prod in us-east-1 is listed twice"):
        read_clusters([GOOD, GOOD])


def test_long_cluster_names_are_cut_to_names_that_stay_different() -> None:
    long = ["n" * 99 + end for end in "ab"]
    made = {names.physical_name(cluster, "provisioning-dead") for cluster in long}
    assert len(made) == 2
    assert {len(name) for name in made} == {LONGEST_NAME}
    assert names.physical_name("prod", "lifecycle") == "nodesmith-prod-lifecycle"
