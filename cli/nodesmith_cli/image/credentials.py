"""Whose name and password a registry is given: those on the command line, AWS's for ECR, Docker's for all others."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodesmith.errors import Rejected
from nodesmith_cli.image.ecr import ecr_login, ecr_of
from nodesmith_cli.image.references import DOCKER_HUB, Reference


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and a password. `origin` is for messages: where they come from."""

    username: str
    password: str = field(repr=False)
    origin: str


def credentials_for(reference: Reference, given: Credentials | None = None) -> Credentials | None:
    """Find what the reference's registry takes; None for an anonymous user. Raises Rejected, Transient."""
    if given is not None:
        return given
    if (found := ecr_of(reference)) is not None:
        username, password = ecr_login(found)
        return Credentials(username, password, "your AWS credentials")
    return _docker_login(reference.registry)


def _docker_login(registry: str) -> Credentials | None:
    """Read Docker's configuration: its logins, its store and its helpers."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        login = load_config().resolve_authconfig(None if registry == DOCKER_HUB else registry)
    except (DockerException, OSError, ValueError) as error:
        raise Rejected(f"Docker's configuration, for {registry}: {error}") from None
    said = {key.lower(): value for key, value in (login or {}).items()}
    if said.get("identitytoken"):
        remedy = "give --username and --password-stdin"
        raise Rejected(
            f"Docker's login to {registry} is an identity token, which cannot be used here: {remedy}"
        )
    if not said.get("username"):
        return None
    return Credentials(said["username"], said["password"], f"Docker's login to {registry}")
