"""The application as a whole: the same every time, each cluster by itself, and under cdk-nag's eyes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_cdk import aws_s3 as s3
from infra.account import AccountStack

from infra.application import application
from infra.context import read_clusters
from infra.functions import Code
from tests.infra.deployment import CLUSTERS, ROOT, synthesise
from tests.infra.templates import Template


def test_synthesis_is_deterministic(code: Code, templates: dict[str, Template], tmp_path: Path) -> None:
    again = {
        path.name: path.read_text() for path in synthesise(code, CLUSTERS, tmp_path).glob("*.template.json")
    }
    assert again == {f"{name}.template.json": template.text for name, template in templates.items()}


def test_no_stack_of_one_cluster_mentions_the_other(alpha: Template, beta: Template) -> None:
    assert "beta" not in alpha.text
    assert "alpha" not in beta.text


def test_no_stack_imports_from_another(templates: dict[str, Template]) -> None:
    for template in templates.values():
        assert "Fn::ImportValue" not in template.text
        assert not [name for name, output in template.outputs.items() if "Export" in output]


def test_templates_name_no_account(templates: dict[str, Template]) -> None:
    for template in templates.values():
        assert "111122223333" not in template.text.replace("arn:aws:sns:eu-west-1:111122223333:on-call", "")


def test_a_cluster_says_what_its_forwarder_needs_to_know(alpha: Template) -> None:
    assert sorted(alpha.outputs) == [
        "BucketName",
        "DisruptionQueueUrl",
        "ForwarderRoleArn",
        "LifecycleQueueUrl",
        "ProvisioningQueueUrl",
        "ReadinessQueueUrl",
        "TerminationQueueUrl",
    ]


def test_cdk_nag_stops_what_breaks_its_rules(code: Code, tmp_path: Path) -> None:
    app = application({"clusters": CLUSTERS[:1]}, code, tmp_path)
    account = app.node.find_child("nodesmith-eu-west-1")
    assert isinstance(account, AccountStack)
    s3.Bucket(account, "Careless")
    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        app.synth()


def test_the_committed_context_describes_the_example_cluster() -> None:
    context = json.loads((ROOT / "cdk.json").read_text())
    (example,) = read_clusters(context["context"]["clusters"])
    assert (example.name, example.region) == ("example", "us-east-1")
    assert Path(context["app"].split()[1]) == Path("app.py")
