"""What the functions that belong to no cluster may do: routing, dispatch and catalog."""

from __future__ import annotations

from infra import names
from infra.permissions.clusters import Scope, describe_grant, read_grants, write_grant
from infra.permissions.grants import Grant
from infra.permissions.sessions import poll_grant, wake_grant
from infra.permissions.tables import every_partition_grant, health_grant, limits_grant
from nodesmith.keys import (
    catalog_key,
    commitments_key,
    forwarder_partition_key,
    notices_partition_key,
    partition_key,
)
from nodesmith.registration import CANARY_PARAMETER, LIMIT_PARAMETERS, OBSERVED_PARAMETERS, PARAMETERS
from nodesmith.settings import (
    DEAD_LETTER_QUEUE_NAME,
    HEALTH_DETAIL_TYPE,
    HEALTH_SOURCE,
    INDEXES,
    TICK_MINUTES,
)


def routing_grants(scope: Scope) -> list[Grant]:
    """Find an instance's cluster by the table's indexes, without reading items; keep notices for the cluster.

    Find the clusters with a zonal shift, and wake their readiness.
    """
    indexes = (
        names.arn("dynamodb", f"table/{names.TABLE_NAME}/index/{name}", region=scope.region)
        for name in INDEXES
    )
    return [
        Grant("WhoseItIs", ("dynamodb:Query",), tuple(indexes)),
        every_partition_grant("KeepNotices", scope.region, "PutItem", notices_partition_key("*")),
        describe_grant(scope.region, "SpotInstanceRequests"),
        Grant(
            "ListZonalShifts",
            ("arc-zonal-shift:ListManagedResources",),
            ("*",),
            {"StringEquals": {"aws:RequestedRegion": scope.region}},
            wildcard="one call lists the resources of all clusters",
        ),
        list_registrations_grant(scope.region, PARAMETERS),
        wake_grant(scope.region, scope.vpcs, "interruption", "readiness"),
        health_grant(scope.region),
    ]


def dispatch_grants(scope: Scope) -> list[Grant]:
    """List registrations, see what is due, invoke every concern of a cluster, and deliver delayed invocations."""
    return [
        list_registrations_grant(scope.region, PARAMETERS, OBSERVED_PARAMETERS),
        list_limits_grant(scope.region),
        limits_grant(scope.region),
        marks_grant(scope.region),
        poll_grant(scope.region),
        wake_grant(scope.region, scope.vpcs, *TICK_MINUTES, "shadow", "routing"),
        *health_check_grants(scope),
    ]


def list_registrations_grant(region: str, *paths: str) -> Grant:
    """Read which clusters are registered, and how their API servers are reached."""
    arns = [names.arn("ssm", f"parameter{path}", region=region) for path in paths]
    return Grant(
        "ListRegistrations",
        ("ssm:GetParametersByPath",),
        tuple(arn for path in arns for arn in (path, f"{path}/*")),
        wildcard="each cluster has its own parameter",
    )


def list_limits_grant(region: str) -> Grant:
    """Read the SpendingLimits."""
    path = names.arn("ssm", f"parameter{LIMIT_PARAMETERS}", region=region)
    return Grant(
        "ListLimits",
        ("ssm:GetParametersByPath",),
        (path, f"{path}/*"),
        wildcard="each limit has its own parameter",
    )


def marks_grant(region: str) -> Grant:
    """Read when each cluster's ledger and snapshot last changed, and no other attributes of those items."""
    kinds = (partition_key("*"), forwarder_partition_key("*"))
    return every_partition_grant("ReadMarks", region, "BatchGetItem", *kinds).with_conditions(
        {
            "ForAllValues:StringEquals": {"dynamodb:Attributes": ["at", "changed", "pk", "sk"]},
            "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
            "Null": {"dynamodb:Attributes": "false"},
        }
    )


def health_check_grants(scope: Scope) -> list[Grant]:
    """Read the health records, count dead letters, end a failing trial, send changes to the default event bus."""
    canary = (names.arn("ssm", f"parameter{CANARY_PARAMETER}", region=scope.region),)
    event_fields = {"events:source": HEALTH_SOURCE, "events:detail-type": HEALTH_DETAIL_TYPE}
    return [
        every_partition_grant("ReadHealth", scope.region, "Query", "HEALTH", "HEALTH#*"),
        health_grant(scope.region),
        Grant("JudgeTrial", ("ssm:GetParameters", "ssm:PutParameter"), canary),
        Grant(
            "CountDeadLetters",
            ("sqs:GetQueueAttributes",),
            (names.queue_arn(scope.region, DEAD_LETTER_QUEUE_NAME),),
        ),
        Grant(
            "TellOfHealth",
            ("events:PutEvents",),
            (names.arn("events", "event-bus/default", region=scope.region),),
            {"StringEquals": event_fields},
        ),
    ]


def commitment_grants(scope: Scope) -> list[Grant]:
    """Read Savings Plans, also those of the payer through its role, and share them with the region's clusters.

    Savings Plans are global, so no condition names the region.
    """
    grants = [
        Grant(
            "ReadSavingsPlans",
            ("savingsplans:DescribeSavingsPlanRates", "savingsplans:DescribeSavingsPlans"),
            ("*",),
            wildcard="one call lists the plans of the account",
        ),
        limits_grant(scope.region),
    ]
    if scope.payer_role_arn:
        grants.append(Grant("ReadPayersCommitments", ("sts:AssumeRole",), (scope.payer_role_arn,)))
    return grants


def catalog_grants(scope: Scope) -> list[Grant]:
    """Read a region's catalogue. Price list endpoints are in other regions, so no condition names the region."""
    region = scope.region
    key = catalog_key(region)
    kinds = ["AvailabilityZones", "InstanceTypeOfferings", "InstanceTypes", "SpotPriceHistory"]
    object_keys = [key]
    if scope.commitments:
        kinds += ["Instances", "ReservedInstances"]
        object_keys.append(commitments_key(region))
    return [
        *read_grants(region, key),
        write_grant(region, *object_keys),
        describe_grant(region, *kinds),
        *(commitment_grants(scope) if scope.commitments else ()),
        Grant(
            "ReadPrices",
            ("pricing:GetProducts",),
            ("*",),
            wildcard="the price list supports no resource-level rights",
        ),
        health_grant(region),
    ]
