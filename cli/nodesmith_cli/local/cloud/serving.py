"""How moto's server is spoken to: a connection stays open for the next request, as to AWS, and an answer is one write.

Its own way is a connection, with a thread, for every request: most clients here ask a thousand times.
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
    """Let servers that are started during the block keep connections."""
    with patch.object(threaded_moto_server, "MotoRequestHandler", LastingConnection):
        yield


class LastingConnection(MotoRequestHandler):
    """Answers the requests of one connection, until the client closes it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_expect_100(self) -> bool:
        """Ask for the body at once: the client waits for that."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def run_wsgi(self) -> None:
        """Read the whole body, so that the next request begins behind it; answer once all of the answer is there.

        Without the whole body there is no request: the client has ended while it sent it.
        """
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # moto reads such a body itself, nobody knows how far
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
        """Say nothing."""
