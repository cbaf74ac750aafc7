"""boto3 clients with the user's AWS configuration."""

from __future__ import annotations

import os
from typing import Any

from nodesmith.errors import Rejected


def aws_client(service: str, region: str) -> Any:
    """Return the boto3 client of a service. Raises Rejected if the AWS configuration is incomplete.

    An empty region means the configured one. AWS_REGION takes precedence, as in the AWS CLI; boto3 ignores it.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, NoRegionError

    try:
        return boto3.client(service, region_name=region or os.environ.get("AWS_REGION") or None)
    except NoRegionError:
        raise Rejected("no AWS region is set: use --region, or set AWS_REGION") from None
    except BotoCoreError as error:  # such as an unknown profile
        raise Rejected(f"AWS configuration: {error}") from None
