"""boto3 clients with the user's AWS configuration."""

from __future__ import annotations

import os
from typing import Any

from nodesmith.errors import Rejected

_NO_CREDENTIALS = "no AWS credentials found: log in (aws sso login), or set AWS_PROFILE"


def aws_client(service: str, region: str) -> Any:
    """Return the boto3 client of a service. Raises Rejected without credentials or with an incomplete configuration.

    An empty region means the configured one. AWS_REGION takes precedence, as in the AWS CLI; boto3 ignores it.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, NoRegionError

    try:
        session = boto3.Session(region_name=region or os.environ.get("AWS_REGION") or None)
        client, credentials = session.client(service), session.get_credentials()
    except NoRegionError:
        raise Rejected("no AWS region is set: use --region, or set AWS_REGION") from None
    except BotoCoreError as error:  # such as an unknown profile
        raise Rejected(f"AWS configuration: {error}") from None
    if credentials is None:
        raise Rejected(_NO_CREDENTIALS)
    return client
