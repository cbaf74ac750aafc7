"""infra/ and forwarder/ must agree: what infra/ grants the forwarder and the functions, and what forwarder/ uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from nodesmith.model.functions import TALKING
from tests.infra.deployment import ACCOUNT, PRIVATE, REGION, ROOT
from tests.infra.templates import Template


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "forwarder" / "base").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def test_the_role_is_given_to_the_forwarders_service_account(alpha: Template, region: Template) -> None:
    (deployment,) = (each for each in manifests() if each["kind"] == "Deployment")
    association = alpha.only("EKS::PodIdentityAssociation")
    assert association["Namespace"] == deployment["metadata"]["namespace"]
    assert association["ServiceAccount"] == deployment["spec"]["template"]["spec"]["serviceAccountName"]
    role = f"nodesmith-forwarder-{REGION}"
    assert association["RoleArn"] == f"arn:aws:iam::{ACCOUNT}:role/{role}"
    assert region.role_named(role)


def test_each_cluster_admits_the_functions_of_the_place_it_is_reached_from(
    alpha: Template, beta: Template, region: Template
) -> None:
    for template, vpc in ((alpha, ""), (beta, PRIVATE)):
        entries = template.of_type("EKS::AccessEntry").values()
        named = {each["PrincipalArn"].rpartition("/")[2] for each in entries}
        roles = region.of_type("IAM::Role")
        assert named == {roles[region.role_of(concern, vpc)]["RoleName"] for concern in TALKING}
        assert {each["Type"] for each in entries} == {"STANDARD"}


def test_functions_are_users_with_the_cluster_in_their_names_and_in_no_group(
    alpha: Template,
) -> None:
    entries = alpha.of_type("EKS::AccessEntry").values()
    assert not [each for each in entries if "KubernetesGroups" in each or "AccessPolicies" in each]
    users = {each["PrincipalArn"].rpartition("role/")[2]: each["Username"] for each in entries}
    reader = f"nodesmith-observation-{REGION}"
    assert users.pop(reader) == "nodesmith:reader:{{SessionName}}"
    assert set(users.values()) == {"nodesmith:writer:{{SessionName}}"}


def test_the_users_are_those_that_rbac_binds(alpha: Template) -> None:
    bound = {
        subject["name"]
        for each in manifests()
        if each["kind"] == "ClusterRoleBinding"
        for subject in each["subjects"]
        if subject["kind"] == "User"
    }
    given = {each["Username"].rpartition(":")[0] for each in alpha.of_type("EKS::AccessEntry").values()}
    assert {name.rpartition(":")[0] for name in bound} == given


def test_the_stack_outputs_the_forwarders_settings(region: Template) -> None:
    lines = (ROOT / "forwarder" / "forwarder.env").read_text().splitlines()
    empty = {line.removesuffix("=") for line in lines if re.fullmatch("[A-Z_]+=", line)}
    reported = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() for name in region.outputs}
    assert empty - reported <= {"CLUSTER_NAME", "AWS_REGION", "REACHED_FROM", "ALLOCATION_LABELS"}
    assert reported - empty == {"FORWARDER_ROLE_ARN", "RELEASE", "VERSION"}
