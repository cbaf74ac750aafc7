"""AWS's clients: with the user's own settings, and it is said where these do not do; or of a local AWS."""

from __future__ import annotations

import os
from typing import Any

from nodesmith.errors import Rejected


def aws_client(service: str, region: str) -> Any:
    """Return the boto3 client of a service; an empty region is that of the user's settings. Raises Rejected.

    Of these AWS_REGION comes first, as with the aws command; boto3 by itself does not look at it.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, NoRegionError

    try:
        return boto3.client(service, region_name=region or os.environ.get("AWS_REGION") or None)
    except NoRegionError:
        raise Rejected("no AWS region is known: give --region, or set AWS_REGION") from None
    except BotoCoreError as error:  # such as a profile that is not there
        raise Rejected(f"AWS settings: {error}") from None


def local_client(service: str, region: str, url: str) -> Any:
    """Return the boto3 client of a service of an AWS that runs on this machine, at `url`."""
    import boto3

    return boto3.client(
        service,
        region_name=region,
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 nobody checks them
    )
