"""`nodesmith local run` as tests use it: hurried, and with time to spare on any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from nodesmith_cli.main import app
from tests.patience import hurried

SPEED, OPTIONS = 20.0, ("-o", "json", "--for", "1h")
"""An hour of the cluster's time in which nothing happens: on a slow machine five minutes are a few seconds."""


def report_of(ran: Result) -> dict[str, Any]:
    """Return the report of a run after which no pod is pending."""
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def local_run(folder: Path, *files: Path) -> Result:
    """Run files until all is quiet; what it leaves is in `folder`, its report is JSON on standard output."""
    named = [word for file in files for word in ("-f", str(file))]
    how = [*OPTIONS, "--speed", f"{hurried(SPEED):g}", "--keep", str(folder)]
    return CliRunner().invoke(app, ["local", "run", *named, *how])
