"""Sessions of a function's role, each of which may do the work of one cluster and of no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from botocore.credentials import (
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.session import Session, get_session

from nodesmith.registration import CLUSTER_TAG, VPC_TAG, Registration


class _Provider(CredentialProvider):
    """Provides the credentials that it was made with."""

    METHOD = CANONICAL_NAME = "nodesmith-session"

    def __init__(self, credentials: DeferredRefreshableCredentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> DeferredRefreshableCredentials:
        return self._credentials


def cluster_session(
    base: Any, sts: Any, role_arn: str, registration: Registration, clock: Callable[[], datetime]
) -> Session:
    """Return a botocore session that assumes the role, tagged with a cluster and its VPC.

    `base` is the function's own session and `sts` its STS client, which all clusters share: creating and connecting a
    client takes at least 10 ms. Credentials are fetched on first use, and again 15 minutes before they expire by
    `clock`. The role session is named after the cluster: EKS makes that name part of the Kubernetes user name.
    """
    tags = {CLUSTER_TAG: registration.cluster, VPC_TAG: registration.vpc_id}
    asked = {
        "RoleArn": role_arn,
        "RoleSessionName": registration.cluster,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    credentials = DeferredRefreshableCredentials(
        method="assume-role",
        refresh_using=lambda: _credentials(sts.assume_role(**asked), role_arn),
        time_fetcher=clock,
    )
    session = get_session()
    session.register_component("credential_provider", CredentialResolver([_Provider(credentials)]))
    # The models of AWS's APIs are read once for all clusters.
    session.register_component("data_loader", base.get_component("data_loader"))
    return session


def _credentials(answer: Mapping[str, Any], role_arn: str) -> dict[str, str]:
    """Return the credentials of an AssumeRole response in botocore's format."""
    given = answer["Credentials"]
    return {
        "access_key": given["AccessKeyId"],
        "secret_key": given["SecretAccessKey"],
        "token": given["SessionToken"],
        "expiry_time": given["Expiration"].isoformat(),
        "account_id": role_arn.split(":")[4],
    }
