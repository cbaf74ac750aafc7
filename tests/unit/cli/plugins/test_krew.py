"""The plugin that Krew installs: its script, its archive and its manifest."""

from __future__ import annotations

import hashlib
import io
import os
import runpy
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[4]
KREW = runpy.run_path(str(ROOT / ".ci" / "krew.py"))
REPOSITORY = "https://example.com/nodesmith"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(KREW["archive"]("1.2.3"))) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "kubectl-nodesmith"


def run(plugin: Path, programs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(programs)}
    return subprocess.run(
        ["/bin/sh", str(plugin), *words], capture_output=True, text=True, check=False, env=environment
    )


def program(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho {name} "$@"\n')
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("installed", "ran"),
    [
        (["nodesmith", "pipx", "uv"], "nodesmith savings -n web team"),
        (["pipx", "uv"], "pipx run --spec nodesmith==1.2.3 nodesmith savings -n web team"),
        (["uv"], "uv tool run --from nodesmith==1.2.3 nodesmith savings -n web team"),
    ],
)
def test_the_plugin_runs_the_command_that_it_finds(
    plugin: Path, tmp_path: Path, installed: list[str], ran: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in installed:
        program(programs, name)
    assert run(plugin, programs, "savings", "-n", "web team").stdout.strip() == ran


def test_the_plugin_says_what_to_install_if_it_finds_nothing(plugin: Path, tmp_path: Path) -> None:
    reported = run(plugin, tmp_path / "empty", "savings")
    assert reported.returncode == 127
    assert "install pipx" in reported.stderr


def test_the_plugin_in_the_archive_is_executable(plugin: Path) -> None:
    assert os.access(plugin, os.X_OK)
    assert (plugin.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_manifest_names_the_archive_of_its_release_and_its_digest(tmp_path: Path) -> None:
    KREW["main"]("1.2.3", REPOSITORY, str(tmp_path / "made"))
    manifest = yaml.safe_load((tmp_path / "made" / "nodesmith.yaml").read_text())
    [platform] = manifest["spec"]["platforms"]
    packed = (tmp_path / "made" / "kubectl-nodesmith.tar.gz").read_bytes()
    assert platform["sha256"] == hashlib.sha256(packed).hexdigest()
    assert platform["uri"] == f"{REPOSITORY}/releases/download/v1.2.3/kubectl-nodesmith.tar.gz"
    assert manifest["spec"]["version"] == "v1.2.3"


def test_the_same_release_gives_the_same_archive() -> None:
    assert KREW["archive"]("1.2.3") == KREW["archive"]("1.2.3")
