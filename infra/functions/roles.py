"""The role of a function: its own permissions, those that Lambda uses on its behalf, and those of its sessions."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import names
from infra.permissions.grants import Grant, make_role
from infra.permissions.sessions import (
    CLUSTER,
    in_session,
    outside_sessions,
    own_grants,
    send_grant,
    trust_itself,
)
from infra.permissions.tables import health_grant
from nodesmith.registration import PARAMETERS

_TRACE = Grant(
    "Trace",
    ("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
    ("*",),
    wildcard="X-Ray's write calls support no resource-level permissions",
)


def function_role(
    scope: Construct,
    name: str,
    region: str,
    own: Iterable[Grant],
    session_grants: Iterable[Grant],
    registrations: Iterable[str] = (PARAMETERS,),
) -> iam.Role:
    """Make the role. With `session_grants` it may start sessions of itself, which have those grants and not `own`.

    `registrations` are the paths of the registrations that it may read.
    """
    trusted = iam.ServicePrincipal("lambda.amazonaws.com")
    granted = list(session_grants)
    if not granted:
        return make_role(scope, "Role", name, trusted, own)
    arn = names.role_arn(name)
    outside = outside_sessions([*own, *own_grants(arn, region, registrations), health_grant(region)])
    inside = in_session([*granted, health_grant(region, CLUSTER)])
    role = make_role(scope, "Role", name, trusted, [*outside, *inside])
    trust_itself(role, arn)
    return role


def base_grants(region: str, *, delays: bool, tracing: bool) -> list[Grant]:
    """Write to the log group, which already exists, since no function may create one; write traces if `tracing` is set.

    Send to queues: events that the function failed to process for good and, with `delays`, delayed invocations.
    """
    streams = names.arn("logs", f"log-group:{names.LOG_GROUP_NAME}:*", region=region)
    log = Grant(
        "Log",
        ("logs:CreateLogStream", "logs:PutLogEvents"),
        (streams,),
        wildcard="each execution environment of a function has its own stream",
    )
    return [log, send_grant(region, delays=delays), *([_TRACE] if tracing else [])]


def vpc_grants(region: str, function_name: str) -> list[Grant]:
    """Let Lambda attach the function to the VPC, but deny the same calls to the function's own code.

    A session does not identify its function, so sessions do not get these rights.
    """
    changes = (
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:UnassignPrivateIpAddresses",
    )
    actions = (*changes, "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets")
    own = names.arn("lambda", f"function:{function_name}", region=region)
    code = {"ArnEquals": {"lambda:SourceFunctionArn": own}}
    reason = "Lambda requires these on all resources to attach a function to a VPC"
    return [
        Grant("AttachToVpc", actions, ("*",), wildcard=reason),
        Grant("NotFromCode", changes, ("*",), code, "a Deny statement covers all resources", iam.Effect.DENY),
    ]
