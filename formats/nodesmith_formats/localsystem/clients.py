"""boto3 clients for the AWS of a local system."""

from __future__ import annotations

from typing import Any


def local_client(service: str, region: str, url: str) -> Any:
    """Return the boto3 client of a service for a local AWS at `url`."""
    import boto3

    return boto3.client(
        service,
        region_name=region,
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 not checked
    )
