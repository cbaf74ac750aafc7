"""Physical names and ARNs. They are functions of account, region and cluster, so that no stack imports from another.

An export that is in use can not be changed, and would tie every cluster's upgrade to the account's.
"""

from __future__ import annotations

from hashlib import sha256

from aws_cdk import Aws

TAG = "nodesmith"  # on all that is deployed: the cluster it serves, or "shared"
TABLE_NAME = "nodesmith"
CATALOG_FUNCTION = "nodesmith-catalog"
LONGEST_NAME = 64  # Lambda's limit, the tightest of those that use `physical_name`


def bucket_name(region: str) -> str:
    """Name the bucket of snapshots, catalogue and decisions."""
    return f"nodesmith-{Aws.ACCOUNT_ID}-{region}"


def physical_name(cluster: str, concern: str) -> str:
    """Name a cluster's queue, function and log group of a concern; a long cluster name is cut and hashed."""
    room = LONGEST_NAME - len(f"nodesmith--{concern}")
    if len(cluster) > room:
        cluster = f"{cluster[: room - 9]}-{sha256(cluster.encode()).hexdigest()[:8]}"
    return f"nodesmith-{cluster}-{concern}"


def arn(service: str, resource: str, *, region: str = "", account: str = Aws.ACCOUNT_ID) -> str:
    """Write an ARN in the deployment's own partition."""
    return f"arn:{Aws.PARTITION}:{service}:{region}:{account}:{resource}"


def bucket_arn(region: str) -> str:
    """Write the ARN of the bucket."""
    return arn("s3", bucket_name(region), account="")


def object_arn(region: str, key: str) -> str:
    """Write the ARN of an object of the bucket; `key` may be a pattern."""
    return f"{bucket_arn(region)}/{key}"


def role_arn(name: str) -> str:
    """Write the ARN of an IAM role of this account; `name` may carry a path."""
    return arn("iam", f"role/{name}")


def cluster_arn(region: str, cluster: str) -> str:
    """Write the ARN of an EKS cluster of this account."""
    return arn("eks", f"cluster/{cluster}", region=region)
