"""The connection to the API server with a pod's service account."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nodesmith.adapters.kubernetes.connection import Connection, connection_pool
from nodesmith.errors import Rejected, Transient

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connection(environment: Mapping[str, str]) -> Connection:
    """Return a connection with the pod's environment, CA and token. Raises Rejected if one of them is missing.

    The token is read again for every request, because the kubelet replaces it.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Rejected(
            "KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set: run the forwarder in a pod"
        )
    token, ca = FOLDER / "token", FOLDER / "ca.crt"
    for file in (token, ca):
        if not _content(file):
            raise Rejected(f"{file} does not exist or is empty: the pod needs its service account's volume")
    url = f"https://{f'[{host}]' if set(host) & set(':%') else host}:{port}"

    def authorization() -> str:
        content = _content(token)
        if not content:
            raise Transient(f"{token} does not exist or is empty")
        return f"Bearer {content}"

    return Connection(url, connection_pool(url, ca_file=str(ca)), authorization)


def _content(file: Path) -> str:
    """Return the text of a file, empty if the file does not exist."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""
