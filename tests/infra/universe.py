"""The calls that a function could make: about resources of one cluster, and about shared resources.

The list is independent of the statements, so that a statement that allows too much matches a call here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from infra.functions.concerns import CLUSTER_CONCERNS
from infra.permissions.launching import EBS_KEY_USES, LAUNCHED, LAUNCHING
from nodesmith.keys import (
    budget_partition_key,
    catalog_key,
    commitments_key,
    decision_key,
    decision_snapshot_key,
    forwarder_partition_key,
    health_partition_key,
    learned_partition_key,
    metrics_key,
    notices_partition_key,
    notified_key,
    on_sale_key,
    partition_key,
    shadow_key,
    snapshot_base_key,
    snapshot_key,
    unplaced_key,
)
from nodesmith.model.costs.allocations import BOOKED, DAYS, HOURS, MONTHS, MOVES, allocations_key
from nodesmith.model.functions import MEASURED, OBSERVED_TICK_MINUTES, TALKING, TICK_MINUTES
from nodesmith.registration import CANARY_PARAMETER, LIMIT_PARAMETERS, PARAMETERS, parameter_name
from nodesmith.settings import (
    DEAD_LETTER_QUEUE_NAME,
    HEALTH_DETAIL_TYPE,
    HEALTH_SOURCE,
    NOTIFICATIONS,
    QUEUE_NAME,
    function_name,
)
from tests.infra.deployment import ACCOUNT, PAYER_ROLE, PRIVATE, REGION, VOLUME_KEY
from tests.infra.iam import Context

BUCKET = f"arn:aws:s3:::nodesmith-{ACCOUNT}-{REGION}-an"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/nodesmith"
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
IAM = f"arn:aws:iam::{ACCOUNT}"
LAMBDA = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function"
SQS = f"arn:aws:sqs:{REGION}:{ACCOUNT}"
SSM = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter"
OWN = {"aws:ResourceAccount": ACCOUNT}
LEDGER_ACTIONS = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "PutItem", "Query", "UpdateItem")
ATTACHING = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:UnassignPrivateIpAddresses",
)
_KIND_OF_DELETION = {
    "ec2:StartInstances": "instance",
    "ec2:StopInstances": "instance",
    "ec2:TerminateInstances": "instance",
    "ec2:DeleteLaunchTemplate": "launch-template",
    "ec2:DeleteNetworkInterface": "network-interface",
    "ec2:DeleteVolume": "volume",
}
_DESCRIBED = (
    *("AvailabilityZones", "CapacityReservations", "Images", "InstanceStatus", "InstanceTypeOfferings"),
    *(
        "InstanceTypes",
        "Instances",
        "LaunchTemplates",
        "NetworkInterfaces",
        "PlacementGroups",
        "ReservedInstances",
        "SecurityGroups",
    ),
    *("SpotInstanceRequests", "SpotPriceHistory", "Subnets", "Volumes"),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as sessions name it."""

    name: str
    vpc_id: str


@dataclass(frozen=True, slots=True)
class Call:
    """One query to IAM. `about` describes it. `whose` is a cluster's name, empty for shared resources.

    `open_to` are the concerns that may make the call without a session, although it is about one cluster.
    """

    action: str
    resource: str
    about: str
    whose: str = ""
    context: Context = field(default_factory=dict)
    open_to: tuple[str, ...] = ()


