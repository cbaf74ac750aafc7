from __future__ import annotations

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.references import Reference, parse_reference, parse_target

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("text", "reference", "host"),
    [
        ("python", Reference("docker.io", "library/python"), "registry-1.docker.io"),
        ("python:3.13-slim", Reference("docker.io", "library/python", "3.13-slim"), "registry-1.docker.io"),
        ("index.docker.io/me/x", Reference("docker.io", "me/x"), "registry-1.docker.io"),
        ("ghcr.io/org/x:v1", Reference("ghcr.io", "org/x", "v1"), "ghcr.io"),
        ("localhost/x", Reference("localhost", "x"), "localhost"),
        ("localhost:5000/x:v1", Reference("localhost:5000", "x", "v1"), "localhost:5000"),
        (f"[::1]:5000/x@{DIGEST}", Reference("[::1]:5000", "x", "", DIGEST), "[::1]:5000"),
        (f"a.example/b/c:d@{DIGEST}", Reference("a.example", "b/c", "d", DIGEST), "a.example"),
    ],
)
def test_a_reference_is_parsed_like_in_docker(text: str, reference: Reference, host: str) -> None:
    assert parse_reference(text) == reference
    assert reference.host == host
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://ghcr.io/org/x", "did you mean 'ghcr.io/org/x'"),
        ("ghcr.io/Org/X", "did you mean ghcr.io/org/x?"),
        ("ghcr.io/", "the repository's name is missing"),
        ("ghcr.io/a//b", "is not a repository"),
        ("ghcr.io/org/x:", "'' is not a tag"),
        ("ghcr.io/org/x:-v", "'-v' is not a tag"),
        ("ghcr.io/org/x@sha256:12", "expected a digest after @"),
        ("gh_cr.io:x/org", "is not a registry address"),
        (f"ghcr.io/{'x' * 255}", "255 characters"),
        ("", "is missing"),
    ],
)
def test_an_invalid_reference_is_refused_with_a_hint(text: str, says: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_reference(text)
    assert says in str(refused.value)


def test_the_tag_of_a_target_defaults_to_the_version() -> None:
    assert parse_target("ghcr.io/org/x", "0.1.0").tag == "0.1.0"
    assert parse_target("ghcr.io/org/x:v1", "0.1.0").tag == "v1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodesmith-forwarder", "has no registry: prepend one, as in 111122223333.dkr.ecr"),
        ("org/x", "has no registry: did you mean docker.io/org/x?"),
        (f"ghcr.io/org/x@{DIGEST}", "is pushed by tag"),
    ],
)
def test_a_target_needs_a_registry_and_must_not_have_a_digest(text: str, says: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_target(text, "0.1.0")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("registry", "is_here"),
    [
        ("localhost:5000", True),
        ("127.0.0.2", True),
        ("[::1]:5000", True),
        ("localhost.example", False),
        ("10.0.0.1", False),
    ],
)
def test_a_registry_on_this_machine_is_one_at_a_loopback_address(registry: str, is_here: bool) -> None:
    assert Reference(registry, "x").is_on_this_machine == is_here
