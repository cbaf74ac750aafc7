"""Web pages in the user's browser reach loopback, but not the local system."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from http.client import HTTPConnection
from threading import Event
from urllib.parse import urlsplit

import pytest

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.apiserver.server import ApiServer
from nodesmith_local.chaos.active import ActiveFaults
from nodesmith_local.chaos.control import controlling

PAGE = [{"Origin": "https://page.example"}, {"Origin": "null"}, {"Host": "page.example:8080"}]
OWN: list[dict[str, str]] = [{}, {"Host": "localhost:1"}, {"Host": "[::1]:1"}]
POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}}


def answer(url: str, method: str, headers: dict[str, str], body: object = None) -> int:
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    text = json.dumps(body) if body else None
    connection.request(method, parts.path, text, {"Content-Type": "application/json", **headers})
    return connection.getresponse().status


@pytest.mark.parametrize("headers", PAGE)
def test_a_web_page_changes_nothing_in_the_local_cluster(headers: dict[str, str]) -> None:
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        pods = f"{server.url}/api/v1/namespaces/default/pods"
        assert answer(pods, "POST", {"Content-Type": "text/plain", **headers}, POD) == 403
        assert answer(f"{pods}/web", "GET", {}) == 404
        assert answer(pods, "GET", headers) == 403


@pytest.mark.parametrize("headers", OWN)
def test_programs_of_this_machine_use_the_local_cluster(headers: dict[str, str]) -> None:
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        assert answer(f"{server.url}/api/v1/pods", "GET", headers) == 200


@pytest.mark.parametrize("headers", PAGE)
def test_a_web_page_starts_and_ends_no_faults(headers: dict[str, str]) -> None:
    with controlling(ActiveFaults(LocalClock(1000), Event())) as url:
        assert [answer(url, method, headers) for method in ("GET", "DELETE")] == [403, 403]
        assert answer(url, "GET", {}) == 200
