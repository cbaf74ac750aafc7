"""Persistent connections for moto's server, and one write for each answer.

moto opens a connection and a thread for every request, and most clients here send a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from unittest.mock import patch

from moto.moto_server import threaded_moto_server
from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.datastructures import Headers
from werkzeug.test import run_wsgi_app

_NO_BODY = frozenset({204, 304})


@contextmanager
def lasting_connections() -> Iterator[None]:
    """Let servers that start during the block keep their connections open."""
    with patch.object(threaded_moto_server, "MotoRequestHandler", LastingConnection):
        yield


class LastingConnection(MotoRequestHandler):
    """Answers the requests of one connection until the client closes it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_expect_100(self) -> bool:
        """Ask for the body at once, since the client waits for that."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def run_wsgi(self) -> None:
        """Read the whole body, so that the next request starts after it, and answer in one write.

        If the body is incomplete, the client has gone and there is no request to answer.
        """
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # moto reads such a body itself, up to an unknown position
            super().run_wsgi()
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        self.environ = environ = self.make_environ()
        environ["wsgi.input"] = BytesIO(body)
        parts, status, headers = run_wsgi_app(self.server.app, environ, buffered=True)
        self._answer(status, headers, b"".join(parts))

    def _answer(self, status: str, headers: Headers, body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        has_no_body = self.command == "HEAD" or int(code) in _NO_BODY
        if not has_no_body and "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not has_no_body:
            self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""
