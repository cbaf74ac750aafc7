"""Bearer tokens for EKS: a presigned GetCallerIdentity request that the API server sends to STS.

Format (aws-iam-authenticator): `k8s-aws-v1.` followed by the unpadded base64url of a presigned URL of the regional
endpoint. The signature covers the header `x-k8s-aws-id`, the cluster's name. A token is valid for 15 minutes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_PREFIX = "k8s-aws-v1."
_KEPT_FOR = timedelta(minutes=14)
_URL_EXPIRES_SECONDS = 60


def eks_token(credentials: Credentials, cluster: str, region: str) -> str:
    """Return a new token."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    request = AWSRequest(
        method="GET",
        url=f"https://sts.{region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15",
        headers={"x-k8s-aws-id": cluster},
    )
    frozen = credentials.get_frozen_credentials()
    signer = SigV4QueryAuth(frozen, "sts", region, expires=_URL_EXPIRES_SECONDS)
    signer.add_auth(request)
    return _PREFIX + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")


class EksToken:
    """A callable that returns a token and renews it before it expires."""

    def __init__(
        self,
        credentials: Credentials,
        cluster: str,
        region: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._credentials = credentials
        self._cluster = cluster
        self._region = region
        self._clock = clock
        self._token = ""
        self._until = datetime.min.replace(tzinfo=UTC)

    def __call__(self) -> str:
        now = self._clock()
        if now >= self._until:
            self._token = eks_token(self._credentials, self._cluster, self._region)
            self._until = now + _KEPT_FOR
        return self._token
