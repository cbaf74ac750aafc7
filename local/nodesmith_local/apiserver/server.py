"""HTTP front of the API server: a port, threads, and the store that they share."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from nodesmith_formats.kubernetes.objects import Clock, Object
from nodesmith_formats.localsystem.contexts import kubeconfig_of
from nodesmith_local.apiserver.requests.api import Api
from nodesmith_local.apiserver.requests.messages import Reply, Request, Stream
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.webpages import REFUSAL, is_of_web_page


class ApiServer:
    """A Kubernetes API server in memory.

    `crds` are the initial CustomResourceDefinitions. `now` returns aware datetimes, which lets a cluster run faster
    than real time. A `store` from an earlier server continues that server's state.
    """

    def __init__(
        self, port: int = 0, crds: Iterable[Object] = (), *, now: Clock, store: Store | None = None
    ) -> None:
        self.store = store or Store(now, crds)
        self._http = _Http(("127.0.0.1", port), Api(self.store))
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def kubeconfig(self) -> Object:
        """Return a kubeconfig for this server, to be written as JSON or YAML."""
        return kubeconfig_of("nodesmith-local", self.url)

    def start(self) -> ApiServer:
        """Start answering."""
        self._thread = Thread(target=self._http.serve_forever, args=(0.05,), name="apiserver", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all connections and free the port. The store stays."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
            self._thread = None
        self._http.hang_up()
        self._http.server_close()

    def __enter__(self) -> ApiServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], api: Api) -> None:
        self.api = api
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End every watch and close every open connection."""
        self.api.hang_up()
        with self._lock:
            connections = tuple(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore closed connections; show any other error, since it is a bug."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered, so that head and body share one segment
    connection: socket.socket
    server: _Http

    def do_GET(self) -> None:
        if is_of_web_page(self.headers):
            self.close_connection = True  # the body is not read
            self.send_error(403, REFUSAL)
            return
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            method=self.command,
            path=unquote(parts.path),
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            accept=self.headers.get("Accept") or "application/json",
            content_type=self.headers.get("Content-Type") or "application/json",
            user_agent=self.headers.get("User-Agent") or "",
            body=self.rfile.read(length) if length else b"",
        )
        reply = self.server.api.answer(request)
        if isinstance(reply, Stream):
            self._send_stream(reply)
        else:
            self._send(reply)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-cache, private")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        for warning in reply.warnings:
            escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
            self.send_header("Warning", f'299 - "{escaped}"')
        self.end_headers()
        self.wfile.write(reply.body)

    def _send_stream(self, reply: Stream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Cache-Control", "no-cache, private")
        self.end_headers()
        self.wfile.flush()
        for frame in reply.frames:
            if frame:
                self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
                self.wfile.flush()
            elif self._is_gone():
                return
        self.wfile.write(b"0\r\n\r\n")

    def _is_gone(self) -> bool:
        """Return whether the client has hung up, without waiting and without consuming data that it has sent."""
        try:
            return len(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)) == 0
        except BlockingIOError:
            return False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
        """Log nothing, since the embedded server shares its user's terminal."""
