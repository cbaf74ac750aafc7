"""The API servers under test: nodesmith's in-memory one, and the real one."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from nodesmith_local.apiserver import ApiServer
from nodesmith_local.controlplane import ControlPlane, commands, find_binaries
from tests.patience import eventually

IN_MEMORY, REAL = "in-memory", "real"
LOGS = Path(__file__).resolve().parents[2] / "build" / "e2e" / "contract"
# The in-memory API server does the work of these controllers. Others would change objects that a test has written.
_CONTROLLERS = "garbage-collector-controller,namespace-controller"
_PATIENCE_SECONDS = 60.0

Call: TypeAlias = Callable[..., tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class Server:
    """Administrator access to an API server. `ca_bundle` is base64-encoded PEM, or empty for plain HTTP."""

    kind: str
    url: str
    token: str = "anybody"
    ca_bundle: str = ""

    def open(self, path: str, method: str = "GET", data: bytes | None = None, **headers: str) -> Any:
        """Send a request and return the open response. Raises HTTPError."""
        headers["Authorization"] = f"Bearer {self.token}"
        request = Request(f"{self.url}{path}", data, headers, method=method)  # noqa: S310 our own server
        return urlopen(request, timeout=_PATIENCE_SECONDS, context=self._trust())  # noqa: S310 our own server

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> tuple[int, Any]:
        """Send a request, whose body is bytes or an object. Return the status and the decoded JSON."""
        whole = f"{path}?{urlencode(query)}" if query else path
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with self.open(whole, method, data, **{"Content-Type": content_type, "Accept": accept}) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if text[:1] == b"{" else text.decode()

    def events(self, path: str, **headers: str) -> Iterator[dict[str, Any]]:
        """Yield the raw events of a watch until it ends."""
        with self.open(path, "GET", None, **headers) as answer:
            for line in answer:
                yield json.loads(line)

    def _trust(self) -> ssl.SSLContext | None:
        return (
            ssl.create_default_context(cadata=b64decode(self.ca_bundle).decode()) if self.ca_bundle else None
        )


def in_memory(server: ApiServer) -> Server:
    """Return access to an in-memory API server."""
    return Server(IN_MEMORY, server.url)


def real(plane: ControlPlane) -> Server:
    """Return access to a real API server."""
    return Server(REAL, plane.url, plane.admin_token, plane.ca_bundle)


def make_real_forget(plane: ControlPlane) -> None:
    """Compact etcd and restart the API server, so that its caches are empty."""
    _, newest = real(plane).call("GET", "/api/v1/namespaces", limit="1")
    request = {"revision": newest["metadata"]["resourceVersion"], "physical": True}
    url = f"http://127.0.0.1:{plane._ports.etcd}/v3/kv/compaction"
    with urlopen(Request(url, json.dumps(request).encode(), method="POST"), timeout=_PATIENCE_SECONDS):
        plane.restart_api_server()


def until_served(plane: ControlPlane) -> None:
    """Wait until a real API server serves and lists the kinds of all its CRDs: a little after they are established."""
    prefix = "customresourcedefinition.apiextensions.k8s.io/"
    crds = plane.kubectl("get", "crd", "-o", "name").stdout.split()
    wanted = {name.removeprefix(prefix) for name in crds}
    assert wanted
    eventually(
        lambda: wanted <= {*plane.kubectl("api-resources", "-o", "name").stdout.split()}, "CRDs are served"
    )


@contextmanager
def control_plane(name: str) -> Iterator[ControlPlane]:
    """Run a real API server with only those controllers that belong to its contract, and no other writers."""
    folder = LOGS / name
    with ControlPlane(find_binaries(), folder) as plane:
        for program in ("kwok", "kube-scheduler", "kube-controller-manager"):
            plane._processes.pop(program).stop()
        some = [*commands.controllers(folder, plane._ports), f"--controllers={_CONTROLLERS}"]
        plane._run("kube-controller-manager", some)
        yield plane
