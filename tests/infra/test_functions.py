"""What runs: every function, its platform, its environment and its layers."""

from __future__ import annotations

import runpy
from dataclasses import fields
from typing import Any

import pytest
from aws_cdk import aws_lambda

from infra.concerns import CLUSTER_CONCERNS
from infra.functions import RUNTIME
from layers.vendor.build import LAMBDA
from nodesmith.settings import Settings, read_settings
from tests.infra.deployment import REGION, ROOT, TALKING
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
SHARED = ["catalog", "routing"]
QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333"


def every_function(templates: dict[str, Template]) -> list[dict[str, Any]]:
    return [each for template in templates.values() for each in template.of_type("Lambda::Function").values()]


def layer_names(function: dict[str, Any]) -> list[str]:
    return [each.partition("Layer")[0] for each in function["Layers"]]


def test_there_is_one_function_per_concern_and_cluster_and_two_for_all(
    templates: dict[str, Template],
) -> None:
    names = sorted(each["FunctionName"] for each in every_function(templates))
    per_cluster = [f"nodesmith-{cluster}-{concern}" for cluster in ("alpha", "beta") for concern in ALL]
    assert names == sorted([*per_cluster, "nodesmith-catalog", "nodesmith-routing"])


def test_every_function_is_arm64_traced_and_on_the_newest_python(templates: dict[str, Template]) -> None:
    versions = [name.split("_") for name in dir(aws_lambda.Runtime) if name.startswith("PYTHON_3")]
    newest = max(int(minor) for _, _, minor in versions)
    for each in every_function(templates):
        assert each["Architectures"] == ["arm64"]
        assert each["Runtime"] == f"python3.{newest}"
        assert each["Handler"] == "handler.handler"
        assert each["TracingConfig"] == {"Mode": "Active"}


def test_functions_that_send_hints_may_be_in_loops_and_no_others(templates: dict[str, Template]) -> None:
    """Lambda ends a chain function → SQS → function after 16 hops, unless the function says RecursiveLoop Allow."""
    allowed, sending = set(), set()
    for template in templates.values():
        for each in template.of_type("Lambda::Function").values():
            name, role = each["FunctionName"], each["Role"].removesuffix(".Arn")
            if each.get("RecursiveLoop") == "Allow":
                allowed.add(name)
            if any("sqs:SendMessage" in statement["Action"] for statement in template.statements(role)):
                sending.add(name)
    assert {"nodesmith-alpha-termination", "nodesmith-beta-lifecycle"} <= sending
    assert "nodesmith-catalog" not in sending
    assert allowed == sending


def test_the_layers_are_built_for_the_python_that_runs_them() -> None:
    assert RUNTIME.name == f"python{LAMBDA.python}"


