"""Checks of options, files and kubeconfigs that run before any slow import."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith_formats.localsystem.contexts import ContextName, kubeconfig_file

STDIN = "-"
SIMULATOR_LIBRARIES = ("moto", "flask", "flask_cors", "cel", "cryptography", "aws_lambda_powertools")
"""The modules that only the simulator imports: the extra `local` in pyproject.toml."""
PAGE_LIBRARIES = ("flask", "waitress")
"""The modules that only the page of `nodesmith ui` imports: the extra `ui` in pyproject.toml."""
MOST_CLUSTERS = 5
_LAST_PORT = 65535
_SLOWEST, _FASTEST = 0.01, 1_000_000
_DEFAULT_KUBECONFIG = "~/.kube/config"


def require_files(paths: Sequence[str], purpose: str) -> None:
    """Raise Rejected if none of the files exists. `purpose` completes the message, as in `nothing to plan from`."""
    if not paths:
        raise Rejected(f"nothing to {purpose}: use -f FILE ({STDIN} for standard input)")
    faults = [_fault(path) for path in paths]
    if "" in faults:
        return
    for fault in faults:
        typer.secho(fault, fg="red", err=True)
    raise Rejected(f"nothing to {purpose}: {', '.join(paths)}: no readable object")


def require_every_file(paths: Sequence[str]) -> None:
    """Raise Rejected if one of the files does not exist or may not be read: a result without it would mislead."""
    faults = [fault for path in paths if (fault := _fault(path))]
    if faults:
        raise Rejected("; ".join(faults))


def _fault(path: str) -> str:
    """Return the reason why a file cannot be accessed, or an empty string."""
    if path == STDIN:
        return ""
    if not path:
        return "'': is no file name"
    try:
        Path(path).stat()
    except (OSError, ValueError) as error:
        return f"{path}: {getattr(error, 'strerror', None) or error}"
    return "" if os.access(path, os.R_OK) else f"{path}: {os.strerror(errno.EACCES)}"


def require_speed(speed: float, control_plane: str = "embedded") -> None:
    """Raise Rejected for a speed that clocks cannot run at, or that Kubernetes' own binaries cannot run at."""
    if not _SLOWEST <= speed <= _FASTEST:
        raise Rejected(
            f"--speed {speed:g}: must be between {_SLOWEST} and {_FASTEST}; 10 is ten times faster than real time"
        )
    if control_plane == "real" and speed != 1:
        raise Rejected(
            f"--speed {speed:g}: a real control plane runs in real time: omit --speed, "
            "or use --control-plane embedded"
        )


def require_clusters(clusters: int, port: int) -> None:
    """Raise Rejected for too few or too many local clusters, or too few ports for them."""
    if not 1 <= clusters <= MOST_CLUSTERS:
        raise Rejected(f"--clusters {clusters}: must be between 1 and {MOST_CLUSTERS}")
    last = _LAST_PORT - clusters + 1
    if not 0 <= port <= last:
        reason = f", because {clusters} clusters need as many ports" if clusters > 1 else ""
        raise Rejected(f"--port {port}: must be between 0 and {last}{reason}")


def require_region(region: str) -> None:
    """Raise Rejected for a region without an embedded catalogue. An empty region is accepted."""
    if region:
        from nodesmith.adapters.catalog.catalogs import embedded_catalog

        embedded_catalog(region)


def require_kubeconfig(context: str) -> None:
    """Raise Rejected for an unknown context: a context's name, the path of a kubeconfig, or empty for the current one.

    Accepts a kubeconfig that cannot be parsed; loading it reports the error.
    """
    if kubeconfig_file(context):
        return
    is_name = isinstance(context, ContextName)
    option = f"{'--context' if is_name else '--kubeconfig'} {context}".rstrip()
    usual = usual_kubeconfig()
    files = [path for part in usual.split(os.pathsep) if (path := Path(part).expanduser()).is_file()]
    if not files:
        there = f" {context!r} is not a file, and" if context and not is_name else ""
        raise Rejected(f"{option}:{there} there is no kubeconfig at {usual}")
    names = sorted({name for file in files for name in _contexts(file)})
    if context and names and context not in names:
        hint = did_you_mean(context, names) or f"; contexts: {', '.join(names)}"
        fault = f"no such context in {usual}" if is_name else "neither a context in the kubeconfig nor a file"
        raise Rejected(f"{option}: {fault}{hint}")


def usual_kubeconfig() -> str:
    """Return the path of the kubeconfig, or several paths, that is read if no option names one."""
    return os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG


def _contexts(kubeconfig: Path) -> Iterator[str]:
    import yaml

    try:
        content: Any = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    contexts = content.get("contexts") if isinstance(content, dict) else None
    listed = contexts if isinstance(contexts, list) else ()
    yield from (str(entry["name"]) for entry in listed if isinstance(entry, dict) and "name" in entry)


def require_simulator() -> None:
    """Refuse if the libraries that only the simulator needs are not installed (the extra `local`)."""
    missing = _missing(SIMULATOR_LIBRARIES)
    if missing:
        raise Rejected(
            f"the local simulator is not installed ({', '.join(missing)} missing): "
            "install it with `pipx install --force 'nodesmith[local]'`"
        )


def require_page_server() -> None:
    """Refuse if the libraries that serve the page of `nodesmith ui` are not installed (the extra `ui`)."""
    missing = _missing(PAGE_LIBRARIES)
    if missing:
        raise Rejected(
            f"the page's server is not installed ({', '.join(missing)} missing): "
            "install it with `pipx install --force 'nodesmith[ui]'`"
        )


def has_page_server() -> bool:
    """Return whether the libraries that serve the page of `nodesmith ui` are installed."""
    return not _missing(PAGE_LIBRARIES)


def _missing(names: Sequence[str]) -> list[str]:
    return [name for name in names if find_spec(name) is None]
