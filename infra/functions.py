"""A function the way all of nodesmith's are: arm64, traced, on the layers, with a role and a log group of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import names
from infra.context import Vpc
from infra.grants import Grant, attach

RUNTIME = lambda_.Runtime.PYTHON_3_14
ARCHITECTURE = lambda_.Architecture.ARM_64


@dataclass(frozen=True, slots=True)
class Code:
    """The folders that are deployed: functions/, and the layers by name, as layers/vendor/build.py gives them."""

    functions: Path
    layers: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """What differs between functions. `name` is the physical name, `concern` the folder under functions/.

    `reserved_concurrency` is kept free for it, and the most it may have; None shares the account's.
    `own_interfaces` are condition keys that tell the network interfaces that the function's own code may delete.
    """

    name: str
    concern: str
    timeout_seconds: int
    memory_mib: int
    environment: Mapping[str, str]
    grants: tuple[Grant, ...]
    vpc: Vpc | None = None
    own_interfaces: Mapping[str, str] = field(default_factory=dict)
    reserved_concurrency: int | None = None


def layer(scope: Construct, code: Code, name: str) -> lambda_.LayerVersion:
    """Give a stack its own version of a layer, so that a cluster moves to a new version whole, or not at all.

    The files are uploaded once for all stacks: assets are named by their content.
    """
    return lambda_.LayerVersion(
        scope,
        f"{name.capitalize()}Layer",
        description=f"nodesmith: {name}",
        code=lambda_.Code.from_asset(str(code.layers[name])),
        compatible_runtimes=[RUNTIME],
        compatible_architectures=[ARCHITECTURE],
    )


def function(
    scope: Construct, spec: FunctionSpec, code: Code, shared: Iterable[lambda_.LayerVersion]
) -> tuple[lambda_.Function, iam.Role]:
    """Make the function, the role that only it has, and the log group that only it writes."""
    log_group = logs.LogGroup(
        scope,
        "Logs",
        log_group_name=f"/aws/lambda/{spec.name}",
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=RemovalPolicy.DESTROY,
    )
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    attached = vpc_grants(scope, spec.name, spec.own_interfaces) if spec.vpc else ()
    attach(role, [_log_grant(log_group), TRACE, *spec.grants, *attached])
    made = lambda_.Function(
        scope,
        "Function",
        function_name=spec.name,
        runtime=RUNTIME,
        architecture=ARCHITECTURE,
        handler="handler.handler",
        code=lambda_.Code.from_asset(str(code.functions / spec.concern), exclude=["__pycache__"]),
        layers=list(shared),
        memory_size=spec.memory_mib,
        timeout=Duration.seconds(spec.timeout_seconds),
        environment=dict(spec.environment),
        reserved_concurrent_executions=spec.reserved_concurrency,
        recursive_loop=recursive_loop(spec.grants),
        role=role,
        log_group=log_group,
    )
    _finish(made, spec.vpc)
    return made, role


def recursive_loop(grants: Iterable[Grant]) -> lambda_.RecursiveLoop:
    """Return Allow for a function that may send messages, Terminate for others.

    Lambda ends a chain function → SQS → function after 16 hops. A drain that looks every five seconds is such a
    chain.
    """
    sends = any("sqs:SendMessage" in grant.actions for grant in grants)
    return lambda_.RecursiveLoop.ALLOW if sends else lambda_.RecursiveLoop.TERMINATE


TRACE = Grant(
    "Trace",
    ("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
    ("*",),
    wildcard="X-Ray's write calls know no resources",
)


def _log_grant(log_group: logs.LogGroup) -> Grant:
    """Write to the function's own log group, which exists already: no function may make one."""
    return Grant("Log", ("logs:CreateLogStream", "logs:PutLogEvents"), (log_group.log_group_arn,))


def vpc_grants(scope: Construct, function_name: str, own_interfaces: Mapping[str, str]) -> tuple[Grant, ...]:
    """Let Lambda attach the function to the VPC, and keep the function's own code from doing the same.

    Its code may delete interfaces of its own, where it has any; a denial of all others does not say it may.
    """
    changes = (
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:UnassignPrivateIpAddresses",
    )
    deletion = ("ec2:DeleteNetworkInterface",)
    actions = (*changes, *deletion, "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets")
    own = names.arn("lambda", f"function:{function_name}", region=Stack.of(scope).region)
    code = {"ArnEquals": {"lambda:SourceFunctionArn": own}}
    others = {"StringNotEquals": own_interfaces} if own_interfaces else {}
    everything, deny = "a denial covers everything", iam.Effect.DENY
    why = "Lambda asks for these on all resources to attach a function to a VPC"
    return (
        Grant("AttachToVpc", actions, ("*",), wildcard=why),
        Grant("NotFromCode", changes, ("*",), code, everything, deny),
        Grant("NoDeletionFromCode", deletion, ("*",), {**code, **others}, everything, deny),
    )


def _finish(made: lambda_.Function, vpc: Vpc | None) -> None:
    """Trace, and run in the subnets. Beside the L2, which would add grants of its own and want to look up the VPC."""
    resource = made.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)  # noqa: S101 - what an L2 function is made of
    resource.tracing_config = lambda_.CfnFunction.TracingConfigProperty(mode="Active")
    if vpc is not None:
        resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(vpc.subnet_ids), security_group_ids=list(vpc.security_group_ids)
        )