@pytest.mark.parametrize("concern", [*ALL, *SHARED])
def test_the_handler_starts_in_the_environment_that_it_is_given(
    alpha: Template, account: Template, concern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = account if concern in SHARED else alpha
    for about in fields(Settings):
        monkeypatch.delenv(about.metadata["env"], raising=False)
    environment = deployed(template, template.function(concern)["Environment"]["Variables"])
    for name, value in {**environment, "AWS_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    handler = runpy.run_path(str(ROOT / "functions" / concern / "handler.py"))["handler"]
    assert callable(handler)


def test_a_function_of_a_cluster_reads_its_settings_from_its_environment(beta: Template) -> None:
    for concern in ALL:
        environment = beta.function(concern)["Environment"]["Variables"]
        assert read_settings({**deployed(beta, environment), "AWS_REGION": REGION}) == Settings(
            cluster_name="beta",
            region=REGION,
            table_name="nodesmith",
            bucket_name="nodesmith-111122223333-eu-west-1-an",
            default_node_role="KarpenterNodeRole-beta",
            provisioning_queue_url=f"{QUEUE}/nodesmith-beta-provisioning",
            lifecycle_queue_url=f"{QUEUE}/nodesmith-beta-lifecycle",
            readiness_queue_url=f"{QUEUE}/nodesmith-beta-readiness",
            termination_queue_url=f"{QUEUE}/nodesmith-beta-termination",
            disruption_queue_url=f"{QUEUE}/nodesmith-beta-disruption",
            reserved_enis=1,
            isolated_vpc=True,
        )


def test_the_first_of_a_clusters_node_roles_is_the_default(alpha: Template) -> None:
    environment = alpha.function("readiness")["Environment"]["Variables"]
    assert environment["DEFAULT_NODE_ROLE"] == "alpha-nodes"


def test_the_catalog_function_serves_no_cluster_in_particular(account: Template) -> None:
    environment = account.function("catalog")["Environment"]["Variables"]
    settings = read_settings({**environment, "AWS_REGION": REGION})
    assert settings == Settings(REGION, bucket_name="nodesmith-111122223333-eu-west-1-an")


def test_routing_serves_no_cluster_in_particular_and_knows_its_own_queue(account: Template) -> None:
    environment = deployed(account, account.function("routing")["Environment"]["Variables"])
    assert read_settings({**environment, "AWS_REGION": REGION}) == Settings(
        REGION, table_name="nodesmith", routing_queue_url=f"{QUEUE}/nodesmith-routing"
    )


def test_no_function_has_a_variable_that_nobody_reads(templates: dict[str, Template]) -> None:
    read = {about.metadata["env"] for about in fields(Settings)}
    for each in every_function(templates):
        assert each["Environment"]["Variables"].keys() <= read


def test_table_and_bucket_of_the_environment_are_those_of_the_account(
    account: Template, alpha: Template
) -> None:
    environment = alpha.function("provisioning")["Environment"]["Variables"]
    assert environment["TABLE_NAME"] == account.only("DynamoDB::Table")["TableName"]
    prefix = account.only("S3::Bucket")["BucketNamePrefix"]
    assert environment["BUCKET_NAME"] == f"{prefix}-111122223333-{REGION}-an"
    catalog = account.function("catalog")["Environment"]["Variables"]
    assert catalog["BUCKET_NAME"] == environment["BUCKET_NAME"]


def test_the_kubernetes_client_is_on_no_hot_path_and_only_who_decides_carries_the_solver(
    alpha: Template, account: Template
) -> None:
    layers = {concern: layer_names(alpha.function(concern)) for concern in ALL}
    assert layers == {
        "provisioning": ["Core", "Vendor", "Packing"],
        "interruption": ["Core", "Vendor", "Packing"],
        "disruption": ["Core", "Vendor", "Kubernetes", "Packing"],
        "lifecycle": ["Core", "Vendor", "Kubernetes"],
        "termination": ["Core", "Vendor", "Kubernetes"],
        "readiness": ["Core", "Vendor", "Kubernetes"],
        "observation": ["Core", "Vendor", "Kubernetes"],
        "repair": ["Core", "Vendor", "Kubernetes"],
        "garbagecollection": ["Core", "Vendor", "Kubernetes"],
    }
    for concern in SHARED:
        assert layer_names(account.function(concern)) == ["Core", "Vendor"]


def test_only_functions_that_talk_to_the_api_server_run_in_the_vpc(alpha: Template, beta: Template) -> None:
    placed = {"SubnetIds": ["subnet-0a0a0a0a"], "SecurityGroupIds": ["sg-0b0b0b0b"]}
    assert {concern: beta.function(concern).get("VpcConfig") for concern in ALL} == {
        "provisioning": None,
        "interruption": None,
        **dict.fromkeys(TALKING, placed),
    }
    assert not any("VpcConfig" in alpha.function(concern) for concern in ALL)


def test_concurrency_is_reserved_for_notices_where_it_is_asked_for_and_for_nothing_else(
    alpha: Template, beta: Template, account: Template
) -> None:
    def reserved(template: Template) -> dict[str, int | None]:
        return {each: template.function(each).get("ReservedConcurrentExecutions") for each in ALL}

    assert reserved(alpha) == dict.fromkeys(ALL)
    assert reserved(beta) == {**dict.fromkeys(ALL), "interruption": 5}
    assert account.function("routing")["ReservedConcurrentExecutions"] == 5
    assert "ReservedConcurrentExecutions" not in account.function("catalog")


def test_every_function_logs_to_a_group_of_its_own_that_forgets(templates: dict[str, Template]) -> None:
    for template in templates.values():
        groups = template.of_type("Logs::LogGroup")
        for each in template.of_type("Lambda::Function").values():
            group = groups[each["LoggingConfig"]["LogGroup"]]
            assert group == group | {
                "LogGroupName": f"/aws/lambda/{each['FunctionName']}",
                "RetentionInDays": 30,
            }


def deployed(template: Template, environment: dict[str, str]) -> dict[str, str]:
    """Put queues' URLs where the template has references to them."""
    queues = {
        id_: f"{QUEUE}/{each['Properties']['QueueName']}"
        for id_, each in template.resources.items()
        if each["Type"] == "AWS::SQS::Queue"
    }
    return {name: queues.get(value, value) for name, value in environment.items()}
