"""Kubeconfigs, and the values of --kubeconfig and --context: a context, a kubeconfig's path, or empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class ContextName(str):
    """The value of --context: always a context, even if a file has the same name."""

    __slots__ = ()


def kubeconfig_file(value: str) -> str:
    """Return `value` if it is the path of a kubeconfig, else an empty string."""
    is_path = bool(value) and not isinstance(value, ContextName) and Path(value).is_file()
    return value if is_path else ""


def kubeconfig_of(
    name: str, server: str, token: str = "", *, ca_bundle: str = "", namespace: str = "default"
) -> dict[str, Any]:
    """Return a kubeconfig with one cluster, one user and one context, all of this name."""
    authority = {"certificate-authority-data": ca_bundle} if ca_bundle else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **authority}}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
