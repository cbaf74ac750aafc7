"""Logins to registries over TLS: user names and passwords, tokens, Docker's configuration and its helpers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.credentials import Credentials, credentials_for
from nodesmith_cli.deployment.image.documents import Descriptor
from nodesmith_cli.deployment.image.references import Reference, parse_reference
from nodesmith_cli.deployment.image.registry import Repository
from nodesmith_cli.main import app
from nodesmith_local.controlplane.certificates import write_certificates
from tests.registries.bases import digest_of
from tests.registries.strict import Registry, running

LOGIN = ("ci", "s3cret:with:colons")
CONTENT = b"a blob"
BLOB = Descriptor("application/octet-stream", digest_of(CONTENT), len(CONTENT))


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "certificates"
    folder.mkdir()
    write_certificates(folder)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.crt"))
    return folder


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder / "config.json"


@pytest.fixture(params=[False, True], ids=["basic", "tokens"])
def registry(certificates: Path, request: pytest.FixtureRequest) -> Iterator[Registry]:
    with running(certificates=certificates, login=LOGIN, gives_tokens=request.param) as registry:
        yield registry


def sends(registry: Registry, credentials: Credentials | None, tmp_path: Path) -> bool:
    """Return whether a missing blob can be looked up, sent and then read."""
    (tmp_path / "blob").write_bytes(CONTENT)
    with Repository(Reference(registry.address, "team/x"), credentials) as repository:
        before = repository.has(BLOB)
        repository.upload(BLOB, tmp_path / "blob", lambda _sent: None)
        return not before and repository.read(BLOB) == CONTENT


def test_a_user_name_and_password_are_used(registry: Registry, tmp_path: Path) -> None:
    assert sends(registry, Credentials(*LOGIN, "--username ci"), tmp_path)


def test_a_blob_is_mounted_with_access_to_both_repositories(registry: Registry, tmp_path: Path) -> None:
    login = Credentials(*LOGIN, "--username ci")
    assert sends(registry, login, tmp_path)
    source, target = (Reference(registry.address, name) for name in ("team/x", "team/y"))
    with Repository(target, login, writes=True) as repository:
        assert not repository.has(BLOB)
        assert repository.mount(BLOB, source)
        assert repository.read(BLOB) == CONTENT


def test_one_token_is_enough_for_a_push(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(CONTENT)
    with running(certificates=certificates, login=LOGIN, gives_tokens=True) as registry:
        target = Reference(registry.address, "team/x")
        with Repository(target, Credentials(*LOGIN, "--username ci"), writes=True) as repository:
            assert not repository.has(BLOB)
            repository.upload(BLOB, tmp_path / "blob", lambda _sent: None)
    assert sum(path.startswith("/token") for _, path in registry.requests) == 1


def test_a_wrong_password_is_reported_and_not_shown(registry: Registry, tmp_path: Path) -> None:
    wrong = Credentials("ci", "guessed", "--username ci")
    with pytest.raises(
        Rejected, match="401: the registry refused the credentials from --username ci"
    ) as refused:
        sends(registry, wrong, tmp_path)
    assert "guessed" not in f"{refused.value}{wrong!r}"


def test_without_credentials_the_ways_to_provide_them_are_listed(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="no credentials found: run docker login, or use --username"):
        sends(registry, None, tmp_path)


def test_the_login_in_dockers_configuration_is_used(registry: Registry, docker: Path, tmp_path: Path) -> None:
    docker.write_text(
        json.dumps({"auths": {registry.address: {"auth": b64encode(":".join(LOGIN).encode()).decode()}}})
    )
    found = credentials_for(Reference(registry.address, "team/x"))
    assert sends(registry, found, tmp_path)


def test_dockers_credential_helpers_are_used(
    registry: Registry, docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    answer = json.dumps({"ServerURL": registry.address, "Username": LOGIN[0], "Secret": LOGIN[1]})
    helper.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    docker.write_text(json.dumps({"credHelpers": {registry.address: "test"}}))
    found = credentials_for(Reference(registry.address, "team/x"))
    assert sends(registry, found, tmp_path)


def test_a_login_for_another_registry_is_not_used(docker: Path) -> None:
    docker.write_text(json.dumps({"auths": {"ghcr.io": {"auth": b64encode(b"me:x").decode()}}}))
    assert credentials_for(parse_reference("localhost:5000/x")) is None
    assert credentials_for(parse_reference("ghcr.io/x")) == Credentials(
        "me", "x", "Docker's login to ghcr.io"
    )


def test_the_docker_hub_login_is_found_under_its_legacy_name(docker: Path) -> None:
    docker.write_text(
        json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": b64encode(b"me:x").decode()}}})
    )
    assert credentials_for(parse_reference("python")) == Credentials("me", "x", "Docker's login to docker.io")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"auths": {"ghcr.io": {"identitytoken": "t"}}}, "identity token"),
        ({"auths": {"ghcr.io": "me:x"}}, "Docker's configuration, for ghcr.io"),
        ({"credsStore": "missing"}, "Docker's configuration, for ghcr.io: .*docker-credential-missing"),
    ],
)
@pytest.mark.filterwarnings("ignore:docker-credential-missing not installed")
def test_an_invalid_docker_configuration_is_reported(
    docker: Path, config: dict[str, object], says: str
) -> None:
    docker.write_text(json.dumps(config))
    with pytest.raises(Rejected, match=says):
        credentials_for(parse_reference("ghcr.io/org/x"))


def test_an_untrusted_certificate_is_refused(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with (
        running(certificates=certificates) as registry,
        pytest.raises(Rejected, match=r"no TLS with .*certificate"),
    ):
        sends(registry, None, tmp_path)


def test_a_plain_http_registry_is_distinguished_from_tls(tmp_path: Path) -> None:
    with (
        running() as registry,
        pytest.raises(Rejected, match="use --insecure for a registry without TLS"),
    ):
        sends(registry, None, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "typed", "says"),
    [
        (["--username", "ci"], "", "--password-stdin is missing"),
        (["--password-stdin"], "x", "--username is missing"),
        (["--username", "ci", "--password-stdin"], "\n", "standard input is empty"),
    ],
)
def test_a_user_name_requires_a_password(arguments: list[str], typed: str, says: str) -> None:
    result = CliRunner().invoke(app, ["image", "push", "ghcr.io/org/x", *arguments], input=typed)
    assert says in str(result.exception)
