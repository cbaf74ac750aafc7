"""The cdk command: which version runs, and that nothing else is installed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra import cdk

LOCK: dict[str, Any] = json.loads((cdk.HERE / "package-lock.json").read_text())


def test_the_lock_file_has_versions_and_hashes_and_no_addresses() -> None:
    packages = {name: each for name, each in LOCK["packages"].items() if name}
    assert packages["node_modules/aws-cdk"]["version"] == cdk.VERSION == "2.1148.1"
    for name, each in packages.items():
        assert each["integrity"].startswith("sha512-"), name
    assert "http" not in (cdk.HERE / "package-lock.json").read_text()


def test_the_cdk_command_is_installed_once_from_the_lock_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installs: list[tuple[list[str], list[str]]] = []

    def run(command: list[str], *, cwd: Path, **_: object) -> None:
        installs.append((command, sorted(path.name for path in cwd.iterdir())))

    monkeypatch.setattr(subprocess, "run", run)
    folders = {cdk.installed(["npm"], tmp_path, {}) for _ in range(2)}
    assert installs == [(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], sorted(cdk.MANIFESTS))]
    assert list(tmp_path.iterdir()) == list(folders)


def test_a_failed_installation_is_retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", refuse)
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            cdk.installed(["npm"], tmp_path / "cdk", {})


def test_the_cdk_command_runs_from_the_installed_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(cdk, "installed", lambda *_: tmp_path)
    monkeypatch.setattr(os, "execvpe", lambda _file, command, _environment: ran.append(command))
    monkeypatch.chdir(cdk.ROOT)
    cdk.main(["deploy", "--all"])
    (command,) = ran
    assert command[1:] == [str(tmp_path / "node_modules" / "aws-cdk" / "bin" / "cdk"), "deploy", "--all"]
