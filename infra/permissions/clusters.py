"""What each function may do in a session. All of it is restricted to the session's cluster."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Aws

from infra import names
from infra.permissions.grants import Grant
from infra.permissions.launching import (
    collection_grants,
    instance_profile_grants,
    launch_grants,
    stop_grant,
    tag_grant,
    terminate_grant,
    volume_key_grants,
)
from infra.permissions.sessions import CLUSTER, FORWARDERS_CLUSTER, wake_grant
from infra.permissions.tables import budget_grant, heartbeat_grant, learned_grant, ledger_grant, notices_grant
from nodesmith.keys import (
    budget_partition_key,
    catalog_key,
    commitments_key,
    decision_key,
    forwarder_partition_key,
    growth_key,
    metrics_key,
    notified_key,
    on_sale_key,
    shadow_key,
    snapshot_key,
    snapshot_keys,
    unplaced_key,
)
from nodesmith.model.costs.allocations import BOOKED, DAYS, HOURS, MONTHS, MOVES, allocations_prefix
from nodesmith.settings import DRY_RUN_NODEPOOL, HEALTH_SOURCE, MEASURED, NOTIFICATIONS, WOKEN

_OWN_BUCKET = {"StringEquals": {"aws:ResourceAccount": Aws.ACCOUNT_ID}}
"""S3 ARNs name no account. Without this condition, a bucket of the same name in another account would match."""
LIST_REASON = "EC2's describe calls support no resource-level permissions; the region is a condition"


@dataclass(frozen=True, slots=True)
class Scope:
    """The parts of a region's entry that permissions depend on.

    `node_roles` are the names of the roles that nodes of all its clusters may have, `kms_key_arns` the keys that may
    encrypt their volumes. `ssm_parameters` are the names of the account's own parameters that hold images. `vpcs` are
    the names of the VPCs in which functions run. `commitments` is True if commitments are read, those of the payer with
    `payer_role_arn`. `notifications` is True if lifecycle may send them.
    """

    region: str
    node_roles: tuple[str, ...] = ()
    kms_key_arns: tuple[str, ...] = ()
    ssm_parameters: tuple[str, ...] = ()
    vpcs: tuple[str, ...] = ()
    commitments: bool = False
    payer_role_arn: str = ""
    notifications: bool = True


_BASES = "a large cluster's snapshot changes others, each named by the digest of its content"


def snapshot_grants(region: str, *keys: str) -> list[Grant]:
    """Read the cluster's snapshot, and other objects."""
    return read_grants(region, snapshot_keys(CLUSTER), *keys, wildcard=_BASES)


def read_grants(region: str, *keys: str, wildcard: str = "") -> list[Grant]:
    """Read these objects. Permission to list makes S3 answer 404 for a missing object instead of 403."""
    arns = tuple(names.object_arn(region, key) for key in keys)
    return [
        Grant("Read", ("s3:GetObject",), arns, _OWN_BUCKET, wildcard),
        Grant("List", ("s3:ListBucket",), (names.bucket_arn(region),), _OWN_BUCKET),
    ]


def write_grant(region: str, *keys: str, wildcard: str = "") -> Grant:
    """Write these objects; keys may be patterns."""
    arns = tuple(names.object_arn(region, key) for key in keys)
    return Grant("Write", ("s3:PutObject",), arns, _OWN_BUCKET, wildcard)


def metrics_grants(scope: Scope, concern: str, *others: str) -> list[Grant]:
    """Update the metrics of the concern's functions, and the objects `others` (keys).

    To replace a version, S3 requires permission to read it.
    """
    keys = (metrics_key(CLUSTER, concern), *others)
    arns = tuple(names.object_arn(scope.region, key) for key in keys)
    return [Grant("Metrics", ("s3:GetObject", "s3:PutObject"), arns, _OWN_BUCKET)]


def forwarder_grants(scope: Scope) -> list[Grant]:
    """Write the cluster's snapshot and heartbeat, read its functions' metrics, invoke concerns.

    EKS Pod Identity creates the session and sets the tag that names the cluster.
    """
    cluster = FORWARDERS_CLUSTER
    keys = (*(metrics_key(cluster, concern) for concern in MEASURED), on_sale_key(cluster))
    arns = tuple(names.object_arn(scope.region, key) for key in keys)
    return [
        write_grant(scope.region, snapshot_keys(cluster), wildcard=_BASES),
        heartbeat_grant(scope.region, "PutItem", cluster),
        Grant("ReadMetrics", ("s3:GetObject",), arns, _OWN_BUCKET),
        wake_grant(scope.region, scope.vpcs, *WOKEN, "shadow"),
    ]


