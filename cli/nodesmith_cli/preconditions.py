"""What is refused before anything is imported that takes time: options, files and kubeconfigs that are not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.spelling import did_you_mean

STDIN = "-"
MOST_CLUSTERS = 5
_LAST_PORT = 65535
_DEFAULT_KUBECONFIG = "~/.kube/config"


def require_files(paths: Sequence[str], purpose: str) -> None:
    """Refuse files of which not one is there, as in `nothing to plan from`. Raises Rejected."""
    faults = [_fault(path) for path in paths]
    if not faults or "" in faults:
        return
    for fault in faults:
        typer.secho(fault, fg="red", err=True)
    raise Rejected(f"nothing to {purpose}: {', '.join(paths)} hold no object that can be read")


def _fault(path: str) -> str:
    """Return why a file cannot be looked at; empty where it can."""
    try:
        if path != STDIN:
            Path(path).stat()
    except (OSError, ValueError) as error:
        return f"{path}: {getattr(error, 'strerror', None) or error}"
    return ""


def require_speed(speed: float, control_plane: str = "embedded") -> None:
    """Refuse a speed that no clock has, or Kubernetes' own programs do not. Raises Rejected."""
    if not speed > 0:
        raise Rejected(f"--speed {speed:g}: must be positive, 10 is ten times as fast as life")
    if control_plane == "real" and speed != 1:
        raise Rejected(
            f"--speed {speed:g}: Kubernetes' own parts live by the machine's clock: leave it out, "
            "or take --control-plane embedded"
        )


def require_clusters(clusters: int, port: int) -> None:
    """Refuse a number of local clusters that there cannot be. Raises Rejected."""
    if not 1 <= clusters <= MOST_CLUSTERS:
        raise Rejected(f"--clusters {clusters}: one machine runs 1 to {MOST_CLUSTERS}")
    if port and port + clusters - 1 > _LAST_PORT:
        raise Rejected(
            f"--port {port}: {clusters} clusters need the ports after it, and {_LAST_PORT} is the last"
        )


def require_region(region: str) -> None:
    """Refuse a region that the package knows nothing of; empty is none in particular. Raises Rejected."""
    if region:
        from nodesmith.adapters.catalog.catalogs import embedded_catalog

        embedded_catalog(region)


def require_kubeconfig(context: str) -> None:
    """Refuse a context that is not there: one of the usual kubeconfig's, a kubeconfig's path, or empty for the current.

    Raises Rejected. A kubeconfig that cannot be read is left for whoever reads it.
    """
    if context and Path(context).is_file():
        return
    option = f"--kubeconfig {context}".rstrip()
    usual = os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG
    files = [path for each in usual.split(os.pathsep) if (path := Path(each).expanduser()).is_file()]
    if not files:
        there = f" {context!r} is no file, and" if context else ""
        raise Rejected(f"{option}:{there} there is no kubeconfig at {usual}")
    names = sorted({name for file in files for name in _contexts(file)})
    if context and names and context not in names:
        hint = did_you_mean(context, names) or f", there is {', '.join(names)}"
        raise Rejected(f"{option}: neither a context of the kubeconfig nor a file{hint}")


def _contexts(kubeconfig: Path) -> Iterator[str]:
    import yaml

    try:
        found: Any = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    contexts = found.get("contexts") if isinstance(found, dict) else None
    yield from (str(each["name"]) for each in contexts or () if isinstance(each, dict) and "name" in each)
