"""Connections to API servers: proxies by the environment, fresh tokens, no redirects, and the pod's service account."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from urllib3 import PoolManager, ProxyManager

from nodesmith.adapters.kubernetes.connection import Connection, connection_pool, proxy_for
from nodesmith.errors import Rejected, Transient
from nodesmith_forwarder import serviceaccount

URL = "https://ABC.gr7.us-east-1.eks.amazonaws.com"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@contextmanager
def answering(status: int, headers: dict[str, str]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the URL of a server, and the headers that it has received with the request's line as "line"."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            sent = {name.lower(): text for name, text in self.headers.items()}
            received.append({**sent, "line": self.requestline, "peer": str(self.client_address)})
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "2"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


def send(connection: Connection, path: str = "/version") -> int:
    response = connection.send("GET", path, {"Accept": "application/json"}, read_seconds=5)
    assert response.data == b"{}"
    return response.status


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, URL, ""),
        ({"HTTPS_PROXY": "http://proxy:3128"}, URL, "http://proxy:3128"),
        ({"https_proxy": "proxy:3128"}, URL, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, URL, ""),
        ({"ALL_PROXY": "http://proxy:3128"}, URL, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://127.0.0.1:80", "http://proxy:3128"),
    ],
)
def test_the_proxy_of_the_urls_scheme_is_used(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, proxy: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_exempt"),
    [
        ("*", URL, True),
        (".eks.amazonaws.com", URL, True),
        ("other.com, EKS.amazonaws.com", URL, True),
        ("amazonaws.co", URL, False),
        ("10.100.0.0/16", "https://10.100.0.1:443", True),
        ("10.100.0.0/16", "https://10.101.0.1:443", False),
        ("10.100.0.1:443", "https://10.100.0.1:443", True),
        ("fd00::/8", "https://[fd12::1]:443", True),
        ("::1", "https://[::1]:6443", True),
        ("", URL, False),
    ],
)
def test_no_proxy_lists_hosts_domains_and_cidr_blocks(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, url: str, is_exempt: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (proxy_for(url) == "") is is_exempt
    assert isinstance(connection_pool(url), ProxyManager) is not is_exempt


def test_a_request_goes_through_the_proxy_with_the_credentials_in_its_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering(200, {}) as (proxy, received):
        monkeypatch.setenv("HTTP_PROXY", proxy.replace("//", "//me:se%40cret@"))
        url = "http://api.invalid"
        assert send(Connection(url, connection_pool(url), lambda: "")) == 200
    assert received[0]["line"] == "GET http://api.invalid/version HTTP/1.1"
    assert received[0]["proxy-authorization"] == "Basic bWU6c2VAY3JldA=="


def test_every_request_has_a_fresh_token_on_the_same_connection() -> None:
    tokens = iter(["Bearer first", "Bearer second", ""])
    with answering(200, {}) as (url, received):
        connection = Connection(f"{url}/", connection_pool(url), lambda: next(tokens))
        for _ in range(3):
            send(connection)
    assert [each.get("authorization") for each in received] == ["Bearer first", "Bearer second", None]
    assert len({each["peer"] for each in received}) == 1
    assert {each["line"] for each in received} == {"GET /version HTTP/1.1"}
    assert received[0]["user-agent"].startswith("nodesmith/")


def test_a_redirect_is_returned_so_that_no_other_host_receives_the_token() -> None:
    with answering(200, {}) as (other, stolen), answering(302, {"Location": other}) as (url, _):
        assert send(Connection(url, connection_pool(url), lambda: "Bearer token")) == 302
    assert stolen == []


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("PEM")
    monkeypatch.setattr(serviceaccount, "FOLDER", tmp_path)
    return tmp_path


def in_pod(host: str = "10.100.0.1", port: str = "443") -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


@pytest.mark.parametrize(
    ("host", "url"), [("10.100.0.1", "https://10.100.0.1:443"), ("fd12::1", "https://[fd12::1]:443")]
)
@pytest.mark.usefixtures("volume")
def test_a_pod_finds_its_api_server_by_the_environment(host: str, url: str) -> None:
    assert serviceaccount.connection(in_pod(host))._url == url


def test_a_pods_token_is_read_again_for_every_request(volume: Path) -> None:
    connection = serviceaccount.connection(in_pod())
    assert connection._authorization() == "Bearer first"
    (volume / "token").write_text("second")
    assert connection._authorization() == "Bearer second"
    (volume / "token").write_text("")
    with pytest.raises(Transient, match="token does not exist or is empty"):
        connection._authorization()


@pytest.mark.usefixtures("volume")
def test_a_program_outside_a_pod_is_told_so() -> None:
    for missing in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        with pytest.raises(Rejected, match="run the forwarder in a pod"):
            serviceaccount.connection({**in_pod(), missing: ""})


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_missing_or_empty_file_of_the_service_account_is_named(volume: Path, name: str) -> None:
    (volume / name).write_text("")
    with pytest.raises(Rejected, match=f"{name} does not exist or is empty"):
        serviceaccount.connection(in_pod())
    (volume / name).unlink()
    with pytest.raises(Rejected, match=f"{name} does not exist or is empty"):
        serviceaccount.connection(in_pod())


def test_a_pods_ca_is_read_again_for_each_connection(volume: Path) -> None:
    pool = serviceaccount.connection(in_pod())._pool
    assert isinstance(pool, PoolManager)
    assert pool.connection_pool_kw["ca_certs"] == str(volume / "ca.crt")
