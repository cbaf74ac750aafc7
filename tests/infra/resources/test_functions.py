"""Every function: its platform, its environment and its layers."""

from __future__ import annotations

import runpy
from dataclasses import fields
from typing import Any

import pytest
from aws_cdk import aws_lambda

from infra.functions.concerns import CLUSTER_CONCERNS, PACKING_ENVIRONMENT
from infra.functions.function import RUNTIME
from layers.vendor.build import LAMBDA
from nodesmith.model.costs.commitmentsettings import CommitmentSettings
from nodesmith.model.functions import OBSERVED_TICK_MINUTES, TALKING, TICK_MINUTES
from nodesmith.settings import Settings, function_name, read_settings
from tests.infra.deployment import ACCOUNT, PAYER_ROLE, PRIVATE, REGION, ROOT
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
SHARED = ["catalog", "dispatch", "routing"]
QUEUE = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/nodesmith-waiting"
PLACES = [("", concern) for concern in ALL] + [(PRIVATE, concern) for concern in TALKING]


def every_function(templates: dict[str, Template]) -> list[dict[str, Any]]:
    return [
        each["Properties"]
        for template in templates.values()
        for each in template.resources.values()
        if each["Type"] == "AWS::Lambda::Function"
    ]


def layer_names(function: dict[str, Any]) -> list[str]:
    return [each.partition("Layer")[0] for each in function["Layers"]]


def test_there_is_a_function_per_concern_and_per_vpc_one_for_each_that_calls_api_servers(
    region: Template, plain: Template
) -> None:
    assert set(ALL) == {*TICK_MINUTES, *OBSERVED_TICK_MINUTES}
    found = [
        sorted(each["FunctionName"] for each in template.of_type("Lambda::Function").values())
        for template in (region, plain)
    ]
    once = [function_name(concern) for concern in (*ALL, *SHARED)]
    in_vpc = [function_name(concern, PRIVATE) for concern in TALKING]
    assert found == [sorted([*once, *in_vpc]), sorted(once)]


def test_no_cluster_has_functions_of_its_own(alpha: Template, beta: Template) -> None:
    assert every_function({"alpha": alpha, "beta": beta}) == []


def test_every_function_runs_on_arm64_and_the_newest_python(templates: dict[str, Template]) -> None:
    versions = [name.split("_") for name in dir(aws_lambda.Runtime) if name.startswith("PYTHON_3")]
    newest = max(int(minor) for _, _, minor in versions)
    for each in every_function(templates):
        assert each["Architectures"] == ["arm64"]
        assert each["Runtime"] == f"python3.{newest}"
        assert each["Handler"] == "handler.handler"


def test_functions_are_traced_and_may_write_traces_only_on_request(region: Template, plain: Template) -> None:
    for template, mode in ((region, "Active"), (plain, "PassThrough")):
        for each in template.of_type("Lambda::Function").values():
            assert each["TracingConfig"] == {"Mode": mode}
            statements = template.statements(each["Role"].removesuffix(".Arn"))
            traces = [each for each in statements if "xray:PutTraceSegments" in each["Action"]]
            assert bool(traces) is (mode == "Active")


def test_only_functions_that_send_hints_may_be_in_loops(templates: dict[str, Template]) -> None:
    """Lambda ends a chain of invocations after 16 runs of a function, unless its RecursiveLoop is Allow."""
    allowed, sending = set(), set()
    for template in (each for name, each in templates.items() if name.endswith(REGION)):
        for each in template.of_type("Lambda::Function").values():
            name, role = each["FunctionName"], each["Role"].removesuffix(".Arn")
            if each.get("RecursiveLoop") == "Allow":
                allowed.add(name)
            if any("lambda:InvokeFunction" in statement["Action"] for statement in template.statements(role)):
                sending.add(name)
    assert {"nodesmith-termination", f"nodesmith-{PRIVATE}-lifecycle"} <= sending
    assert "nodesmith-catalog" not in sending
    assert allowed == sending


def test_the_layers_are_built_for_the_python_that_runs_them() -> None:
    assert RUNTIME.name == f"python{LAMBDA.python}"


