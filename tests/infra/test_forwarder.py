"""Two folders that must agree: what infra/ gives the forwarder and the functions, and what forwarder/ asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.infra.deployment import ROOT
from tests.infra.templates import Template


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "forwarder" / "base").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def test_the_role_is_given_to_the_account_that_the_forwarder_runs_as(alpha: Template) -> None:
    (deployment,) = (each for each in manifests() if each["kind"] == "Deployment")
    association = alpha.only("EKS::PodIdentityAssociation")
    assert association["Namespace"] == deployment["metadata"]["namespace"]
    assert association["ServiceAccount"] == deployment["spec"]["template"]["spec"]["serviceAccountName"]


def test_the_groups_of_the_functions_are_those_that_rbac_knows(alpha: Template) -> None:
    bound = {
        subject["name"]
        for each in manifests()
        if each["kind"] == "ClusterRoleBinding"
        for subject in each["subjects"]
        if subject["kind"] == "Group"
    }
    given = {
        group for each in alpha.of_type("EKS::AccessEntry").values() for group in each["KubernetesGroups"]
    }
    assert given == bound


def test_the_stack_tells_what_the_forwarder_must_be_told(alpha: Template) -> None:
    lines = (ROOT / "forwarder" / "forwarder.env").read_text().splitlines()
    empty = {line.removesuffix("=") for line in lines if re.fullmatch("[A-Z_]+=", line)}
    told = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() for name in alpha.outputs}
    assert empty == {"CLUSTER_NAME", "AWS_REGION"} | (told - {"FORWARDER_ROLE_ARN"})
