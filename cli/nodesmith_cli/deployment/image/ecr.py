"""Amazon ECR: logging in with AWS credentials, and creating a missing repository."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nodesmith.errors import Rejected
from nodesmith_cli.access.awsclients import aws_client
from nodesmith_cli.deployment.image.references import Reference

# Private registries only, at AWS's own addresses: AWS tokens must not go to any other host.
_HOST = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z]{2,4}(?:-[a-z]+)+-\d+)\."
    r"(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu|on\.aws|on\.amazonwebservices\.com\.cn)"
)
_PUSHING = (
    "ecr:GetAuthorizationToken, and for the repository ecr:BatchCheckLayerAvailability, ecr:BatchGetImage, "
    "ecr:CompleteLayerUpload, ecr:GetDownloadUrlForLayer, ecr:InitiateLayerUpload, ecr:PutImage and "
    "ecr:UploadLayerPart"
)


@dataclass(frozen=True, slots=True)
class Ecr:
    """An account's registry in a region."""

    account: str
    region: str


def ecr_of(reference: Reference) -> Ecr | None:
    """Return the ECR registry of a reference, or None for any other registry."""
    match = _HOST.fullmatch(reference.registry)
    return Ecr(match["account"], match["region"]) if match else None


def ecr_login(ecr: Ecr) -> tuple[str, str]:
    """Return a user name and password, which are valid for 12 hours. Raises Rejected, Transient."""
    with _asking("GetAuthorizationToken", ecr):
        answer = _client(ecr).get_authorization_token()
    username, _, password = (
        b64decode(answer["authorizationData"][0]["authorizationToken"]).decode().partition(":")
    )
    return username, password


def ensure_repository(ecr: Ecr, repository: str) -> bool:
    """Create the repository if it is missing, and return whether it was. Raises Rejected, Transient.

    Without permission to describe it, the push is still attempted, and the registry reports what is missing.
    """
    from botocore.exceptions import ClientError

    from nodesmith.adapters.aws.calls import DENIED, error_code

    client, named = _client(ecr), {"registryId": ecr.account}
    with _asking("DescribeRepositories", ecr):
        try:
            client.describe_repositories(**named, repositoryNames=[repository])
            return False
        except ClientError as error:
            if error_code(error) in DENIED:
                return False
            if error_code(error) != "RepositoryNotFoundException":
                raise
    with _asking(f"CreateRepository of {repository!r}", ecr):
        try:
            client.create_repository(**named, repositoryName=repository)
        except client.exceptions.RepositoryAlreadyExistsException:  # another run was faster
            return False
    return True


def _client(ecr: Ecr) -> Any:
    return aws_client("ecr", ecr.region)


@contextmanager
def _asking(action: str, ecr: Ecr) -> Iterator[None]:
    """Translate the errors of one ECR call, with the permissions that a push needs."""
    from botocore.exceptions import ClientError

    from nodesmith.adapters.aws.calls import DENIED, all_errors, error_code, error_message

    where = f"ECR of account {ecr.account} in {ecr.region}"
    with all_errors(f"{where}: ecr:{action}"):
        try:
            yield
        except ClientError as error:
            if error_code(error) not in DENIED:
                raise
            needed = f"a push needs {_PUSHING}; creating the repository also needs ecr:CreateRepository"
            raise Rejected(f"{where}: {error_message(error)}; {needed}") from None
