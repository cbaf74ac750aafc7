"""The `version` command: the release, its commit, and the formats that it reads and writes."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

from nodesmith import __version__
from nodesmith_cli.output.printing import print_data

_PACKAGED = "_commit"
_COMMIT = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
CHECKOUT = Path(__file__).parents[3]


def commit() -> str:
    """Return the abbreviated commit of this installation, with "-dirty" for an edited checkout; empty if unknown."""
    import nodesmith_formats

    written = Path(nodesmith_formats.__path__[0]) / _PACKAGED
    if written.exists():
        return written.read_text().strip()
    if not (CHECKOUT / ".git").exists():
        return ""
    try:
        done = subprocess.run(  # noqa: S603 a constant
            _COMMIT, cwd=CHECKOUT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):  # git is missing, or refuses somebody else's checkout
        return ""
    return done.stdout.strip()


def formats() -> dict[str, int]:
    """Return the version of each format that carries one (ADR 29)."""
    from nodesmith.adapters.catalog import catalogs
    from nodesmith.decisions.provisioning.plan import VERSION
    from nodesmith.model.limits import spendinglimits
    from nodesmith.model.metrics import objects as metricsobjects
    from nodesmith.observation import observed
    from nodesmith.registration import FORMAT

    return {
        "catalog": catalogs.FORMAT,
        "decision": VERSION,
        "metrics": metricsobjects.FORMAT,
        "onSale": metricsobjects.ON_SALE_FORMAT,
        "registration": FORMAT,
        "snapshot": observed.VERSION,
        "spendingLimit": spendinglimits.LIMIT_FORMAT,
    }


def short_version() -> str:
    """Return the release and its commit on one line."""
    found = commit()
    return f"{__version__} (commit {found})" if found else __version__


def print_version(output: str) -> None:
    """Print the release, its commit, the Python version and the formats."""
    report: dict[str, Any] = {
        "version": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "formats": formats(),
    }
    if output != "table":
        print_data(report, output, "version")
        return
    print(f"nodesmith {short_version()}")
    print(f"Python    {report['python']}")
    print("Formats   " + ", ".join(f"{name} {number}" for name, number in report["formats"].items()))
