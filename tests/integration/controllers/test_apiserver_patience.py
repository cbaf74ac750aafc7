"""All clients retry failures that an API server declares temporary, and no others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.errors import Transient
from nodesmith_cli.access.cluster import server_of
from nodesmith_formats.localsystem.contexts import kubeconfig_of
from nodesmith_local.apiserver import ApiError
from nodesmith_local.backends.serverobjects import ServerObjects

Answer: TypeAlias = tuple[int, Mapping[str, Any], Mapping[str, str]]
PATH = "/apis/karpenter.sh/v1/nodepools"
LIST = {"kind": "NodePoolList", "apiVersion": "karpenter.sh/v1", "metadata": {}, "items": []}
DISCOVERED = {
    "metadata": {"name": "karpenter.sh"},
    "versions": [
        {
            "version": "v1",
            "resources": [
                {
                    "resource": "nodepools",
                    "responseKind": {"kind": "NodePool"},
                    "scope": "Cluster",
                    "verbs": ["list"],
                }
            ],
        }
    ],
}


def refusal(code: int, reason: str, message: str, retry_after: str = "") -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return code, body, {"Retry-After": retry_after} if retry_after else {}


INITIALIZING = refusal(429, "TooManyRequests", "storage is (re)initializing", "1")
PASSING = [
    INITIALIZING,
    refusal(429, "TooManyRequests", "storage is (re)initializing"),
    refusal(500, "InternalError", "storage is (re)initializing"),
    refusal(429, "TooManyRequests", "too many requests, please try again later", "1"),
    refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    refusal(504, "Timeout", "the server was unable to return a response in the time allotted", "1"),
]
LASTING = [
    refusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."),
    refusal(429, "TooManyRequests", "try again much later", "3600"),
    refusal(500, "InternalError", "Internal error occurred: failed calling webhook"),
    refusal(403, "Forbidden", "nodepools.karpenter.sh is forbidden", "1"),
]


class Scripted:
    """An API server that returns the responses in `first` for requests to `PATH`, and then correct ones."""

    def __init__(self, url: str, first: list[Answer]) -> None:
        self.url = url
        self.first = first
        self.asked = 0

    def answer(self, path: str) -> Answer:
        if path.startswith(PATH):
            self.asked += 1
            return self.first.pop(0) if self.first else (200, LIST, {})
        return 200, {"items": [DISCOVERED] if path == "/apis" else []}, {}


@contextmanager
def scripted(*first: Answer) -> Iterator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, headers = script.answer(self.path)
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script = Scripted(f"http://127.0.0.1:{server.server_port}", list(first))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield script
        server.shutdown()


def functions_and_forwarder(script: Scripted) -> int:
    """List as the functions and the forwarder do, and return the number of objects."""
    server = ApiServer(connect(script.url, "", lambda: "token"))
    return sum(len(page["items"]) for page in server.pages(PATH))


def local_up(script: Scripted) -> int:
    """List as `local up` does."""
    return len(ServerObjects(script.url, "", "token").list("nodepools"))


def commands(script: Scripted, folder: Path) -> int:
    """List as commands do that read a cluster with a kubeconfig."""
    path = folder / "kubeconfig"
    path.write_text(json.dumps(kubeconfig_of("a", script.url)))
    return sum(len(page["items"]) for page in server_of(str(path)).pages(PATH))


@pytest.mark.parametrize("answer", PASSING, ids=lambda each: f"{each[0]} {each[1]['message'][:26]}")
def test_temporary_failures_are_retried(answer: Answer) -> None:
    with scripted(answer) as script:
        assert functions_and_forwarder(script) == 0
        assert script.asked == 2


@pytest.mark.parametrize("client", [functions_and_forwarder, local_up])
def test_all_clients_wait_until_a_kind_is_served(client: Callable[[Scripted], int]) -> None:
    with scripted(INITIALIZING) as script:
        assert client(script) == 0
        assert script.asked == 2


def test_commands_wait_longer_than_functions(tmp_path: Path) -> None:
    with scripted(*[INITIALIZING] * 3) as script:
        assert commands(script, tmp_path) == 0
    with scripted(*[INITIALIZING] * 3) as script:
        assert local_up(script) == 0
    with scripted(*[INITIALIZING] * 3) as script, pytest.raises(Transient, match="initializing"):
        functions_and_forwarder(script)


@pytest.mark.parametrize("answer", LASTING, ids=lambda each: str(each[1]["message"][:26]))
@pytest.mark.parametrize("client", [functions_and_forwarder, local_up])
def test_other_failures_are_not_retried(client: Callable[[Scripted], int], answer: Answer) -> None:
    with scripted(answer) as script, pytest.raises((Transient, ApiError)):
        client(script)
    assert script.asked == 1


def test_retries_wait_at_least_as_long_as_the_server_requests() -> None:
    began = time.monotonic()
    with scripted(INITIALIZING) as script:
        functions_and_forwarder(script)
    assert time.monotonic() - began >= 1


def test_a_write_succeeds_once_the_server_accepts_it() -> None:
    with scripted(INITIALIZING) as script:
        ApiServer(connect(script.url, "", lambda: "token")).create(PATH, {"metadata": {"name": "a"}})
        assert script.asked == 2


def test_a_failure_that_does_not_pass_in_time_is_a_clear_error_in_commands_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodesmith_local.backends.serverobjects._PATIENCE_SECONDS", 0.1)
    with scripted(INITIALIZING) as script, pytest.raises(Transient, match="429 TooManyRequests: storage"):
        local_up(script)
