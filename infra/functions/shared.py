"""The functions that belong to no cluster: routing, catalog and dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.functions.concerns import (
    CATALOG_MEMORY_MIB,
    CATALOG_TIMEOUT_SECONDS,
    DISPATCH_MEMORY_MIB,
    DISPATCH_TIMEOUT_SECONDS,
    ROUTING_MEMORY_MIB,
    ROUTING_TIMEOUT_SECONDS,
)
from infra.functions.function import FunctionSpec, Platform, function
from infra.permissions.clusters import Scope
from infra.permissions.shared import catalog_grants, dispatch_grants, routing_grants
from nodesmith.settings import PATTERNS


def catalog(
    scope: Construct, grant_scope: Scope, shared: Platform, *, isolated: bool, commitments: str
) -> None:
    """Make the function that updates the catalogue and, with `commitments`, the list of what is already paid for."""
    environment = {
        **({"ISOLATED_VPC": "true"} if isolated else {}),
        **({"COMMITMENTS": commitments} if commitments else {}),
    }
    spec = FunctionSpec(
        concern="catalog",
        timeout_seconds=CATALOG_TIMEOUT_SECONDS,
        memory_mib=CATALOG_MEMORY_MIB,
        environment=environment,
        grants=tuple(catalog_grants(grant_scope)),
    )
    function(scope, spec, shared)


def dispatch(scope: Construct, grant_scope: Scope, shared: Platform) -> lambda_.Alias:
    """Make the function that a schedule invokes, and that invokes the concerns of all clusters."""
    spec = FunctionSpec(
        concern="dispatch",
        timeout_seconds=DISPATCH_TIMEOUT_SECONDS,
        memory_mib=DISPATCH_MEMORY_MIB,
        grants=tuple(dispatch_grants(grant_scope)),
    )
    return function(scope, spec, shared)


def routing(scope: Construct, grant_scope: Scope, shared: Platform, reserved_concurrency: int | None) -> None:
    """Make the function that finds an instance's cluster, and the rules that send it EC2's events about instances."""
    spec = FunctionSpec(
        concern="routing",
        timeout_seconds=ROUTING_TIMEOUT_SECONDS,
        memory_mib=ROUTING_MEMORY_MIB,
        grants=tuple(routing_grants(grant_scope)),
        delays=True,
        reserved_concurrency=reserved_concurrency,
    )
    alias = function(scope, spec, shared)
    for rule, pattern in PATTERNS.items():
        _listen(scope, rule, pattern, alias)


def _listen(scope: Construct, name: str, pattern: Mapping[str, Any], function: lambda_.Alias) -> None:
    """Make a rule that passes events on unchanged: they hold the deadline."""
    events.Rule(
        scope,
        name,
        description=f"Sends events about instances and zones of this region to nodesmith: {name}",
        event_pattern=events.EventPattern(
            source=pattern["source"], detail_type=pattern.get("detail-type"), detail=pattern.get("detail")
        ),
        targets=[targets.LambdaFunction(function)],
    )
