"""Sessions of a function's role, each limited to the work of one cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.session import Session, get_session

from nodesmith.registration import CLUSTER_TAG, VPC_TAG, Registration


class _Provider(CredentialProvider):
    """Provides the credentials that it was created with."""

    METHOD = CANONICAL_NAME = "nodesmith-session"

    def __init__(self, credentials: DeferredRefreshableCredentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> DeferredRefreshableCredentials:
        return self._credentials


def cluster_session(base: Any, role_arn: str, region: str, registration: Registration) -> Session:
    """Return a botocore session that assumes the role, tagged with a cluster and its VPC.

    `base` is the session of the function itself. Credentials are fetched from STS on first use and refreshed before
    they expire. The role session is named after the cluster: EKS makes that name part of the Kubernetes user name.
    """
    tags = {CLUSTER_TAG: registration.cluster, VPC_TAG: registration.vpc_id}
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=partial(base.create_client, region_name=region),
        source_credentials=base.get_credentials(),
        role_arn=role_arn,
        extra_args={
            "RoleSessionName": registration.cluster,
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        },
    )
    credentials = DeferredRefreshableCredentials(
        method="assume-role", refresh_using=fetcher.fetch_credentials
    )
    session = get_session()
    session.register_component("credential_provider", CredentialResolver([_Provider(credentials)]))
    # Share the loader, so that the models of AWS APIs are read once for all clusters.
    session.register_component("data_loader", base.get_component("data_loader"))
    return session
