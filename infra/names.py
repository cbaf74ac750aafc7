"""Physical names and ARNs, computed from account, region and VPC so that no stack imports from another.

An export that is in use cannot be changed, and would tie every cluster's stack to the region's.
"""

from __future__ import annotations

from aws_cdk import Aws

from nodesmith.settings import ALIAS, QUEUE_NAME
from nodesmith.settings import function_name as function_name
from nodesmith.settings import role_name as role_name

TAG = "nodesmith"  # on everything deployed; its value is the cluster that it serves, or "shared"
TABLE_NAME = "nodesmith"
BUCKET_PREFIX = "nodesmith"
LOG_GROUP_NAME = "/aws/lambda/nodesmith"


def has_own_namespace(region: str) -> bool:
    """Return whether S3 offers bucket names in a region that are reserved for this account."""
    return region not in ("me-central-1", "me-south-1")


def bucket_name(region: str) -> str:
    """Return the name of the bucket of snapshots, catalogue and decisions.

    The suffix puts it into the account's own namespace: no other account can take the name, even after deletion.
    """
    suffix = "-an" if has_own_namespace(region) else ""
    return f"{BUCKET_PREFIX}-{Aws.ACCOUNT_ID}-{region}{suffix}"


def arn(service: str, resource: str, *, region: str = "", account: str = Aws.ACCOUNT_ID) -> str:
    """Return an ARN in the partition of the deployment."""
    return f"arn:{Aws.PARTITION}:{service}:{region}:{account}:{resource}"


def bucket_arn(region: str) -> str:
    """Return the ARN of the bucket."""
    return arn("s3", bucket_name(region), account="")


def object_arn(region: str, key: str) -> str:
    """Return the ARN of an object in the bucket; `key` may be a pattern."""
    return f"{bucket_arn(region)}/{key}"


def role_arn(name: str) -> str:
    """Return the ARN of an IAM role of this account; `name` may include a path."""
    return arn("iam", f"role/{name}")


def own_role_arn(concern: str, region: str, vpc: str = "") -> str:
    """Return the ARN of the role of a concern's function, or of the forwarder."""
    return role_arn(role_name(concern, region, vpc))


def function_arn(region: str, concern: str, vpc: str = "", alias: str = ALIAS) -> str:
    """Return the ARN that invokes a concern's function: its alias."""
    return arn("lambda", f"function:{function_name(concern, vpc)}:{alias}", region=region)


def queue_arn(region: str, name: str) -> str:
    """Return the ARN of a queue."""
    return arn("sqs", name, region=region)


def queue_url(region: str) -> str:
    """Return the URL of the queue in which delayed invocations wait."""
    return f"https://sqs.{region}.{Aws.URL_SUFFIX}/{Aws.ACCOUNT_ID}/{QUEUE_NAME}"


def cluster_arn(region: str, cluster: str) -> str:
    """Return the ARN of an EKS cluster of this account."""
    return arn("eks", f"cluster/{cluster}", region=region)
