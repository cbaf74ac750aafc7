"""Access to the table: each grant covers the items of given partitions, by key. Nothing may scan."""

from __future__ import annotations

from infra import names
from infra.permissions.grants import Grant
from infra.permissions.sessions import CLUSTER
from nodesmith.keys import (
    budget_partition_key,
    forwarder_partition_key,
    health_partition_key,
    learned_partition_key,
    notices_partition_key,
    partition_key,
)


def ledger_grant(region: str, beside: str = "") -> Grant:
    """Read and write the cluster's ledger.

    `beside` is another partition that the same statement covers: IAM limits a role's size.
    """
    actions = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "PutItem", "Query", "UpdateItem")
    return _grant("Ledger", region, actions, partition_key(CLUSTER), *([beside] if beside else []))


def learned_grant(region: str, *actions: str, beside: str = "") -> Grant:
    """Read what nodesmith has learned about instance types from the nodes of all clusters in the region.

    `actions` add writes.
    `beside` is another partition that the same statement covers: IAM limits a role's size.
    """
    partitions = (learned_partition_key(region), *([beside] if beside else []))
    return _grant("Learned", region, ("Query", *actions), *partitions)


def budget_grant(region: str) -> Grant:
    """Consume the EC2 calls, launches and spending limits that the clusters of the region share.

    The ledger is named as well because it is read and written in the same calls.
    """
    mine = ("BatchGetItem", "PutItem", "Query", "UpdateItem")
    return _grant("Budget", region, mine, budget_partition_key(region), partition_key(CLUSTER))


def limits_grant(region: str) -> Grant:
    """Write the SpendingLimits where all clusters of the region read them, and see what is used."""
    return _grant("Limits", region, ("BatchGetItem", "PutItem", "Query"), budget_partition_key(region))


def notices_grant(region: str) -> Grant:
    """Read and delete the notices that routing has kept for the cluster."""
    return _grant("Notices", region, ("BatchWriteItem", "Query"), notices_partition_key(CLUSTER))


def health_grant(region: str, cluster: str = "") -> Grant:
    """Record how the runs of a cluster's concerns end or, without a cluster, those of the shared functions."""
    sid = "Health" if cluster else "OwnHealth"
    return _grant(sid, region, ("PutItem", "Query"), health_partition_key(cluster))


def heartbeat_grant(region: str, action: str, cluster: str = CLUSTER) -> Grant:
    """Read or write (`action`) the heartbeat of a cluster's forwarder."""
    return _grant("Heartbeat", region, (action,), forwarder_partition_key(cluster))


def every_partition_grant(sid: str, region: str, action: str, *patterns: str) -> Grant:
    """Allow one action on all partitions that match these patterns, for every cluster."""
    return _grant(sid, region, (action,), *patterns, operator="StringLike")


def _grant(
    sid: str, region: str, actions: tuple[str, ...], *partitions: str, operator: str = "StringEquals"
) -> Grant:
    return Grant(
        sid,
        tuple(f"dynamodb:{action}" for action in actions),
        (names.arn("dynamodb", f"table/{names.TABLE_NAME}", region=region),),
        {
            f"ForAllValues:{operator}": {"dynamodb:LeadingKeys": list(partitions)},
            "Null": {"dynamodb:LeadingKeys": "false"},  # with no values at all, ForAllValues would be true
        },
    )
