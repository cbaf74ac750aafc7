"""Credentials for a registry: from the command line, from AWS for ECR, or from Docker's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.ecr import ecr_login, ecr_of
from nodesmith_cli.deployment.image.references import DOCKER_HUB, Reference


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and password. `origin` describes their source in messages."""

    username: str
    password: str = field(repr=False)
    origin: str


def credentials_for(reference: Reference, credentials: Credentials | None = None) -> Credentials | None:
    """Return the credentials for the reference's registry, or None for anonymous access. Raises Rejected, Transient."""
    if credentials is not None:
        return credentials
    if (ecr_host := ecr_of(reference)) is not None:
        username, password = ecr_login(ecr_host)
        return Credentials(username, password, "your AWS credentials")
    return _docker_login(reference.registry)


def _docker_login(registry: str) -> Credentials | None:
    """Return the login in Docker's configuration, including its credential store and helpers, or None."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        login = load_config().resolve_authconfig(None if registry == DOCKER_HUB else registry)
    except (DockerException, OSError, ValueError) as error:
        raise Rejected(f"Docker's configuration, for {registry}: {error}") from None
    fields = {key.lower(): value for key, value in (login or {}).items()}
    if fields.get("identitytoken"):
        remedy = "use --username and --password-stdin"
        raise Rejected(f"Docker's login to {registry} is an identity token, which is not supported: {remedy}")
    if not fields.get("username"):
        return None
    return Credentials(fields["username"], fields["password"], f"Docker's login to {registry}")
