"""An API server that lists given objects page by page, records every request, and refuses all that is not a GET."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from nodesmith_cli.costs.savings.reading import USAGE_PATH
from nodesmith_formats.localsystem.contexts import kubeconfig_of
from tests.objects.savingsclusters import PATHS

Manifest = Mapping[str, Any]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    query: str


class RecordingServer:
    """Serves objects by kind. Lists of `forbidden` kinds are refused; `usage` are the items of metrics.k8s.io."""

    def __init__(
        self,
        manifests: Iterable[Manifest],
        forbidden: Collection[str] = (),
        usage: list[Manifest] | None = None,
    ) -> None:
        self.asked: list[Asked] = []
        self._lists: dict[str, list[Manifest]] = {path: [] for path in PATHS.values()}
        for manifest in manifests:
            self._lists[PATHS[manifest["kind"]]].append(manifest)
        if usage is not None:
            self._lists[USAGE_PATH] = usage
        self._forbidden = {PATHS.get(kind, kind) for kind in forbidden}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    @property
    def writes(self) -> list[Asked]:
        """The requests that are not a GET."""
        return [each for each in self.asked if each.method != "GET"]

    def kubeconfig(self, folder: Path) -> str:
        """Write a kubeconfig into a folder, and return its path."""
        host, port = self._http.server_address[:2]
        path = folder / "kubeconfig"
        path.write_text(json.dumps(kubeconfig_of("here", f"http://{host!s}:{port}", "reader")))
        return str(path)

    def __enter__(self) -> RecordingServer:
        Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, query: str) -> tuple[int, Mapping[str, Any]]:
        """Return the status and body for a list request."""
        if path in self._forbidden:
            return 403, {"kind": "Status", "reason": "Forbidden", "message": "not allowed", "code": 403}
        if path not in self._lists:
            return 404, {"kind": "Status", "reason": "NotFound", "code": 404}
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        first, limit = int(asked.get("continue", "0")), int(asked.get("limit", "1000000"))
        items = self._lists[path]
        page = items[first : first + limit]
        token = str(first + limit) if first + limit < len(items) else ""
        return 200, {"metadata": {"resourceVersion": "1", "continue": token}, "items": page}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answered(self) -> None:
                parts = urlsplit(self.path)
                server.asked.append(Asked(self.command, parts.path, parts.query))
                status, body = (405, {}) if self.command != "GET" else server.answer(parts.path, parts.query)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        for method in METHODS:
            setattr(Handler, f"do_{method}", Handler.answered)
        return Handler
