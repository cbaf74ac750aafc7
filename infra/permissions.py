"""What each function may do, and to whose things: one cluster's, never another's."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Aws

from infra import names
from infra.grants import Grant
from infra.launching import (
    collection_grants,
    instance_profile_grants,
    launch_grants,
    tag_grant,
    terminate_grant,
    volume_key_grants,
)
from nodesmith.settings import (
    DRY_RUN_NODEPOOL,
    INDEXES,
    INFORMED,
    MEASURED,
    catalog_key,
    decision_key,
    learned_partition_key,
    metrics_key,
    on_sale_key,
    partition_key,
    snapshot_key,
    unplaced_key,
)

_OWN_BUCKET = {"StringEquals": {"aws:ResourceAccount": Aws.ACCOUNT_ID}}
"""ARNs of S3 name no account: without this, a bucket of that name would do in whichever account it is."""
LIST_REASON = "EC2's describe calls know no resource; the region is a condition"


@dataclass(frozen=True, slots=True)
class Scope:
    """One cluster, as IAM sees it.

    `vpc_id` is the VPC of its nodes, `node_roles` are the names of the roles that they may have, `kms_key_arns` are the
    keys that may encrypt their volumes. `ssm_parameters` are the names of own parameters that hold images.
    """

    cluster: str
    region: str
    vpc_id: str
    node_roles: tuple[str, ...]
    kms_key_arns: tuple[str, ...] = ()
    ssm_parameters: tuple[str, ...] = ()


def ledger_grants(scope: Scope) -> list[Grant]:
    """Read and write the cluster's partition of the table, by key: no scan, no other cluster's items."""
    actions = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "PutItem", "Query", "UpdateItem")
    return [
        Grant(
            "Ledger",
            tuple(f"dynamodb:{action}" for action in actions),
            (names.arn("dynamodb", f"table/{names.TABLE_NAME}", region=scope.region),),
            {
                "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [partition_key(scope.cluster)]},
                "Null": {"dynamodb:LeadingKeys": "false"},  # of no values, all are as they should be
            },
        )
    ]


def learned_grants(scope: Scope, *actions: str) -> list[Grant]:
    """Read, or write as well, what nodes of all clusters of the account have been seen to offer in the region."""
    return [
        Grant(
            "Learned",
            tuple(f"dynamodb:{action}" for action in ("Query", *actions)),
            (names.arn("dynamodb", f"table/{names.TABLE_NAME}", region=scope.region),),
            {
                "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [learned_partition_key(scope.region)]},
                "Null": {"dynamodb:LeadingKeys": "false"},
            },
        )
    ]


def read_grants(region: str, *keys: str) -> list[Grant]:
    """Read these objects; list, so that S3 answers "there is none" (404) and not "denied" (403)."""
    arns = tuple(names.object_arn(region, key) for key in keys)
    return [
        Grant("ReadObjects", ("s3:GetObject",), arns, _OWN_BUCKET),
        Grant("TellMissing", ("s3:ListBucket",), (names.bucket_arn(region),), _OWN_BUCKET),
    ]


def write_grant(region: str, *keys: str, wildcard: str = "") -> Grant:
    """Write these objects, or objects of these patterns."""
    arns = tuple(names.object_arn(region, key) for key in keys)
    return Grant("WriteObjects", ("s3:PutObject",), arns, _OWN_BUCKET, wildcard)


def metrics_grants(scope: Scope, concern: str, *others: str) -> list[Grant]:
    """Add to what the concern's own functions have counted and measured, and keep `others` (keys) for the forwarder.

    S3 asks who replaces a version to be one that may read it.
    """
    keys = (metrics_key(scope.cluster, concern), *others)
    arns = tuple(names.object_arn(scope.region, key) for key in keys)
    return [Grant("Metrics", ("s3:GetObject", "s3:PutObject"), arns, _OWN_BUCKET)]


def metrics_reading_grant(scope: Scope) -> Grant:
    """Read what the cluster's functions have counted and measured, and what its NodePools may buy."""
    keys = (*(metrics_key(scope.cluster, concern) for concern in MEASURED), on_sale_key(scope.cluster))
    arns = tuple(names.object_arn(scope.region, key) for key in keys)
    return Grant("ReadMetrics", ("s3:GetObject",), arns, _OWN_BUCKET)


