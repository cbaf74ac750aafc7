"""The API server clients of the functions and the forwarder, on the Python that runs this.

    python -m tests.servers.tlsclients '{"case": {"url": "https://…", "ca": "/path/of/ca.crt"}}'

Prints, as JSON, each client's result for each server: client → case → "ok" or the error's text.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.errors import NodesmithError
from nodesmith_forwarder import serviceaccount

Client: TypeAlias = Callable[[str, Path], ApiServer]


def functions(url: str, ca: Path) -> ApiServer:
    """Return the client of the functions and of `nodesmith local`: endpoint and CA as EKS describes a cluster."""
    return ApiServer(connect(url, base64.b64encode(ca.read_bytes()).decode(), lambda: "token"))


def forwarder(url: str, ca: Path) -> ApiServer:
    """Return the forwarder's client: endpoint, CA and token as a pod receives them."""
    ca.with_name("token").write_text("token")
    serviceaccount.FOLDER = ca.parent
    at = urlsplit(url)
    environment = {"KUBERNETES_SERVICE_HOST": str(at.hostname), "KUBERNETES_SERVICE_PORT": str(at.port)}
    return ApiServer(serviceaccount.connection(environment))


CLIENTS: Mapping[str, Client] = {each.__name__: each for each in (functions, forwarder)}


def outcome(client: Client, url: str, ca: Path) -> str:
    """Return "ok" if the server answers, otherwise the error's text."""
    try:
        client(url, ca).get("/version", read_seconds=20)
    except NodesmithError as error:
        return str(error)
    return "ok"


if __name__ == "__main__":
    cases = json.loads(sys.argv[1])
    seen = {
        name: {case: outcome(client, at["url"], Path(at["ca"])) for case, at in cases.items()}
        for name, client in CLIENTS.items()
    }
    print(json.dumps(seen))
