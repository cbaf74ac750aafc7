"""What may cost money or nodes, as IAM evaluates it: launching, tagging, passing roles and terminating."""

from __future__ import annotations

from typing import Any

import pytest

from infra.functions.concerns import CLUSTER_CONCERNS
from infra.permissions.launching import EBS_KEY_USES
from nodesmith.adapters.ownedresources import profile_name
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from tests.infra.deployment import OTHER_VPC, REGION, VOLUME_KEY, VPC
from tests.infra.iam import Context, session
from tests.infra.iam import allows as allows_without_session
from tests.infra.templates import Template
from tests.infra.universe import tags

BUYING = ["provisioning", "interruption", "disruption"]
ALL = [concern.name for concern in CLUSTER_CONCERNS]
EC2 = "arn:aws:ec2:eu-west-1:111122223333"
PROFILE = "arn:aws:iam::111122223333:instance-profile/"


SESSION = session("alpha", VPC)


def allows(
    statements: list[dict[str, Any]], action: str, resource: str, context: Context | None = None
) -> bool:
    """Evaluate for alpha's session, and check that the call is denied without a session."""
    assert not allows_without_session(statements, action, resource, context)
    return allows_without_session(statements, action, resource, {**(context or {}), **SESSION})


def may(template: Template, concern: str, action: str, resource: str, **context: str) -> bool:
    """Ask for the role of a concern's function in alpha's session; write `__` for `:` in condition keys."""
    asked = {key.replace("__", ":"): each for key, each in context.items()}
    return allows(template.statements(template.role_of(concern)), action, resource, asked)


@pytest.mark.parametrize(
    "kind", ["fleet", "instance", "volume", "network-interface", "spot-instances-request"]
)
def test_launched_resources_must_carry_the_clusters_tags(region: Template, kind: str) -> None:
    statements = region.statements(region.role_of("provisioning"))
    resource = f"{EC2}:{kind}/1"
    assert allows(statements, "ec2:RunInstances", resource, tags("Request", "alpha"))
    assert not allows(statements, "ec2:RunInstances", resource, tags("Request", "beta"))
    for missing in ("nodesmith.dev/managed-by", "eks:eks-cluster-name", "karpenter.sh/nodepool"):
        fewer = {key: each for key, each in tags("Request", "alpha").items() if not key.endswith(missing)}
        assert not allows(statements, "ec2:RunInstances", resource, fewer)


def test_instances_are_launched_only_from_the_clusters_own_templates(region: Template) -> None:
    statements = region.statements(region.role_of("provisioning"))
    template = f"{EC2}:launch-template/lt-1"
    assert allows(statements, "ec2:CreateFleet", template, tags("Resource", "alpha"))
    assert not allows(statements, "ec2:CreateFleet", template, tags("Resource", "beta"))
    assert not allows(statements, "ec2:CreateFleet", template)
    assert allows(statements, "ec2:CreateLaunchTemplate", template, tags("Request", "alpha"))


@pytest.mark.parametrize("concern", BUYING)
@pytest.mark.parametrize("action", ["ec2:CreateFleet", "ec2:RunInstances"])
@pytest.mark.parametrize("kind", ["subnet", "security-group"])
@pytest.mark.parametrize("owner", ["111122223333", "999988887777"])
def test_nodes_launch_only_in_the_clusters_vpc_whichever_account_owns_it(
    region: Template, concern: str, action: str, kind: str, owner: str
) -> None:
    resource, vpc = f"arn:aws:ec2:{REGION}:{owner}:{kind}/1", f"arn:aws:ec2:{REGION}:{owner}:vpc/"
    assert may(region, concern, action, resource, ec2__Vpc=f"{vpc}{VPC}")
    assert not may(region, concern, action, resource, ec2__Vpc=f"{vpc}{OTHER_VPC}")
    assert not may(region, concern, action, resource)


@pytest.mark.parametrize("action", EBS_KEY_USES)
def test_buying_concerns_use_the_named_keys_for_volumes_only(
    region: Template, plain: Template, action: str
) -> None:
    through: dict[str, str] = {"kms__ViaService": f"ec2.{REGION}.amazonaws.com"}
    for concern in ALL:
        assert may(region, concern, action, VOLUME_KEY, **through) is (concern in BUYING)
        assert not may(region, concern, action, VOLUME_KEY[:-1], **through)
        assert not may(region, concern, action, VOLUME_KEY)
        assert not may(region, concern, action, VOLUME_KEY, kms__ViaService=f"s3.{REGION}.amazonaws.com")
        assert not may(plain, concern, action, VOLUME_KEY, **through)