def describe_cluster_grant(scope: Scope) -> Grant:
    """Describe the cluster to find its API server: endpoint, CA, service CIDR, version."""
    cluster = names.cluster_arn(scope.region, CLUSTER)
    return Grant("Api", ("eks:DescribeCluster",), (cluster,))


def zonal_shift_grant(scope: Scope) -> Grant:
    """Read the zonal shifts of the session's cluster, as Karpenter does."""
    cluster = names.cluster_arn(scope.region, CLUSTER)
    return Grant(
        "Shifts",
        ("arc-zonal-shift:GetManagedResource",),
        ("*",),
        {"StringEquals": {"arc-zonal-shift:ResourceIdentifier": cluster}},
        wildcard="the condition names the cluster",
    )


def describe_grant(region: str, *kinds: str) -> Grant:
    """Describe these kinds of EC2 resources, in this region only."""
    actions = tuple(f"ec2:Describe{kind}" for kind in kinds)
    return Grant(
        "Describe", actions, ("*",), {"StringEquals": {"aws:RequestedRegion": region}}, wildcard=LIST_REASON
    )


def provisioning_grants(scope: Scope) -> list[Grant]:
    """Buy nodes: read the inputs, commit the intent, call CreateFleet, record the decision."""
    return [
        *buying_grants(scope, unplaced_key(CLUSTER), starts=True),
        describe_grant(scope.region, "Instances"),
        *metrics_grants(scope, "provisioning", on_sale_key(CLUSTER)),
    ]


def interruption_grants(scope: Scope) -> list[Grant]:
    """Buy replacements for nodes that EC2 reclaims or will reclaim. Termination ends the nodes."""
    return [
        *buying_grants(scope, unplaced_key(CLUSTER), starts=True),
        notices_grant(scope.region),
        describe_grant(scope.region, "Instances", "InstanceStatus", "SpotInstanceRequests"),
        *metrics_grants(scope, "interruption"),
    ]


def disruption_grants(scope: Scope) -> list[Grant]:
    """Buy replacements and choose the nodes to end; termination ends them. RBAC covers taints and Events."""
    return [
        *buying_grants(scope),
        describe_grant(scope.region, "Instances"),
        describe_cluster_grant(scope),
        *metrics_grants(scope, "disruption"),
    ]


def buying_grants(scope: Scope, *kept: str, starts: bool = False) -> list[Grant]:
    """Decide what to buy, record it, and buy it; with `starts`, also start stopped instances.

    `kept` are further objects to read and write.
    """
    return [
        ledger_grant(scope.region),
        learned_grant(scope.region, beside=forwarder_partition_key(CLUSTER)),
        budget_grant(scope.region),
        *snapshot_grants(scope.region, catalog_key(scope.region), *kept),
        write_grant(
            scope.region,
            decision_key(CLUSTER, "*"),
            *kept,
            wildcard="each decision has a record and a snapshot, named by its id",
        ),
        *launch_grants(scope.region, scope.node_roles, starts=starts),
        *volume_key_grants(scope.region, scope.kms_key_arns),
    ]


def lifecycle_grants(scope: Scope) -> list[Grant]:
    """Observe instances and claims, tag instances, terminate those given up. RBAC covers the API server."""
    return [
        ledger_grant(scope.region),
        learned_grant(scope.region, "PutItem"),
        *snapshot_grants(scope.region, unplaced_key(CLUSTER)),
        describe_grant(scope.region, "Instances"),
        tag_grant(scope.region),
        stop_grant(scope.region),
        terminate_grant(scope.region),
        describe_cluster_grant(scope),
        *metrics_grants(scope, "lifecycle", growth_key(CLUSTER), notified_key(CLUSTER)),
        *([notify_grant(scope.region)] if scope.notifications else []),
    ]


def notify_grant(region: str) -> Grant:
    """Put nodesmith's notifications, and no other events, on the default event bus."""
    sent = {"events:source": HEALTH_SOURCE, "events:detail-type": list(NOTIFICATIONS)}
    bus = names.arn("events", "event-bus/default", region=region)
    return Grant("Notify", ("events:PutEvents",), (bus,), {"StringEquals": sent})


