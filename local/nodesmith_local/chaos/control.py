"""The address at which `nodesmith chaos` reaches a running local system: faults as JSON over HTTP, on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from nodesmith.errors import Rejected
from nodesmith_local.chaos.active import ActiveFaults
from nodesmith_local.chaos.faults import DEFAULT_SECONDS, faults_of
from nodesmith_local.webpages import REFUSAL, is_of_web_page

PATH = "/faults"
_PATIENCE_SECONDS = 5.0
_LARGEST_BYTES = 100_000
_JSON = "application/json"
"""Required of requests that start faults: a web page cannot send it to another origin."""


@contextmanager
def controlling(faults: ActiveFaults) -> Iterator[str]:
    """Answer requests during the block, at the URL that is yielded.

    GET lists the faults, POST starts some, and DELETE ends the one whose name follows in the path, or all.
    """

    class Answer(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS

        def do_GET(self) -> None:
            self._answer(faults.status)

        def do_POST(self) -> None:
            header = self.headers.get("Content-Length") or ""
            size = int(header) if header.isascii() and header.isdigit() else 0
            if self.headers.get_content_type() != _JSON or not 0 < size <= _LARGEST_BYTES:
                self._respond(400, {"message": f"expected {_JSON}"})
                return
            asked = self.rfile.read(size)
            self._answer(lambda: faults.start(_faults_of_request(asked)))

        def do_DELETE(self) -> None:
            self._answer(lambda: faults.stop(unquote(self.path.removeprefix(PATH).strip("/"))))

        def _answer(self, act: Any) -> None:
            status, message = _refused(self.headers, self.path)
            if status:
                self._respond(status, {"message": message})
                return
            try:
                self._respond(200, {"faults": act()})
            except Rejected as error:
                self._respond(400, {"message": str(error)})

        def _respond(self, status: int, document: Mapping[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", _JSON)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            """Log nothing: faults are logged when they begin and end."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="chaos-control", daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()


def _refused(headers: Message, path: str) -> tuple[int, str]:
    """Return the status of a request that is not answered, and why; 0 for others."""
    if is_of_web_page(headers):
        return 403, REFUSAL
    is_known = f"{urlsplit(path).path}/".startswith(f"{PATH}/")
    return (0, "") if is_known else (404, f"there is only {PATH}")


def _faults_of_request(body: bytes) -> Any:
    """Return the faults that a request asks for. Raises Rejected."""
    try:
        parameters = json.loads(body)
        kind, services, functions = (parameters[field] for field in ("kind", "services", "functions"))
        seconds, share = float(parameters.get("seconds", DEFAULT_SECONDS)), parameters.get("share")
        return faults_of(
            str(kind),
            [str(service) for service in services],
            [str(function) for function in functions],
            seconds,
            None if share is None else float(share),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Rejected(f"the request cannot be read: {error}") from None
