"""moto's server over connections that stay open, as AWS's do.

Werkzeug closes each after one answer, and first waits 10 ms for more of the request: so each needs a connection and a
thread. Closing is its way out of bodies that nobody has read; here they are read first.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.moto_server import threaded_moto_server
from moto.moto_server.werkzeug_app import MotoRequestHandler


@contextmanager
def connections_are_kept(stopped: threading.Event) -> Iterator[None]:
    """Let servers that are started in the block keep connections. Once `stopped` is set, none is answered."""
    handler = type("Handler", (_Kept,), {"stopped": stopped})
    with patch.object(threaded_moto_server, "MotoRequestHandler", handler):
        yield


class _Kept(MotoRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    stopped: threading.Event

    def handle_expect_100(self) -> bool:
        """Tell those who ask first, as S3's clients do, at once: they wait a second for it."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def run_wsgi(self) -> None:
        """Answer a request, unless moto's state may be another server's by now, or who asked has ended meanwhile."""
        if self.stopped.is_set():
            self.close_connection = True
        elif "Transfer-Encoding" in self.headers:  # where it ends is Werkzeug's to find
            self.close_connection = True
            super().run_wsgi()
        else:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return
            self.environ = {**self.make_environ(), "wsgi.input": io.BytesIO(body)}
            self._send(*_whole(self.server.app, self.environ))

    def _send(self, status: str, headers: list[tuple[str, str]], content: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" and "content-length" not in {name.lower() for name, _ in headers}:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing, and take no time to find words for it."""


def _whole(app: Callable[..., Any], environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
    told: list[tuple[str, list[tuple[str, str]]]] = []
    answer = app(environ, lambda status, headers, _=None: told.append((status, headers)))
    try:
        content = b"".join(answer)
    finally:
        if hasattr(answer, "close"):
            answer.close()
    ((status, headers),) = told
    return status, headers, content