def test_buying_concerns_grant_the_named_keys_to_volumes_only(region: Template, plain: Template) -> None:
    action, through = "kms:CreateGrant", {"kms__ViaService": f"ec2.{REGION}.amazonaws.com"}
    for concern in ALL:
        for_aws = may(region, concern, action, VOLUME_KEY, **through, kms__GrantIsForAWSResource="true")
        assert for_aws is (concern in BUYING)
        assert not may(region, concern, action, VOLUME_KEY, **through, kms__GrantIsForAWSResource="false")
        assert not may(region, concern, action, VOLUME_KEY, **through)
        assert not may(plain, concern, action, VOLUME_KEY, **through, kms__GrantIsForAWSResource="true")


def test_a_request_with_the_clusters_tags_cannot_use_anothers_template(region: Template) -> None:
    statements = region.statements(region.role_of("provisioning"))
    both = tags("Resource", "beta") | tags("Request", "alpha")
    for action in ("ec2:CreateFleet", "ec2:RunInstances"):
        assert not allows(statements, action, f"{EC2}:launch-template/lt-1", both)


def test_provisioning_tags_instances_only_when_it_creates_them(region: Template) -> None:
    statements = region.statements(region.role_of("provisioning"))
    given = tags("Request", "alpha")
    assert allows(
        statements, "ec2:CreateTags", f"{EC2}:instance/i-1", given | {"ec2:CreateAction": "CreateFleet"}
    )
    assert not allows(statements, "ec2:CreateTags", f"{EC2}:instance/i-1", given)


def test_only_lifecycle_names_instances_and_only_the_clusters_own(
    region: Template,
) -> None:
    instance, ours = f"{EC2}:instance/i-1", tags("Resource", "alpha")
    naming: dict[str, str | list[str]] = {"aws:TagKeys": ["Name", "karpenter.sh/nodeclaim"]}
    for concern in ALL:
        statements = region.statements(region.role_of(concern))
        found = allows(statements, "ec2:CreateTags", instance, ours | naming)
        assert found is (concern == "lifecycle"), concern
    statements = region.statements(region.role_of("lifecycle"))
    assert not allows(statements, "ec2:CreateTags", instance, tags("Resource", "beta") | naming)
    karpenters = {key: each for key, each in ours.items() if not key.endswith("managed-by")}
    assert not allows(statements, "ec2:CreateTags", instance, karpenters | naming)
    for key in ("eks:eks-cluster-name", "kubernetes.io/cluster/alpha", "team"):
        assert not allows(statements, "ec2:CreateTags", instance, ours | {"aws:TagKeys": ["Name", key]})
    assert not allows(statements, "ec2:CreateTags", f"{EC2}:volume/vol-1", ours | naming)


MADE = {
    "ec2:CreateFleet": f"{EC2}:fleet/1",
    "ec2:RunInstances": f"{EC2}:instance/i-1",
    "ec2:CreateLaunchTemplate": f"{EC2}:launch-template/lt-1",
}


@pytest.mark.parametrize("action", MADE)
def test_only_buying_concerns_launch(region: Template, action: str) -> None:
    for concern in ALL:
        statements = region.statements(region.role_of(concern))
        found = allows(statements, action, MADE[action], tags("Request", "alpha"))
        assert found is (concern in BUYING), concern


@pytest.mark.parametrize("action", MADE)
def test_readiness_creates_only_what_is_tagged_for_dry_runs(region: Template, action: str) -> None:
    statements = region.statements(region.role_of("readiness"))
    own = tags("Request", "alpha") | {"aws:RequestTag/karpenter.sh/nodepool": "validation"}
    assert allows(statements, action, MADE[action], own)
    assert not allows(statements, action, MADE[action], tags("Request", "alpha"))
    template = f"{EC2}:launch-template/lt-1"
    assert not allows(statements, "ec2:RunInstances", template, tags("Resource", "alpha"))


def test_buying_concerns_describe_instances(region: Template) -> None:
    for concern in BUYING:
        assert may(region, concern, "ec2:DescribeInstances", "*", aws__RequestedRegion=REGION), concern