def cluster_calls(of: Cluster, asking: Cluster) -> Iterator[Call]:
    """Yield calls about one cluster's resources; if `asking` is another, also calls that mix the names of both."""
    yield from _kept(of, asking)
    yield from _launches(of, asking)
    yield from _existing(of, asking)
    yield from _profiles(of)
    cluster = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{of.name}"
    yield Call("eks:DescribeCluster", cluster, "the EKS cluster", of.name)
    shifts = {"arc-zonal-shift:ResourceIdentifier": cluster}
    yield Call("arc-zonal-shift:GetManagedResource", cluster, "its zonal shifts", of.name, shifts)
    role, to_ec2 = f"{IAM}:role/KarpenterNodeRole-{of.name}", {"iam:PassedToService": "ec2.amazonaws.com"}
    yield Call("iam:PassRole", role, "role KarpenterNodeRole-<cluster>, to EC2", of.name, to_ec2)
    parameter = f"{SSM}{parameter_name(of.name)}"
    # A session cannot start until the registration has been read.
    yield Call("ssm:GetParameters", parameter, "the registration", of.name, open_to=tuple(TICK_MINUTES))
    yield Call("ssm:PutParameter", parameter, "the registration", of.name)
    watched = f"{SSM}{parameter_name(of.name, observed=True)}"
    about = "the registration of an observed cluster"
    yield Call("ssm:GetParameters", watched, about, of.name, open_to=tuple(OBSERVED_TICK_MINUTES))
    yield Call("ssm:PutParameter", watched, about, of.name)
    beats: Context = {"dynamodb:LeadingKeys": [forwarder_partition_key(of.name)]}
    for each in LEDGER_ACTIONS:
        yield Call(f"dynamodb:{each}", TABLE, "the forwarder's heartbeat", of.name, beats)
    for about, key in (("ledger", partition_key(of.name)), ("heartbeat", forwarder_partition_key(of.name))):
        for attributes, judges in ((["at", "changed", "pk", "sk"], ("dispatch",)), (["doc", "pk", "sk"], ())):
            marks: Context = {
                "dynamodb:LeadingKeys": [key],
                "dynamodb:Attributes": attributes,
                "dynamodb:Select": "SPECIFIC_ATTRIBUTES",
            }
            what = f"{', '.join(attributes)} of the {about}"
            yield Call("dynamodb:BatchGetItem", TABLE, what, of.name, marks, judges)
    health: Context = {"dynamodb:LeadingKeys": [health_partition_key(of.name)]}
    for each in LEDGER_ACTIONS:
        judges = ("dispatch",) if each == "Query" else ()
        yield Call(f"dynamodb:{each}", TABLE, "the cluster's health", of.name, health, judges)
        keeps = ("routing",) if each == "PutItem" else ()
        notices: Context = {"dynamodb:LeadingKeys": [notices_partition_key(of.name)]}
        yield Call(f"dynamodb:{each}", TABLE, "the cluster's notices", of.name, notices, keeps)


def _kept(of: Cluster, asking: Cluster) -> Iterator[Call]:
    objects = {
        "the snapshot": snapshot_key(of.name),
        "a base of snapshots": snapshot_base_key(of.name, "0" * 64),
        "a decision": decision_key(of.name, "d-1"),
        "a decision's snapshot": decision_snapshot_key(of.name, "d-1"),
        **{
            f"cost allocation: {kind}": allocations_key(kind, of.name, "2026-11-26")
            for kind in (HOURS, DAYS, MONTHS, MOVES, BOOKED)
        },
        "the unplaced pods": unplaced_key(of.name),
        "the shadows": shadow_key(of.name),
        "what is on sale": on_sale_key(of.name),
        "what was notified": notified_key(of.name),
        **{f"metrics of {each}": metrics_key(of.name, each) for each in MEASURED},
    }
    for about, key in objects.items():
        for action in ("s3:GetObject", "s3:PutObject"):
            yield Call(action, f"{BUCKET}/{key}", f"{about} (S3)", of.name, OWN)
    snapshot, listed = snapshot_key(of.name), {**OWN, "s3:prefix": snapshot_key(of.name)}
    yield Call("s3:GetObjectVersion", f"{BUCKET}/{snapshot}", "old snapshots (S3)", of.name, OWN)
    yield Call("s3:ListBucketVersions", BUCKET, "the list of old snapshots (S3)", of.name, listed)
    keys = list(dict.fromkeys([partition_key(asking.name), partition_key(of.name)]))
    for action in LEDGER_ACTIONS:
        yield Call(
            f"dynamodb:{action}",
            TABLE,
            "the ledger",
            of.name,
            {"dynamodb:LeadingKeys": [partition_key(of.name)]},
        )
        if len(keys) > 1:
            mixed: Context = {"dynamodb:LeadingKeys": keys}
            yield Call(
                f"dynamodb:{action}", TABLE, "the ledger together with the caller's own", of.name, mixed
            )


def tags(whose: str, cluster: str, managed_by: str = "", nodepool: str = "default") -> dict[str, str]:
    """Return the condition keys of a cluster's tags, on the request or on the resource (`whose`).

    The tag that only nodesmith sets may name another cluster, `managed_by`.
    """
    return {
        f"aws:{whose}Tag/kubernetes.io/cluster/{cluster}": "owned",
        f"aws:{whose}Tag/eks:eks-cluster-name": cluster,
        f"aws:{whose}Tag/nodesmith.dev/managed-by": managed_by or cluster,
        f"aws:{whose}Tag/karpenter.sh/nodepool": nodepool,
        f"aws:{whose}Tag/karpenter.k8s.aws/ec2nodeclass": "default",
        f"aws:{whose}Tag/topology.kubernetes.io/region": REGION,
    }


