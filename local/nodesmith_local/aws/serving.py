"""How clients reach moto's server: those of this process without a connection, the others by one that lasts.

moto opens a connection and a thread for every request, and most clients here send a thousand.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any, cast
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.httpsession import URLLib3Session
from moto.moto_server import threaded_moto_server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from urllib3 import HTTPHeaderDict, HTTPResponse
from werkzeug.datastructures import Headers
from werkzeug.test import run_wsgi_app

_log = logging.getLogger(__name__)
_NO_BODY = frozenset({204, 304})
_OWN_NAMES = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
"""The headers that WSGI names without a prefix."""
_SERVICE = re.compile(r"Credential=[^/]+/[^/]+/[^/]+/([a-z0-9-]+)/")
"""What the signature of a request says about its service."""


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
        try:
            parts, status, headers = run_wsgi_app(self.server.app, environ, buffered=True)
        except ImportError:  # moto needs further libraries for services that nothing here uses
            self._answer(*_not_simulated(self.headers.get("Authorization", "")))
        else:
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


def _not_simulated(authorization: str) -> tuple[str, Headers, bytes]:
    """Return the answer to a call of a service that cannot be simulated, an error that clients do not repeat."""
    signed = _SERVICE.search(authorization)
    message = f"the local AWS does not simulate {signed[1] if signed else 'this service'}"
    code = "NotImplemented"
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return (
        "501 NOT IMPLEMENTED",
        Headers({"Content-Type": "text/xml", "x-amzn-errortype": code}),
        body.encode(),
    )


class _InProcess(DomainDispatcherApplication):
    """moto's services. They answer an error of moto's own with status 500, which clients repeat."""

    def __init__(self) -> None:
        super().__init__(_with_answers_for_errors)
        self._backend = cache(super().get_backend_for_host)

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return the name of a host's service. moto compares each host with the patterns of all services."""
        return self._backend(host)


def _with_answers_for_errors(service: Any) -> Any:
    application: Any = create_backend_app(service)
    application.config["PROPAGATE_EXCEPTIONS"] = False
    # Flask's own logger would print all that moto logs from then on.
    application.log_exception = lambda error: _log.warning("moto failed: %r", error[1])
    return application


@contextmanager
def answered_in_process(host: str, port: int) -> Iterator[None]:
    """Let moto answer requests of this process to this address in the thread that sends them, during the block.

    The calls of functions are most of what a local system does. Without connections and threads for them, a call takes
    two thirds of the processor time. Other processes reach the server as before, and so do bodies that are sent in
    chunks, and headers that WSGI cannot name.
    """
    send, start, application = URLLib3Session.send, f"http://{host}:{port}/", _InProcess()

    def answer(session: URLLib3Session, request: AWSPreparedRequest) -> AWSResponse:
        if not request.url.startswith(start) or not _is_plain(request):
            return send(session, request)
        parts, status, headers = run_wsgi_app(application, _environ(request, host, port), buffered=True)
        code, _, reason = status.partition(" ")
        read = HTTPHeaderDict(headers.items())
        http_response = HTTPResponse(
            BytesIO(b"".join(parts)),
            read,
            int(code),
            reason=reason,
            preload_content=False,
            decode_content=False,
        )
        response = AWSResponse(
            request.url, http_response.status, cast(Any, read), http_response
        )  # as `send` does
        if not request.stream_output:
            _ = response.content  # read now, as `send` does
        return response

    with patch.object(URLLib3Session, "send", answer):
        yield


def _is_plain(request: AWSPreparedRequest) -> bool:
    has_read = request.body is None or isinstance(request.body, (bytes, bytearray, str))
    return has_read and not any(
        "_" in name or name.lower() == "transfer-encoding" for name in request.headers
    )


def _environ(request: AWSPreparedRequest, host: str, port: int) -> dict[str, Any]:
    """Return a request as WSGI describes it, as werkzeug's server does."""
    url, body = urlsplit(request.url), cast(bytes | str, request.body or b"")
    content = body.encode() if isinstance(body, str) else bytes(body)
    target = f"{url.path}?{url.query}" if url.query else url.path
    environ: dict[str, Any] = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(content),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(url.path).encode().decode("latin-1"),
        "QUERY_STRING": url.query,
        "REQUEST_URI": target,
        "RAW_URI": target,
        "REMOTE_ADDR": host,
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": url.netloc,
    }
    for name, value in request.headers.items():
        text = value.decode() if isinstance(value, bytes) else str(value)
        environ[_OWN_NAMES.get(name.lower()) or "HTTP_" + name.upper().replace("-", "_")] = text
    environ.setdefault("CONTENT_LENGTH", str(len(content)))
    return environ