@pytest.mark.parametrize("concern", [*BUYING, "readiness"])
def test_only_the_clusters_and_the_regions_node_roles_are_passed_to_instances(
    region: Template, plain: Template, concern: str
) -> None:
    role = "arn:aws:iam::111122223333:role"
    to_ec2, to_lambda = (
        {"iam__PassedToService": "ec2.amazonaws.com"},
        {"iam__PassedToService": "lambda.amazonaws.com"},
    )
    own = f"{role}/KarpenterNodeRole-alpha"
    assert may(region, concern, "iam:PassRole", own, **to_ec2)
    assert may(region, concern, "iam:PassRole", f"{role}/gpu-nodes", **to_ec2)
    assert not may(plain, concern, "iam:PassRole", f"{role}/gpu-nodes", **to_ec2)
    assert not may(region, concern, "iam:PassRole", f"{role}/KarpenterNodeRole-beta", **to_ec2)
    assert not may(region, concern, "iam:PassRole", f"{role}/Admin", **to_ec2)
    assert not may(region, concern, "iam:PassRole", own, **to_lambda)


def test_instance_profiles_are_created_in_the_clusters_path_with_its_tags(region: Template) -> None:
    statements = region.statements(region.role_of("readiness"))
    for cluster in ("alpha", "beta"):
        profile, own = f"{PROFILE}nodesmith/{REGION}/{cluster}/uid/{cluster}_0a", cluster == "alpha"
        for action in ("CreateInstanceProfile", "TagInstanceProfile"):
            assert allows(statements, f"iam:{action}", profile, tags("Request", "alpha")) is own
            assert not allows(statements, f"iam:{action}", profile, tags("Request", "beta"))
        assert allows(statements, "iam:AddRoleToInstanceProfile", profile, tags("Resource", "alpha")) is own
        assert not allows(statements, "iam:AddRoleToInstanceProfile", profile, tags("Resource", "beta"))
        assert allows(statements, "iam:GetInstanceProfile", profile) is own


def test_a_missing_profile_may_be_read(region: Template) -> None:
    nodeclass = EC2NodeClass("default", role="KarpenterNodeRole-alpha")
    missing = PROFILE + profile_name(nodeclass, "alpha", REGION)
    assert may(region, "readiness", "iam:GetInstanceProfile", missing)


@pytest.mark.parametrize("concern", ALL)
def test_only_concerns_that_end_nodes_terminate_and_only_the_clusters_own(
    region: Template, concern: str
) -> None:
    instance, statements = f"{EC2}:instance/i-1", region.statements(region.role_of(concern))
    own = allows(statements, "ec2:TerminateInstances", instance, tags("Resource", "alpha"))
    assert own is (concern in {"lifecycle", "termination", "garbagecollection"})
    assert not allows(statements, "ec2:TerminateInstances", instance, tags("Resource", "beta"))
    assert not allows(statements, "ec2:TerminateInstances", instance)
    karpenters = tags("Resource", "alpha")
    del karpenters["aws:ResourceTag/nodesmith.dev/managed-by"]
    assert not allows(statements, "ec2:TerminateInstances", instance, karpenters)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("TerminateInstances", "instance"),
        ("DeleteLaunchTemplate", "launch-template"),
        ("DeleteVolume", "volume"),
        ("DeleteNetworkInterface", "network-interface"),
    ],
)
def test_garbage_collection_deletes_only_what_nodesmith_made_for_the_cluster(
    region: Template, action: str, kind: str
) -> None:
    resource = f"{EC2}:{kind}/1"
    for concern in ALL:
        collects = concern == "garbagecollection"
        statements = region.statements(region.role_of(concern))
        if action != "TerminateInstances":
            assert allows(statements, f"ec2:{action}", resource, tags("Resource", "alpha")) is collects
        if not collects:
            continue
        for missing in tags("Resource", "alpha").keys() & _OWNERSHIP:
            fewer = {key: value for key, value in tags("Resource", "alpha").items() if key != missing}
            assert not allows(statements, f"ec2:{action}", resource, fewer)
            assert not allows(statements, f"ec2:{action}", resource, {**fewer, missing: "other"})


_OWNERSHIP = {
    "aws:ResourceTag/eks:eks-cluster-name",
    "aws:ResourceTag/nodesmith.dev/managed-by",
}


def test_instance_profiles_are_deleted_in_the_clusters_path_with_its_tags(region: Template) -> None:
    for concern in ALL:
        statements = region.statements(region.role_of(concern))
        for action in ("iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"):
            for cluster in ("alpha", "beta"):
                profile = f"{PROFILE}nodesmith/{REGION}/{cluster}/uid/{cluster}_0a"
                own = cluster == "alpha" and concern == "garbagecollection"
                assert allows(statements, action, profile, tags("Resource", cluster)) is own
            assert not allows(statements, action, f"{PROFILE}somebody-elses", tags("Resource", "alpha"))
            assert not allows(statements, action, f"{PROFILE}nodesmith/{REGION}/alpha/uid/alpha_0a")