@pytest.mark.parametrize("concern", [*ALL, *SHARED])
def test_the_handler_starts_in_its_environment(
    region: Template, concern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for about in fields(Settings):
        monkeypatch.delenv(about.metadata["env"], raising=False)
    environment = region.function(concern)["Environment"]["Variables"]
    for name, value in {**environment, "AWS_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    handler = runpy.run_path(str(ROOT / "functions" / concern / "handler.py"))["handler"]
    assert callable(handler)


@pytest.mark.parametrize(("vpc", "concern"), PLACES)
def test_a_function_that_serves_clusters_knows_its_own_role_and_no_cluster(
    region: Template, vpc: str, concern: str
) -> None:
    environment = region.function(concern, vpc)["Environment"]["Variables"]
    role = region.of_type("IAM::Role")[region.role_of(concern, vpc)]["RoleName"]
    assert read_settings({**environment, "AWS_REGION": REGION}) == Settings(
        REGION,
        table_name="nodesmith",
        bucket_name=f"nodesmith-{ACCOUNT}-{REGION}-an",
        queue_url=QUEUE,
        cloudwatch_metrics=True,  # this region has a dashboard
        session_role_arn=f"arn:aws:iam::{ACCOUNT}:role/{role}",
        vpc_name=vpc,
        release=environment["RELEASE"],
        commitments=CommitmentSettings(),
    )


def test_shared_functions_know_table_bucket_and_queues(region: Template, plain: Template) -> None:
    for concern in SHARED:
        environment = region.function(concern)["Environment"]["Variables"]
        assert read_settings({**environment, "AWS_REGION": REGION}) == Settings(
            REGION,
            table_name="nodesmith",
            bucket_name=f"nodesmith-{ACCOUNT}-{REGION}-an",
            queue_url=QUEUE,
            cloudwatch_metrics=True,  # this region has a dashboard
            isolated_vpc=concern == "catalog",
            release=environment["RELEASE"],
            commitments=CommitmentSettings(PAYER_ROLE, 0.5) if concern == "catalog" else CommitmentSettings(),
        )
        stated = plain.function(concern)["Environment"]["Variables"].keys()
        assert stated == {"TABLE_NAME", "BUCKET_NAME", "QUEUE_URL", "RELEASE"}


def test_no_function_has_a_variable_that_is_not_read(templates: dict[str, Template]) -> None:
    read = {about.metadata["env"] for about in fields(Settings)}
    for each in every_function(templates):
        assert each["Environment"]["Variables"].keys() <= read | PACKING_ENVIRONMENT.keys()


def test_only_functions_that_pack_tell_numpy_to_start_no_threads(region: Template) -> None:
    for concern in CLUSTER_CONCERNS:
        variables = region.function(concern.name)["Environment"]["Variables"]
        assert variables.get("OPENBLAS_NUM_THREADS") == ("1" if concern.packs else None), concern.name


def test_the_environment_names_the_stacks_table_bucket_and_queues(region: Template) -> None:
    environment = region.function("provisioning")["Environment"]["Variables"]
    assert environment["TABLE_NAME"] == region.only("DynamoDB::Table")["TableName"]
    prefix = region.only("S3::Bucket")["BucketNamePrefix"]
    assert environment["BUCKET_NAME"] == f"{prefix}-{ACCOUNT}-{REGION}-an"
    queues = {each["QueueName"] for each in region.of_type("SQS::Queue").values()}
    assert environment["QUEUE_URL"].rpartition("/")[2] in queues


def test_only_packers_have_the_solver(region: Template) -> None:
    layers = {concern: layer_names(region.function(concern)) for concern in (*ALL, *SHARED)}
    assert layers == {
        "provisioning": ["Core", "Packing", "Vendor"],
        "interruption": ["Core", "Packing", "Vendor"],
        "disruption": ["Core", "Packing", "Vendor"],
        "lifecycle": ["Core", "Vendor"],
        "termination": ["Core", "Vendor"],
        "readiness": ["Core", "Vendor"],
        "observation": ["Core", "Vendor"],
        "repair": ["Core", "Vendor"],
        "garbagecollection": ["Core", "Vendor"],
        "shadow": ["Core", "Packing", "Vendor"],
        **{concern: ["Core", "Vendor"] for concern in SHARED},
    }


def test_functions_in_a_vpc_differ_from_the_others_only_in_their_place(region: Template) -> None:
    placed = {"SubnetIds": ["subnet-0a0a0a0a"], "SecurityGroupIds": ["sg-0b0b0b0b"]}
    own = {"FunctionName", "Role", "Environment", "VpcConfig"}
    for concern in TALKING:
        inside, outside = region.function(concern, PRIVATE), region.function(concern)
        assert inside["VpcConfig"] == placed
        assert {key: each for key, each in inside.items() if key not in own} == {
            key: each for key, each in outside.items() if key not in own
        }
    assert not any("VpcConfig" in region.function(concern) for concern in (*ALL, *SHARED))


def test_concurrency_is_reserved_on_request_and_only_for_notices(region: Template, plain: Template) -> None:
    def reserved(template: Template) -> dict[str, int]:
        functions = template.of_type("Lambda::Function").values()
        kept = {each["FunctionName"]: each.get("ReservedConcurrentExecutions") for each in functions}
        return {name: most for name, most in kept.items() if most is not None}

    assert reserved(plain) == {}
    assert reserved(region) == {"nodesmith-interruption": 5, "nodesmith-routing": 5}


def test_dispatch_has_one_minute_and_256_mib(plain: Template) -> None:
    dispatch = plain.function("dispatch")
    assert (dispatch["Timeout"], dispatch["MemorySize"]) == (60, 256)


def test_all_functions_log_to_one_group_with_a_retention_of_30_days(
    region: Template, plain: Template
) -> None:
    for template in (region, plain):
        ((id_, group),) = template.of_type("Logs::LogGroup").items()
        assert (group["LogGroupName"], group["RetentionInDays"]) == ("/aws/lambda/nodesmith", 30)
        for each in template.of_type("Lambda::Function").values():
            assert each["LoggingConfig"]["LogGroup"] == id_


def test_lambda_adds_no_log_lines_about_successful_runs(region: Template) -> None:
    for each in region.of_type("Lambda::Function").values():
        logging = {name: value for name, value in each["LoggingConfig"].items() if name != "LogGroup"}
        assert logging == {"LogFormat": "JSON", "SystemLogLevel": "WARN"}


def test_every_function_has_its_own_role_with_a_name_that_iam_accepts(region: Template) -> None:
    roles = [each["Role"].removesuffix(".Arn") for each in region.of_type("Lambda::Function").values()]
    assert len(roles) == len(set(roles))
    named = region.of_type("IAM::Role")
    assert {named[role]["RoleName"] for role in roles} == {
        f"{each['FunctionName']}-{REGION}" for each in region.of_type("Lambda::Function").values()
    }
    longest = max(function_name(concern, "v" * 16) for concern in TALKING)
    assert len(f"{longest}-ap-southeast-99") <= 64
