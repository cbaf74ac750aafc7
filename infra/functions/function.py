"""A function with the settings that all of nodesmith's share: arm64, layers, and a role of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, FileSystem, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import names
from infra.context.regions import RegionContext, Vpc
from infra.functions.roles import base_grants, function_role, vpc_grants
from infra.functions.serving import serve
from infra.functions.trial import Serving
from infra.permissions.grants import Grant
from nodesmith import __version__
from nodesmith.registration import PARAMETERS, TRIAL_SUFFIX

RUNTIME = lambda_.Runtime.PYTHON_3_14
ARCHITECTURE = lambda_.Architecture.ARM_64
LAYERS = ("core", "vendor", "packing")


@dataclass(frozen=True, slots=True)
class Code:
    """The folders to deploy: functions/, and the layers by name, as layers/vendor/build.py returns them."""

    functions: Path
    layers: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Platform:
    """What all functions of a region share."""

    region: str
    code: Code
    layers: Mapping[str, lambda_.LayerVersion]
    log_group: logs.LogGroup
    tracing: bool
    metrics: bool
    release: str
    trial: Serving | None = None
    commitments: bool = False
    notifications: bool = True


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """What differs between functions. `concern` is the folder under functions/.

    `grants` are the function's own permissions, `session_grants` those of its sessions if it works for clusters.
    `delays` is True if it invokes functions after a delay.
    `vpc` is where it runs, and `vpc_name` is the name of that VPC in cdk.json. `reserved_concurrency` is both reserved
    for the function and its maximum; None shares the account's.
    """

    concern: str
    timeout_seconds: int
    memory_mib: int
    grants: tuple[Grant, ...]
    session_grants: tuple[Grant, ...] = ()
    registrations: tuple[str, ...] = (PARAMETERS,)
    environment: Mapping[str, str] | None = None
    layers: tuple[str, ...] = ("core", "vendor")
    delays: bool = False
    vpc_name: str = ""
    vpc: Vpc | None = None
    reserved_concurrency: int | None = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return names.function_name(self.concern, self.vpc_name)


def release_of(code: Code, region: RegionContext) -> str:
    """Return the name of the release: its version, and a digest of all code and of the region's entry in cdk.json.

    Every function's environment holds this name, so a deployment that changes one function publishes a version of all
    of them. That way, versions of different functions that belong together can be found later.
    """
    folders = [code.functions, *(code.layers[name] for name in sorted(code.layers))]
    parts = [FileSystem.fingerprint(str(folder), exclude=["__pycache__"]) for folder in folders]
    digest = hashlib.sha256("\n".join([*parts, repr(region)]).encode()).hexdigest()
    return f"{__version__}-{digest[:8]}"


def platform(scope: Construct, region: RegionContext, code: Code, trial: Serving | None = None) -> Platform:
    """Make the layers and the log group that all functions share; the name of a log stream names its function."""
    log_group = logs.LogGroup(
        scope,
        "Logs",
        log_group_name=names.LOG_GROUP_NAME,
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=RemovalPolicy.DESTROY,
    )
    layers = {name: _layer(scope, code, name) for name in LAYERS}
    return Platform(
        region.name,
        code,
        layers,
        log_group,
        region.tracing,
        region.dashboard,
        release_of(code, region) + (TRIAL_SUFFIX if trial is not None else ""),
        trial,
        bool(region.commitments),
        region.notifications,
    )


def function(scope: Construct, spec: FunctionSpec, shared: Platform) -> lambda_.Alias:
    """Make the function and the role that it alone uses. Return the alias through which it is invoked."""
    name = names.role_name(spec.concern, shared.region, spec.vpc_name)
    environment = {
        "TABLE_NAME": names.TABLE_NAME,
        "BUCKET_NAME": names.bucket_name(shared.region),
        "QUEUE_URL": names.queue_url(shared.region),
        "RELEASE": shared.release,
        **({"VPC_NAME": spec.vpc_name} if spec.vpc_name else {}),
        **({"CLOUDWATCH_METRICS": "true"} if shared.metrics else {}),
        **({"COMMITMENTS": "true"} if shared.commitments else {}),
        **({} if shared.notifications else {"NOTIFICATIONS": "false"}),
        **(spec.environment or {}),
    }
    if spec.session_grants:
        environment["SESSION_ROLE_ARN"] = names.role_arn(name)
    own = [*spec.grants, *base_grants(shared.region, delays=spec.delays, tracing=shared.tracing)]
    if spec.vpc is not None:
        own += vpc_grants(shared.region, spec.name)
    role = function_role(scope, name, shared.region, own, spec.session_grants, spec.registrations)
    resource = lambda_.Function(
        scope,
        "Function",
        function_name=spec.name,
        runtime=RUNTIME,
        architecture=ARCHITECTURE,
        handler="handler.handler",
        code=lambda_.Code.from_asset(str(shared.code.functions / spec.concern), exclude=["__pycache__"]),
        layers=[shared.layers[name] for name in spec.layers],
        memory_size=spec.memory_mib,
        timeout=Duration.seconds(spec.timeout_seconds),
        environment=environment,
        reserved_concurrent_executions=spec.reserved_concurrency,
        recursive_loop=recursive_loop(spec.grants),
        current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
        role=role,
        log_group=shared.log_group,
        # Lambda's own three lines about each successful run would double the size of the log.
        logging_format=lambda_.LoggingFormat.JSON,
        system_log_level_v2=lambda_.SystemLogLevel.WARN,
    )
    _set_tracing_and_vpc(resource, spec.vpc, shared.tracing)
    return serve(scope, resource, spec.name, shared.region, shared.trial, tried=bool(spec.session_grants))


def recursive_loop(grants: Iterable[Grant]) -> lambda_.RecursiveLoop:
    """Return ALLOW for a function that may invoke functions, TERMINATE for others.

    Lambda stops a loop of function → SQS → function after 16 hops. A drain that checks every five seconds is such a
    loop.
    """
    wakes = any("lambda:InvokeFunction" in grant.actions for grant in grants)
    return lambda_.RecursiveLoop.ALLOW if wakes else lambda_.RecursiveLoop.TERMINATE


def _layer(scope: Construct, code: Code, name: str) -> lambda_.LayerVersion:
    return lambda_.LayerVersion(
        scope,
        f"{name.capitalize()}Layer",
        description=f"nodesmith: layer {name}",
        code=lambda_.Code.from_asset(str(code.layers[name])),
        compatible_runtimes=[RUNTIME],
        compatible_architectures=[ARCHITECTURE],
    )


def _set_tracing_and_vpc(function_resource: lambda_.Function, vpc: Vpc | None, tracing: bool) -> None:
    """Set tracing and the VPC on the L1 resource: the L2 construct would add grants and look up the VPC."""
    resource = function_resource.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)  # noqa: S101 - what an L2 function is made of
    mode = "Active" if tracing else "PassThrough"
    resource.tracing_config = lambda_.CfnFunction.TracingConfigProperty(mode=mode)
    if vpc is not None:
        resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(vpc.subnet_ids), security_group_ids=list(vpc.security_group_ids)
        )