def send_grant(scope: Scope, *concerns: str) -> Grant:
    """Wake these concerns of the same cluster."""
    queues = (names.physical_name(scope.cluster, concern) for concern in concerns)
    arns = tuple(names.arn("sqs", queue, region=scope.region) for queue in queues)
    return Grant("Wake", ("sqs:SendMessage",), arns)


def describe_cluster_grant(scope: Scope) -> Grant:
    """Find the API server: endpoint, CA, service CIDR, version."""
    cluster = names.cluster_arn(scope.region, scope.cluster)
    return Grant("FindApiServer", ("eks:DescribeCluster",), (cluster,))


def describe_grant(region: str, *kinds: str) -> Grant:
    """Describe these kinds of EC2, in this region only."""
    actions = tuple(f"ec2:Describe{kind}" for kind in kinds)
    return Grant(
        "Describe", actions, ("*",), {"StringEquals": {"aws:RequestedRegion": region}}, wildcard=LIST_REASON
    )


def provisioning_grants(scope: Scope) -> list[Grant]:
    """Buy nodes: read what is known, commit the intent, ask CreateFleet, record the decision."""
    return [
        *buying_grants(scope, unplaced_key(scope.cluster)),
        describe_grant(scope.region, "Instances"),
        send_grant(scope, "lifecycle", "provisioning", "readiness"),
        *metrics_grants(scope, "provisioning", on_sale_key(scope.cluster)),
    ]


def interruption_grants(scope: Scope) -> list[Grant]:
    """Buy nodes in the place of those that EC2 takes, and see which it will take. Termination ends them."""
    return [
        *buying_grants(scope, unplaced_key(scope.cluster)),
        describe_grant(scope.region, "Instances", "InstanceStatus", "SpotInstanceRequests"),
        send_grant(scope, "lifecycle", "provisioning", "readiness", "termination"),
        *metrics_grants(scope, "interruption"),
    ]


def disruption_grants(scope: Scope) -> list[Grant]:
    """Buy what replaces nodes, and say which are to go: termination ends them. Taints and Events are for RBAC."""
    return [
        *buying_grants(scope),
        describe_grant(scope.region, "Instances"),
        describe_cluster_grant(scope),
        send_grant(scope, "disruption", "lifecycle", "provisioning", "termination"),
        *metrics_grants(scope, "disruption"),
    ]


def buying_grants(scope: Scope, *kept: str) -> list[Grant]:
    """Decide what to buy, write it down, and buy it. `kept` are objects that are read and written beside."""
    return [
        *ledger_grants(scope),
        *learned_grants(scope),
        *read_grants(scope.region, snapshot_key(scope.cluster), catalog_key(scope.region), *kept),
        write_grant(
            scope.region,
            decision_key(scope.cluster, "*"),
            *kept,
            wildcard="a record and its snapshot per decision, named by its id",
        ),
        *launch_grants(scope.cluster, scope.region, scope.vpc_id, scope.node_roles),
        *volume_key_grants(scope.region, scope.kms_key_arns),
    ]


def lifecycle_grants(scope: Scope) -> list[Grant]:
    """Follow instances and claims, name instances, end what was given up. The API server is for RBAC."""
    return [
        *ledger_grants(scope),
        *learned_grants(scope, "PutItem"),
        *read_grants(scope.region, snapshot_key(scope.cluster), unplaced_key(scope.cluster)),
        describe_grant(scope.region, "Instances"),
        tag_grant(scope.cluster, scope.region),
        terminate_grant(scope.cluster, scope.region),
        describe_cluster_grant(scope),
        send_grant(scope, "disruption", "lifecycle", "provisioning", "readiness", "termination"),
        *metrics_grants(scope, "lifecycle"),
    ]


