"""Whether the forwarder lives and whether it can do its work, for the kubelet to ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

PATIENCE_SECONDS = 5.0
"""How long somebody who has connected may take to ask. Each connection holds a thread."""
Check = Callable[[], str]
"""Gives what is wrong, nothing when all is well."""


def serve_health(port: int, checks: Mapping[str, Check]) -> ThreadingHTTPServer:
    """Answer each path of `checks` with 200 or 503 in the background. Port 0 takes a free one; see server_port."""

    class Answer(BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS

        def do_GET(self) -> None:
            check = checks.get(self.path)
            fault = "no such check" if check is None else check()
            self.send_response(404 if check is None else 503 if fault else 200)
            body = f"{fault or 'ok'}\n".encode()
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            """Keep quiet: probes come every few seconds."""

    server = ThreadingHTTPServer(("", port), Answer)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
