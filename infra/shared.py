"""The functions that belong to no cluster: routing, the catalogue's, and dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.concerns import (
    CATALOG_MEMORY_MIB,
    CATALOG_TIMEOUT_SECONDS,
    DISPATCH_MEMORY_MIB,
    DISPATCH_TIMEOUT_SECONDS,
    ROUTING_MEMORY_MIB,
    ROUTING_TIMEOUT_SECONDS,
)
from infra.functions import FunctionSpec, Platform, function
from infra.permissions import Scope
from infra.queues import Queues, feed, plain_http_denial, queues
from infra.sessions import poll_grant
from infra.sharedpermissions import catalog_grants, dispatch_grants, routing_grants
from nodesmith.settings import PATTERNS


def catalog(scope: Construct, may: Scope, shared: Platform, *, isolated: bool) -> lambda_.Function:
    """Make the function that keeps the list of what can be bought."""
    spec = FunctionSpec(
        concern="catalog",
        timeout_seconds=CATALOG_TIMEOUT_SECONDS,
        memory_mib=CATALOG_MEMORY_MIB,
        environment={"ISOLATED_VPC": "true"} if isolated else None,
        grants=tuple(catalog_grants(may)),
    )
    return function(scope, spec, shared)


def dispatch(scope: Construct, may: Scope, shared: Platform) -> lambda_.Function:
    """Make the function that a schedule wakes, and that wakes the concerns of all clusters."""
    spec = FunctionSpec(
        concern="dispatch",
        timeout_seconds=DISPATCH_TIMEOUT_SECONDS,
        memory_mib=DISPATCH_MEMORY_MIB,
        grants=tuple(dispatch_grants(may)),
    )
    return function(scope, spec, shared)


def routing(
    scope: Construct, may: Scope, shared: Platform, reserved_concurrency: int | None
) -> tuple[lambda_.Function, Queues]:
    """Make the function that finds out whose an instance is, and the rules that send it what EC2 says of instances."""
    made_queues = queues(scope, "routing", ROUTING_TIMEOUT_SECONDS, try_again=True)
    spec = FunctionSpec(
        concern="routing",
        timeout_seconds=ROUTING_TIMEOUT_SECONDS,
        memory_mib=ROUTING_MEMORY_MIB,
        grants=(*routing_grants(may), poll_grant(may.region, made_queues.names)),
        reserved_concurrency=reserved_concurrency,
    )
    made = function(scope, spec, shared)
    feed(made, made_queues)
    made_queues.live.add_to_resource_policy(plain_http_denial(made_queues.live.queue_arn))
    for rule, pattern in PATTERNS.items():
        _listen(scope, rule, pattern, made_queues.live)
    return made, made_queues


def _listen(scope: Construct, name: str, pattern: Mapping[str, Any], queue: sqs.Queue) -> None:
    """Pass events on as they are: the deadline is in them."""
    events.Rule(
        scope,
        name,
        description=f"what instances of this region may be lost by: {name}",
        event_pattern=events.EventPattern(
            source=pattern["source"], detail_type=pattern["detail-type"], detail=pattern.get("detail")
        ),
        targets=[targets.SqsQueue(queue)],
    )