def _owners(of: Cluster, asking: Cluster, whose: str, nodepool: str = "default") -> Iterator[dict[str, str]]:
    """Yield tags that all name the cluster, and mixed tags that name it and the cluster that asks."""
    yield tags(whose, of.name, nodepool=nodepool)
    if of != asking:
        yield tags(whose, of.name, asking.name, nodepool)
        yield tags(whose, asking.name, of.name, nodepool)


def _launches(of: Cluster, asking: Cluster) -> Iterator[Call]:
    for nodepool, why in (("default", "any NodePool"), ("validation", "dry runs")):
        for given in _owners(of, asking, "Request", nodepool):
            for kind in (*LAUNCHED, "launch-template"):
                made, about = f"{EC2}:{kind}/1", f"new {kind}, tagged for {why}"
                for action in ("ec2:CreateLaunchTemplate",) if kind == "launch-template" else LAUNCHING:
                    yield Call(action, made, about, of.name, given)
                born = {**given, "ec2:CreateAction": "CreateFleet"}
                yield Call("ec2:CreateTags", made, about, of.name, born)
        for owned in _owners(of, asking, "Resource", nodepool):
            template = f"{EC2}:launch-template/lt-1"
            for action in LAUNCHING:
                # What the request itself creates carries the caller's tags.
                asked = {**owned, **tags("Request", asking.name, nodepool=nodepool)}
                yield Call(action, template, f"launch template of {why}", of.name, asked)
    for kind in ("subnet", "security-group"):
        for action in LAUNCHING:
            vpc: Context = {"ec2:Vpc": f"{EC2}:vpc/{of.vpc_id}"}
            yield Call(action, f"{EC2}:{kind}/1", f"{kind} of the VPC", of.name, vpc)


def _existing(of: Cluster, asking: Cluster) -> Iterator[Call]:
    """Yield calls about existing resources: to end them, tag them, or take them over."""
    for owned in _owners(of, asking, "Resource"):
        for action, kind in _KIND_OF_DELETION.items():
            yield Call(action, f"{EC2}:{kind}/1", f"{kind} with the cluster's tags", of.name, owned)
        naming: Context = {**owned, "aws:TagKeys": ["Name", "karpenter.sh/nodeclaim"]}
        yield Call("ec2:CreateTags", f"{EC2}:instance/i-1", "an instance's names", of.name, naming)
        if of != asking:
            over: Context = {**owned, **tags("Request", asking.name), "aws:TagKeys": ["eks:eks-cluster-name"]}
            for kind in LAUNCHED:
                yield Call("ec2:CreateTags", f"{EC2}:{kind}/1", f"{kind}, taken over", of.name, over)


def _profiles(of: Cluster) -> Iterator[Call]:
    path = f"{IAM}:instance-profile/nodesmith/{REGION}/{of.name}/uid/{of.name}_0123456789abcdef"
    about = "instance profile in the cluster's path"
    for action in ("iam:CreateInstanceProfile", "iam:TagInstanceProfile"):
        yield Call(action, path, about, of.name, tags("Request", of.name))
    for action in (
        "iam:AddRoleToInstanceProfile",
        "iam:DeleteInstanceProfile",
        "iam:RemoveRoleFromInstanceProfile",
    ):
        yield Call(action, path, about, of.name, tags("Resource", of.name))
    yield Call("iam:GetInstanceProfile", path, about, of.name)
    missing = f"{IAM}:instance-profile/{of.name}_0123456789abcdef"
    yield Call("iam:GetInstanceProfile", missing, "instance profile that does not exist", of.name)


