"""What the functions that belong to no cluster may do: routing, dispatch, and the catalogue's."""

from __future__ import annotations

from infra import names
from infra.grants import Grant
from infra.permissions import Scope, describe_grant, health_grant, read_grants, write_grant
from infra.sessions import queue_arns, wake_grant
from nodesmith.registration import PARAMETERS
from nodesmith.settings import (
    HEALTH_DETAIL_TYPE,
    HEALTH_SOURCE,
    INDEXES,
    TICK_MINUTES,
    catalog_key,
    notices_partition_key,
)


def routing_grants(scope: Scope) -> list[Grant]:
    """Tell whose an instance is, by the indexes of the table and not by what it holds; keep what is said of it."""
    indexes = (
        names.arn("dynamodb", f"table/{names.TABLE_NAME}/index/{name}", region=scope.region)
        for name in INDEXES
    )
    table = (names.arn("dynamodb", f"table/{names.TABLE_NAME}", region=scope.region),)
    every = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [notices_partition_key("*")]}}
    return [
        Grant("WhoseItIs", ("dynamodb:Query",), tuple(indexes)),
        Grant(
            "KeepNotices", ("dynamodb:PutItem",), table, {**every, "Null": {"dynamodb:LeadingKeys": "false"}}
        ),
        describe_grant(scope.region, "SpotInstanceRequests"),
        wake_grant(scope.region, (), "interruption"),
        health_grant(scope.region),
    ]


def dispatch_grants(scope: Scope) -> list[Grant]:
    """List the registrations, and wake every concern of a cluster."""
    path = names.arn("ssm", f"parameter{PARAMETERS}", region=scope.region)
    return [
        Grant(
            "ListRegistrations",
            ("ssm:GetParametersByPath",),
            (path, f"{path}/*"),
            wildcard="one for each cluster",
        ),
        wake_grant(scope.region, scope.vpcs, *TICK_MINUTES),
        *health_check_grants(scope),
    ]


def health_check_grants(scope: Scope) -> list[Grant]:
    """Read what functions of all clusters have recorded, count dead letters, and tell on the default bus of changes."""
    dead = tuple(f"{arn}-dead" for arn in queue_arns(scope.region, scope.vpcs, *TICK_MINUTES, "routing"))
    table = (names.arn("dynamodb", f"table/{names.TABLE_NAME}", region=scope.region),)
    every = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["HEALTH", "HEALTH#*"]}}
    said = {"events:source": HEALTH_SOURCE, "events:detail-type": HEALTH_DETAIL_TYPE}
    return [
        Grant("ReadHealth", ("dynamodb:Query",), table, {**every, "Null": {"dynamodb:LeadingKeys": "false"}}),
        health_grant(scope.region),
        Grant("CountDeadLetters", ("sqs:GetQueueAttributes",), dead),
        Grant(
            "TellOfHealth",
            ("events:PutEvents",),
            (names.arn("events", "event-bus/default", region=scope.region),),
            {"StringEquals": said},
        ),
    ]


def catalog_grants(scope: Scope) -> list[Grant]:
    """Collect what can be bought in a region. The price list has its endpoints elsewhere, so no region binds it."""
    region = scope.region
    key = catalog_key(region)
    kinds = ("AvailabilityZones", "InstanceTypeOfferings", "InstanceTypes", "SpotPriceHistory")
    return [
        *read_grants(region, key),
        write_grant(region, key),
        describe_grant(region, *kinds),
        Grant("ReadPrices", ("pricing:GetProducts",), ("*",), wildcard="the price list knows no resources"),
        health_grant(region),
    ]
