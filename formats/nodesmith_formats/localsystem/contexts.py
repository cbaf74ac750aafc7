"""Values of --kubeconfig and --context as commands pass them on: a context, the path of a kubeconfig, or empty."""

from __future__ import annotations

from pathlib import Path


class ContextName(str):
    """The value of --context: a context, even if a file has the same name, which may be another cluster's."""

    __slots__ = ()


def kubeconfig_file(given: str) -> str:
    """Return `given` if it is the path of a kubeconfig, and an empty string if it is a context or empty."""
    is_path = bool(given) and not isinstance(given, ContextName) and Path(given).is_file()
    return given if is_path else ""
