"""`nodesmith local run` for tests: accelerated, and with enough time on any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from nodesmith_cli.main import app
from tests.patience import hurried

SPEED, OPTIONS = 20.0, ("-o", "json", "--for", "1h")
"""An hour of the cluster's time without events: on a slow machine, five minutes are only a few seconds."""


def report_of(ran: Result) -> dict[str, Any]:
    """Return the report of a run, after asserting that it succeeded."""
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def local_run(folder: Path, *files: Path) -> Result:
    """Run manifest files until the cluster is quiet; keep its state in `folder` and print a JSON report."""
    named = [word for file in files for word in ("-f", str(file))]
    how = [*OPTIONS, "--speed", f"{hurried(SPEED):g}", "--keep", str(folder)]
    return CliRunner().invoke(app, ["local", "run", *named, *how])