def termination_grants(scope: Scope) -> list[Grant]:
    """End nodes: describe and terminate instances. RBAC covers taints and evictions."""
    return [
        ledger_grant(scope.region),
        *snapshot_grants(scope.region),
        describe_grant(scope.region, "Instances"),
        terminate_grant(scope.region),
        describe_cluster_grant(scope),
        *metrics_grants(scope, "termination"),
    ]


def readiness_grants(scope: Scope) -> list[Grant]:
    """Resolve EC2NodeClasses (subnets, security groups, images, instance profiles) and try them in dry runs.

    IAM has no condition that distinguishes dry runs from launches. These rights therefore require the tag of a
    NodePool reserved for dry runs, so they cannot launch a node that serves pods.
    """
    public = names.arn("ssm", "parameter/aws/service/*", region=scope.region, account="")
    own = (
        names.arn("ssm", f"parameter/{name.removeprefix('/')}", region=scope.region)
        for name in scope.ssm_parameters
    )
    return [
        ledger_grant(scope.region, beside=budget_partition_key(scope.region)),
        *snapshot_grants(scope.region),
        describe_grant(
            scope.region,
            "AvailabilityZones",
            "CapacityReservations",
            "Images",
            "Instances",
            "PlacementGroups",
            "SecurityGroups",
            "Subnets",
        ),
        zonal_shift_grant(scope),
        Grant(
            "Images",
            ("ssm:GetParameter",),
            (public, *own),
            wildcard="AWS's public parameters: one per Kubernetes version, family, architecture and image version",
        ),
        *instance_profile_grants(scope.region),
        *launch_grants(scope.region, scope.node_roles, DRY_RUN_NODEPOOL),
        describe_cluster_grant(scope),
        *metrics_grants(scope, "readiness"),
    ]


def observation_grants(scope: Scope) -> list[Grant]:
    """Write the snapshot in place of the forwarder."""
    return [
        *snapshot_grants(scope.region),
        write_grant(scope.region, snapshot_key(CLUSTER)),
        heartbeat_grant(scope.region, "Query"),
        describe_cluster_grant(scope),
    ]


def shadow_grants(scope: Scope) -> list[Grant]:
    """Read the snapshot of an observed cluster, and write its shadows. Nothing else can be changed."""
    key = shadow_key(CLUSTER)
    return [
        *snapshot_grants(scope.region, catalog_key(scope.region), key),
        write_grant(scope.region, key),
        heartbeat_grant(scope.region, "Query"),
    ]


def repair_grants(scope: Scope) -> list[Grant]:
    """Choose unhealthy nodes to end; termination ends them. RBAC covers Events."""
    return [
        ledger_grant(scope.region),
        *snapshot_grants(scope.region),
        heartbeat_grant(scope.region, "Query"),
        describe_cluster_grant(scope),
        *metrics_grants(scope, "repair"),
    ]


def booking_grants(scope: Scope) -> list[Grant]:
    """Record the costs of nodes: write the objects of cost allocation, read replaced versions of the snapshot."""
    keys = tuple(f"{allocations_prefix(kind, CLUSTER)}*" for kind in (HOURS, DAYS, MONTHS, MOVES, BOOKED))
    snapshot = snapshot_key(CLUSTER)
    own_snapshot = {"StringEquals": {**_OWN_BUCKET["StringEquals"], "s3:prefix": snapshot}}
    return [
        Grant(
            "Allocations",
            ("s3:GetObject", "s3:PutObject"),
            tuple(names.object_arn(scope.region, key) for key in keys),
            _OWN_BUCKET,
            wildcard="each hour, day and month has an object of its own",
        ),
        Grant("Versions", ("s3:ListBucketVersions",), (names.bucket_arn(scope.region),), own_snapshot),
        Grant("Version", ("s3:GetObjectVersion",), (names.object_arn(scope.region, snapshot),), _OWN_BUCKET),
    ]


def garbagecollection_grants(scope: Scope) -> list[Grant]:
    """Find and delete the cluster's resources that are no longer needed. RBAC covers writes to the API server.

    The function also records the costs of nodes.
    """
    priced_by = (
        catalog_key(scope.region),
        *([commitments_key(scope.region)] if scope.commitments else []),
    )
    return [
        ledger_grant(scope.region),
        *snapshot_grants(scope.region, *priced_by),
        *booking_grants(scope),
        describe_grant(scope.region, "Instances", "LaunchTemplates", "NetworkInterfaces", "Volumes"),
        *collection_grants(scope.region),
        describe_cluster_grant(scope),
        *metrics_grants(scope, "garbagecollection"),
    ]
