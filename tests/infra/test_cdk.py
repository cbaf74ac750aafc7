"""The cdk command."""

from __future__ import annotations

import os

import pytest

from infra import cdk


def test_the_cdk_command_runs_at_the_one_version_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execvpe", lambda _file, command, _environment: ran.append(command))
    monkeypatch.chdir(cdk.ROOT)
    cdk.main(["deploy", "--all"])
    (command,) = ran
    assert command[-4:] == ["--yes", "aws-cdk@2.1148.1", "deploy", "--all"]
