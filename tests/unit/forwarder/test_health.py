"""The probes and the log format."""

from __future__ import annotations

import json
import logging
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from nodesmith_forwarder.health import serve_health
from nodesmith_forwarder.logs import JsonLines

FAULTS = {"/healthz": "", "/readyz": "last snapshot: none yet"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = serve_health(0, {path: lambda path=path: FAULTS[path] for path in FAULTS})  # type: ignore[misc]
    yield server.server_port
    server.shutdown()
    server.server_close()


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_check_without_a_fault_is_ok(port: int) -> None:
    assert ask(port, "/healthz") == (200, "ok\n")


def test_a_fault_is_unavailable_with_its_reason(port: int) -> None:
    assert ask(port, "/readyz") == (503, "last snapshot: none yet\n")


def test_a_path_without_a_check_is_not_found(port: int) -> None:
    assert ask(port, "/secrets")[0] == 404


def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodesmith_forwarder.health.PATIENCE_SECONDS", 0.1)
    server = serve_health(0, {})
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as silent:
            silent.sendall(b"GET /heal")
            assert silent.recv(1) == b""
    finally:
        server.shutdown()
        server.server_close()


def test_a_log_line_is_one_json_object_with_its_traceback() -> None:
    try:
        raise ValueError("odd\nthing")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "it %s", ("broke",), sys.exc_info())
    line = JsonLines().format(record)
    entry = json.loads(line)
    assert "\n" not in line
    assert (entry["level"], entry["message"]) == ("ERROR", "it broke")
    assert "ValueError: odd" in entry["exception"]
