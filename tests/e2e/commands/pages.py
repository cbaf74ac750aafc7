"""Commands as a page of docs/ shows them, run in a system's account and on its clock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials
from kubernetes.config import kube_config
from typer.testing import CliRunner

from nodesmith_cli.access import ledger
from nodesmith_cli.commands import migration, pause
from nodesmith_cli.connecting.inspection import Environment
from nodesmith_cli.main import app
from tests.aws.connectable import Stacks
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, ROOT, System


def blocks(page: str) -> list[str]:
    """Return the YAML that a page shows, each block as a text."""
    return re.findall(r"^```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def typed_from(page: str) -> Callable[..., list[str]]:
    """Return a function that returns the arguments of a command which the page shows with exactly these words."""
    blocks = re.findall(r"^ *```sh\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)
    shown = [tuple(line.partition("#")[0].split()) for block in blocks for line in block.splitlines()]

    def typed(*words: str) -> list[str]:
        assert words in shown, f"docs/{page} does not show: {' '.join(words)}"
        return [CLUSTER if word == "web" else word for word in words[1:]]

    return typed


def commands(system: System, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Return a function that runs a command in this account and on its clock, and returns what it printed."""
    stack = Stacks({f"nodesmith-{REGION}": dict(system.deployed.outputs)})
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(system.plane.kubeconfig()))
    clients: dict[str, Any] = {"cloudformation": stack}

    def client(service: str) -> Any:
        return clients.get(service) or system.aws.client(service)

    def around(*_: str) -> Environment:
        credentials = Credentials("none", "none")
        return Environment(
            client, REGION, lambda: credentials, system.clock.now, system.clock.sleep, str(kubeconfig)
        )

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            del tz
            return system.clock.now()

    monkeypatch.setattr(migration, "around", around)
    for module in (ledger, pause):
        monkeypatch.setattr(module, "datetime", Clock)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))  # read at its import
    for name, value in system.aws.environment.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, expected: int = 0) -> dict[str, Any]:
        printed = text([*arguments, "-o", "json"], expected)
        found: dict[str, Any] = json.loads(printed)
        return found

    return run


def text(arguments: list[str], expected: int = 0) -> str:
    """Run a command, which must end with this status, and return what it printed."""
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == expected, f"{arguments}: {ran.output} {ran.exception!r}"
    return ran.stdout
