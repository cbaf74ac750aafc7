"""Image references: registry, repository, tag and digest."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from ipaddress import ip_address

from nodesmith.errors import Rejected

DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"
_EXAMPLE = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/nodesmith-forwarder"
# The grammar of the distribution project: https://github.com/distribution/reference
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """An image reference. `registry` includes a port if there is one. `tag` and `digest` may be empty."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"

    @property
    def name(self) -> str:
        """The registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def host(self) -> str:
        """The host of the registry's API, with its port."""
        return _DOCKER_HUB_API if self.registry == DOCKER_HUB else self.registry

    @property
    def is_on_this_machine(self) -> bool:
        """True if the registry has a loopback address."""
        bare = re.sub(r":[0-9]+$", "", self.registry).strip("[]")
        try:
            return bare == "localhost" or ip_address(bare).is_loopback
        except ValueError:
            return False

    def by_digest(self, digest: str) -> Reference:
        """Return the reference of the same repository with this digest."""
        return replace(self, tag="", digest=digest)


def parse_reference(text: str) -> Reference:
    """Parse a reference as Docker does: without a registry, it is on Docker Hub. Raises Rejected."""
    if "://" in text:
        raise Rejected(f"{text!r}: an image reference has no scheme: did you mean {text.split('://')[1]!r}?")
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise Rejected(f"{text!r}: expected a digest after @: sha256: and 64 hexadecimal digits")
    registry, path = _split(rest)
    repository, colon, tag = path.partition(":")
    if not _HOST.fullmatch(registry):
        raise Rejected(f"{text!r}: {registry!r} is not a registry address; use one such as {_EXAMPLE}")
    if not _REPOSITORY.fullmatch(repository) or len(registry) + len(repository) > _LONGEST:
        raise Rejected(f"{text!r}: {_why_no_repository(registry, repository)}")
    if colon and not _TAG.fullmatch(tag):
        raise Rejected(
            f"{text!r}: {tag!r} is not a tag: up to 128 letters, digits, dots, dashes and underscores"
        )
    return Reference(registry, repository, tag, digest)


def parse_target(text: str, default_tag: str) -> Reference:
    """Parse the target of a push. It must have a registry, and must not have a digest. Raises Rejected."""
    if "://" not in text and _is_on_docker_hub(text):
        hint = f": did you mean {DOCKER_HUB}/{text}?" if "/" in text else ""
        raise Rejected(f"{text!r} has no registry{hint or f': prepend one, as in {_EXAMPLE}'}")
    target = parse_reference(text)
    if target.digest:
        raise Rejected(f"{text!r}: an image is pushed by tag; its digest results from its content")
    return replace(target, tag=target.tag or default_tag)


def _is_on_docker_hub(text: str) -> bool:
    first, slash, _ = text.partition("/")
    return not slash or not ("." in first or ":" in first or first == "localhost")


def _split(rest: str) -> tuple[str, str]:
    """Return the registry and the rest. Official images on Docker Hub are in `library/`."""
    registry, path = (DOCKER_HUB, rest) if _is_on_docker_hub(rest) else tuple(rest.split("/", 1))
    if registry in {DOCKER_HUB, "index.docker.io"}:
        return DOCKER_HUB, path if "/" in path else f"library/{path}"
    return registry, path


def _why_no_repository(registry: str, repository: str) -> str:
    if not repository.removeprefix("library/"):
        return "the repository's name is missing"
    if len(registry) + len(repository) > _LONGEST:
        return f"a name has at most {_LONGEST} characters"
    if _REPOSITORY.fullmatch(repository.lower()):
        return f"a repository has no uppercase letters: did you mean {registry}/{repository.lower()}?"
    return f"{repository!r} is not a repository: lowercase letters and digits, separated by single . _ - or /"
