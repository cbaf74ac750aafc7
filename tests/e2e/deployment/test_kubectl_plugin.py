"""kubectl, of the real control plane's version, finds the plugin of an installation and completes its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nodesmith import __version__
from nodesmith_local.controlplane import find_binaries

INSTALLED = Path(sys.executable).parent


def kubectl(*words: str) -> list[str]:
    environment = {"PATH": f"{INSTALLED}{os.pathsep}{os.environ['PATH']}", "HOME": "/nonexistent"}
    reported = subprocess.run(
        [find_binaries() / "kubectl", *words], env=environment, check=True, capture_output=True, text=True
    )
    return reported.stdout.splitlines()


def test_kubectl_runs_the_plugin() -> None:
    assert kubectl("nodesmith", "version")[0].startswith(f"nodesmith {__version__}")


def test_kubectl_completes_the_plugins_commands() -> None:
    assert kubectl("__complete", "nodesmith", "expl") == ["explain\tExplain what was decided, and why.", ":4"]
