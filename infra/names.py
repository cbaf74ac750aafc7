"""Physical names and ARNs. They are functions of account, region and cluster, so that no stack imports from another.

An export that is in use can not be changed, and would tie every cluster's upgrade to the account's.
"""

from __future__ import annotations

from aws_cdk import Aws

from nodesmith.settings import physical_name as physical_name

TAG = "nodesmith"  # on all that is deployed: the cluster it serves, or "shared"
TABLE_NAME = "nodesmith"
BUCKET_PREFIX = "nodesmith"


def has_own_namespace(region: str) -> bool:
    """Whether S3 gives each account a namespace of its own in a region, for buckets that no other account can have."""
    return region not in ("me-central-1", "me-south-1")


def bucket_name(region: str) -> str:
    """Return the name of the bucket of snapshots, catalogue and decisions.

    The last part puts it into the account's own namespace: nobody else can take the name, also when the bucket is gone.
    """
    suffix = "-an" if has_own_namespace(region) else ""
    return f"{BUCKET_PREFIX}-{Aws.ACCOUNT_ID}-{region}{suffix}"


def shared_name(concern: str) -> str:
    """Name function, log group and queue of a concern that all clusters of a region share."""
    return f"nodesmith-{concern}"


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
