"""Values of --kubeconfig and --context, as passed between commands: a context, a kubeconfig's path, or empty."""

from __future__ import annotations

from pathlib import Path


class ContextName(str):
    """The value of --context: always a context, even if a file has the same name."""

    __slots__ = ()


def kubeconfig_file(value: str) -> str:
    """Return `value` if it is the path of a kubeconfig, else an empty string."""
    is_path = bool(value) and not isinstance(value, ContextName) and Path(value).is_file()
    return value if is_path else ""
