"""The application as a whole: synthesis is deterministic, clusters are separate, and cdk-nag passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_cdk import aws_s3 as s3

from infra.application import application
from infra.context.context import read_context
from infra.functions.function import Code
from infra.stacks.region import RegionStack
from nodesmith import __version__
from nodesmith.registration import Registration, parameter_name, read_registration
from tests.infra.deployment import (
    ACCOUNT,
    CLUSTERS,
    PLAIN_REGION,
    PRIVATE,
    REGION,
    ROOT,
    TOPIC,
    VPC,
    synthesise,
)
from tests.infra.templates import Template


def test_synthesis_is_deterministic(code: Code, templates: dict[str, Template], tmp_path: Path) -> None:
    again = {
        path.name: path.read_text() for path in synthesise(code, CLUSTERS, tmp_path).glob("*.template.json")
    }
    assert again == {f"{name}.template.json": template.text for name, template in templates.items()}


def test_no_stack_mentions_another_stacks_cluster(
    alpha: Template, beta: Template, region: Template, plain: Template
) -> None:
    assert "beta" not in alpha.text
    assert "alpha" not in beta.text
    for template in (region, plain):
        assert not [each["name"] for each in CLUSTERS if each["name"] in template.text]


def test_a_region_without_clusters_is_deployed(code: Code, tmp_path: Path) -> None:
    application({}, code, tmp_path, "eu-north-1").synth()
    assert [path.name for path in tmp_path.glob("*.template.json")] == ["nodesmith-eu-north-1.template.json"]


def test_a_cluster_with_an_underscore_in_its_name_has_a_stack(code: Code, tmp_path: Path) -> None:
    cluster = {"name": "team_a", "region": PLAIN_REGION, "vpcId": VPC}
    made = application({"clusters": [cluster]}, code, tmp_path).synth().stacks
    assert f"nodesmith-{PLAIN_REGION}-team-a" in [stack.stack_name for stack in made]


def test_no_stack_imports_from_another(templates: dict[str, Template]) -> None:
    for template in templates.values():
        assert "Fn::ImportValue" not in template.text
        assert not [name for name, output in template.outputs.items() if "Export" in output]


def test_templates_name_no_account(templates: dict[str, Template]) -> None:
    for template in templates.values():
        assert ACCOUNT not in template.text.replace(TOPIC, "")


def test_a_regions_outputs_are_its_version_and_what_forwarders_need(region: Template) -> None:
    reported = {name: output["Value"] for name, output in region.outputs.items()}
    forwarder = region.role_named(f"nodesmith-forwarder-{REGION}")
    assert reported == {
        "BucketName": f"nodesmith-{ACCOUNT}-{REGION}-an",
        "TableName": "nodesmith",
        "Release": region.function("dispatch")["Environment"]["Variables"]["RELEASE"],
        "ForwarderRoleArn": f"{forwarder}.Arn",
        "Version": __version__,
    }


def test_a_clusters_stack_holds_the_registration_from_cdk_json(alpha: Template, beta: Template) -> None:
    parameter = alpha.only("SSM::Parameter")
    assert (parameter["Name"], parameter["Type"], parameter["Tier"]) == (
        parameter_name("alpha"),
        "String",
        "Standard",
    )
    assert read_registration("alpha", parameter["Value"]) == Registration(
        "alpha", VPC, ("KarpenterNodeRole-alpha", "gpu-nodes"), "", {"RESERVED_ENIS": "1"}
    )
    assert read_registration("beta", beta.only("SSM::Parameter")["Value"]).reached_from == PRIVATE


def test_cdk_nag_rejects_what_breaks_its_rules(code: Code, tmp_path: Path) -> None:
    app = application({"clusters": CLUSTERS[2:]}, code, tmp_path)
    region = app.node.find_child(f"nodesmith-{PLAIN_REGION}")
    assert isinstance(region, RegionStack)
    s3.Bucket(region, "Careless")
    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        app.synth()


def test_the_committed_context_names_no_region_and_no_cluster() -> None:
    context = json.loads((ROOT / "cdk.json").read_text())
    found = read_context(context["context"]["regions"], context["context"]["clusters"])
    assert (list(found.regions), found.clusters) == (["us-east-1"], ())
    assert Path(context["app"].split()[1]) == Path("app.py")