def shared_calls(role: str) -> Iterator[Call]:
    """Yield calls about shared resources; `role` is the ARN of the calling role."""
    here: Context = {"aws:RequestedRegion": REGION}
    for kind in _DESCRIBED:
        yield Call(f"ec2:Describe{kind}", "*", "this region", context=here)
    for action in LAUNCHING:
        for kind in ("image", "snapshot"):
            yield Call(action, f"arn:aws:ec2:{REGION}::{kind}/1", f"any {kind}")
        yield Call(action, f"{EC2}:capacity-reservation/cr-1", "any capacity reservation")
        yield Call(action, f"{EC2}:placement-group/any", "any placement group")
    learned: Context = {"dynamodb:LeadingKeys": [learned_partition_key(REGION)]}
    budget: Context = {"dynamodb:LeadingKeys": [budget_partition_key(REGION)]}
    for each in LEDGER_ACTIONS:
        yield Call(f"dynamodb:{each}", TABLE, "lessons from nodes", context=learned)
        yield Call(f"dynamodb:{each}", TABLE, "what clusters share of EC2 calls and money", context=budget)
        own: Context = {"dynamodb:LeadingKeys": [health_partition_key("")]}
        yield Call(f"dynamodb:{each}", TABLE, "the region's health", context=own)
    for index in ("instance", "reservation"):
        yield Call("dynamodb:Query", f"{TABLE}/index/{index}", f"index {index}")
    for action in ("s3:GetObject", "s3:PutObject"):
        yield Call(action, f"{BUCKET}/{catalog_key(REGION)}", "the catalogue (S3)", context=OWN)
        yield Call(action, f"{BUCKET}/{commitments_key(REGION)}", "the commitments (S3)", context=OWN)
    yield Call("s3:ListBucket", BUCKET, "the bucket's keys", context=OWN)
    yield Call("pricing:GetProducts", "*", "the price list")
    for action in ("savingsplans:DescribeSavingsPlanRates", "savingsplans:DescribeSavingsPlans"):
        yield Call(action, "*", "the account's Savings Plans")
    yield Call("sts:AssumeRole", PAYER_ROLE, "the payer's role")
    yield Call("iam:ListInstanceProfiles", "*", "the account")
    to_ec2: Context = {"iam:PassedToService": "ec2.amazonaws.com"}
    yield Call(
        "iam:PassRole", f"{IAM}:role/gpu-nodes", "role gpu-nodes of the region, to EC2", context=to_ec2
    )
    yield from _keys_and_images()
    yield from _by_itself()
    for action in ("sts:AssumeRole", "sts:TagSession"):
        yield Call(action, role, "its own role, for a session")


def _keys_and_images() -> Iterator[Call]:
    through: Mapping[str, str] = {"kms:ViaService": f"ec2.{REGION}.amazonaws.com"}
    for action in EBS_KEY_USES:
        yield Call(action, VOLUME_KEY, "the region's key for volumes, through EC2", context=through)
    for_aws: Context = {**through, "kms:GrantIsForAWSResource": "true"}
    yield Call("kms:CreateGrant", VOLUME_KEY, "the region's key for volumes, through EC2", context=for_aws)
    public = f"arn:aws:ssm:{REGION}::parameter/aws/service/eks/optimized-ami/1.35/recommended"
    yield Call("ssm:GetParameter", public, "AWS's public parameters")
    for name in ("golden/image", "team-image"):
        yield Call("ssm:GetParameter", f"{SSM}/{name}", f"parameter {name} of the region")


def _by_itself() -> Iterator[Call]:
    """Yield calls that a function makes without a session, and calls that Lambda makes on its behalf."""
    yield Call("ssm:GetParametersByPath", f"{SSM}{PARAMETERS}", "the list of registrations")
    yield Call("ssm:GetParametersByPath", f"{SSM}{LIMIT_PARAMETERS}", "the list of spending limits")
    yield Call(
        "arc-zonal-shift:ListManagedResources",
        "*",
        "the zonal shifts of all clusters",
        context={"aws:RequestedRegion": REGION},
    )
    for action in ("ssm:GetParameters", "ssm:PutParameter"):
        yield Call(action, f"{SSM}{CANARY_PARAMETER}", "the clusters on trial")
    for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
        stream = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/lambda/nodesmith:log-stream:1"
        yield Call(action, stream, "the log group")
    for action in ("xray:PutTelemetryRecords", "xray:PutTraceSegments"):
        yield Call(action, "*", "X-Ray")
    for action in ATTACHING:
        yield Call(action, "*", "any network interface")
    for name in (QUEUE_NAME, DEAD_LETTER_QUEUE_NAME):
        for what in ("DeleteMessage", "GetQueueAttributes", "ReceiveMessage", "SendMessage"):
            yield Call(f"sqs:{what}", f"{SQS}:{name}", f"queue {name}")
    for name in (*(each.name for each in CLUSTER_CONCERNS), "catalog", "dispatch", "routing"):
        for vpc in ("", PRIVATE) if name in TALKING else ("",):
            woken = function_name(name, vpc)
            for alias in (":live", ":canary", ""):
                arn = f"{LAMBDA}:{woken}{alias}"
                yield Call("lambda:InvokeFunction", arn, f"function {woken}{alias}")
    yield from _events()


def _events() -> Iterator[Call]:
    bus = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
    kinds = {"changes of health": HEALTH_DETAIL_TYPE} | {
        f"notifications {kind}": kind for kind in NOTIFICATIONS
    }
    for about, kind in kinds.items():
        reported: Context = {"events:source": HEALTH_SOURCE, "events:detail-type": kind}
        yield Call("events:PutEvents", bus, about, context=reported)
