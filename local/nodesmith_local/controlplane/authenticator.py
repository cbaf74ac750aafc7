"""Authentication of bearer tokens that Kubernetes does not know, by a TokenReview webhook as on EKS."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True)
class User:
    """A user as Kubernetes sees one."""

    name: str
    groups: tuple[str, ...] = ()


Authenticate = Callable[[str], User | None]


def no_user(token: str) -> User | None:
    """Accept no token."""
    del token
    return None


def review(request: dict[str, Any], authenticate: Authenticate) -> dict[str, Any]:
    """Return the answer to a TokenReview."""
    user = authenticate(request["spec"].get("token") or "")
    status = {"user": {"username": user.name, "groups": list(user.groups)}} if user else {}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "status": {"authenticated": user is not None, **status},
    }


class Authenticator:
    """Serves TokenReviews on loopback while the context lasts. Several threads call `authenticate`."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._http = _Http(authenticate)

    def kubeconfig(self) -> dict[str, Any]:
        """Return the kubeconfig with which kube-apiserver finds its webhook."""
        url = f"http://127.0.0.1:{self._http.server_address[1]}/"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "authenticator", "cluster": {"server": url}}],
            "contexts": [{"name": "authenticator", "context": {"cluster": "authenticator", "user": ""}}],
            "current-context": "authenticator",
        }

    def __enter__(self) -> Authenticator:
        Thread(target=self._http.serve_forever, args=(0.05,), name="authenticator", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, authenticate: Authenticate) -> None:
        self.authenticate = authenticate
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that kube-apiserver closed; show any other error, since it is a bug in `authenticate`."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Http

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        response_body = json.dumps(review(json.loads(body), self.server.authenticate)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response_body)))
        self.end_headers()
        self.wfile.write(response_body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
        """Log nothing, since kube-apiserver logs its requests."""
