"""Liveness and readiness for the kubelet, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from nodesmith_forwarder.metrics import CONTENT_TYPE

METRICS = "/metrics"
PATIENCE_SECONDS = 5.0
"""How long a client may take to send its request. Each connection holds a thread."""
Check = Callable[[], str]
"""Returns what is wrong, or an empty string if all is well."""


def serve_health(
    port: int, checks: Mapping[str, Check], metrics: Callable[[], bytes] | None = None, host: str = ""
) -> ThreadingHTTPServer:
    """Answer each path of `checks` with 200 or 503 in the background, and `/metrics` with the metrics.

    Port 0 picks a free one; read it from server_port. `host` is the address to listen on, empty for all.
    """

    class Answer(BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS

        def do_GET(self) -> None:
            if self.path == METRICS and metrics is not None:
                self._respond(200, metrics(), CONTENT_TYPE)
            else:
                check = checks.get(self.path)
                fault = "no such check" if check is None else check()
                text = f"{fault or 'ok'}\n"
                self._respond(404 if check is None else 503 if fault else 200, text.encode())

        def _respond(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            """Log nothing: probes come every few seconds."""

    server = ThreadingHTTPServer((host, port), Answer)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
