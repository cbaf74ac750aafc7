"""Kubeconfigs that cannot be used: what is said instead of a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.access.kubeconfigs import load_configuration
from nodesmith_formats.localsystem.reaching import local_system

CONFIG = """
apiVersion: v1
kind: Config
current-context: shop
contexts: [{name: shop, context: {cluster: shop, user: shop}}]
clusters: [{name: shop, cluster: {server: 'https://shop.example.com'}}]
users: [{name: shop, user: %s}]
"""


def exec_plugin(script: str) -> str:
    """Return a kubeconfig whose credentials a shell script prints."""
    plugin = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, %s]}}"
    return CONFIG % (plugin % f'"{script}"')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"contexts: [", "not YAML: .* line 1"),
        (b"contexts:\n\t- a", "not YAML: .* line 2"),
        (b"\xff\xfe", "not YAML: 'utf-8' codec can't decode byte 0xff"),
        (b"just text", "not a kubeconfig: a field has a value of the wrong type"),
        (CONFIG.replace("'https://shop.example.com'", "5").replace("%s", "{}").encode(), "not a kubeconfig"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(file: Path, text: bytes, why: str) -> None:
    file.write_bytes(text)
    with pytest.raises(Rejected, match=f"--kubeconfig shop: {why}"):
        load_configuration(str(file), "", "--kubeconfig shop")


def test_an_exec_plugin_that_fails_is_named_before_any_request(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text(exec_plugin("echo the session has expired >&2; exit 3"))
    with pytest.raises(Rejected, match=r"no credentials: exec: process returned 3\. the session has expired"):
        load_configuration(str(file), "", "--kubeconfig shop")
    file.write_text(CONFIG % "{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin}}")
    with pytest.raises(Rejected, match=r"no credentials: .*No such file or directory: 'no-such-plugin'"):
        load_configuration(str(file), "", "--kubeconfig shop")
    assert capfd.readouterr().err == ""


def test_the_token_of_an_exec_plugin_is_used(file: Path) -> None:
    file.write_text(exec_plugin("cat credential.json"))
    (file.parent / "credential.json").write_text(
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "secret"}}'
    )
    assert load_configuration(str(file), "", "--kubeconfig shop").api_key == {"BearerToken": "Bearer secret"}


@pytest.mark.parametrize(
    "text",
    [
        "contexts: 5",
        "contexts: [5]",
        "contexts: [{name: a, context: null}]",
        "contexts: [{name: a, context: {user: a}}]",
        "clusters: {a: 1}",
        "- a",
        "text",
    ],
)
def test_a_kubeconfig_of_another_form_is_not_that_of_a_local_system(file: Path, text: str) -> None:
    file.write_text(text)
    assert local_system(str(file)) is None