def termination_grants(scope: Scope) -> list[Grant]:
    """End nodes: see what runs, terminate it. Taints and evictions are for RBAC."""
    return [
        *ledger_grants(scope),
        *read_grants(scope.region, snapshot_key(scope.cluster)),
        describe_grant(scope.region, "Instances"),
        terminate_grant(scope.cluster, scope.region),
        describe_cluster_grant(scope),
        send_grant(scope, "disruption", "provisioning", "readiness", "termination"),
        *metrics_grants(scope, "termination"),
    ]


def readiness_grants(scope: Scope) -> list[Grant]:
    """Resolve EC2NodeClasses: subnets, security groups, images, instance profiles; try in dry runs whether they launch.

    IAM has no condition that tells dry runs from launches: these rights are for things tagged with a NodePool of
    their own, so no node that serves pods can be launched by them.
    """
    public = names.arn("ssm", "parameter/aws/service/*", region=scope.region, account="")
    own = (
        names.arn("ssm", f"parameter/{name.removeprefix('/')}", region=scope.region)
        for name in scope.ssm_parameters
    )
    return [
        *ledger_grants(scope),
        *read_grants(scope.region, snapshot_key(scope.cluster)),
        describe_grant(scope.region, "CapacityReservations", "Images", "SecurityGroups", "Subnets"),
        Grant(
            "ResolveImages",
            ("ssm:GetParameter",),
            (public, *own),
            wildcard="AWS's public parameters: one per Kubernetes version, family, architecture and image version",
        ),
        *instance_profile_grants(scope.cluster, scope.region),
        *launch_grants(scope.cluster, scope.region, scope.vpc_id, scope.node_roles, DRY_RUN_NODEPOOL),
        describe_cluster_grant(scope),
        send_grant(scope, "disruption", "lifecycle", "provisioning"),
        *metrics_grants(scope, "readiness"),
    ]


def observation_grants(scope: Scope) -> list[Grant]:
    """Stand in for the forwarder: write the snapshot, wake those who read it."""
    key = snapshot_key(scope.cluster)
    return [
        *read_grants(scope.region, key),
        write_grant(scope.region, key),
        describe_cluster_grant(scope),
        send_grant(scope, *INFORMED),
    ]


def repair_grants(scope: Scope) -> list[Grant]:
    """Say which nodes are to go: termination ends them. Events are for RBAC."""
    return [
        *ledger_grants(scope),
        *read_grants(scope.region, snapshot_key(scope.cluster)),
        describe_cluster_grant(scope),
        send_grant(scope, "provisioning", "termination"),
        *metrics_grants(scope, "repair"),
    ]


def garbagecollection_grants(scope: Scope) -> list[Grant]:
    """Find what was made for the cluster, and let go of it. What it writes to the API server is for RBAC."""
    return [
        *ledger_grants(scope),
        *read_grants(scope.region, snapshot_key(scope.cluster)),
        describe_grant(scope.region, "Instances", "LaunchTemplates", "NetworkInterfaces", "Volumes"),
        *collection_grants(scope.cluster, scope.region),
        describe_cluster_grant(scope),
        send_grant(scope, "termination"),
        *metrics_grants(scope, "garbagecollection"),
    ]


def routing_grants(region: str) -> list[Grant]:
    """Tell whose an instance is, by the indexes of the table and not by what it holds; pass on what is said of it."""
    indexes = (
        names.arn("dynamodb", f"table/{names.TABLE_NAME}/index/{name}", region=region) for name in INDEXES
    )
    queue = names.arn("sqs", names.physical_name("*", "interruption"), region=region)
    return [
        Grant("WhoseItIs", ("dynamodb:Query",), tuple(indexes)),
        Grant("PassOn", ("sqs:SendMessage",), (queue,), wildcard="every cluster of the region has one"),
    ]


def catalog_grants(region: str) -> list[Grant]:
    """Collect what can be bought in a region. The price list has its endpoints elsewhere, so no region binds it."""
    key = catalog_key(region)
    kinds = ("AvailabilityZones", "InstanceTypeOfferings", "InstanceTypes", "SpotPriceHistory")
    return [
        *read_grants(region, key),
        write_grant(region, key),
        describe_grant(region, *kinds),
        Grant("ReadPrices", ("pricing:GetProducts",), ("*",), wildcard="the price list knows no resources"),
    ]
