"""What the contract tests talk to. The API server's tests know nothing but a base URL and the official client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from kubernetes import client

from nodesmith_cli.local.apiserver import ApiServer


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    """An empty API server of its own for one test."""
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        yield server


@pytest.fixture
def api_url(api_server: ApiServer) -> str:
    """The base URL of an empty Kubernetes API."""
    return api_server.url


Call: TypeAlias = Callable[..., tuple[int, Any]]


@pytest.fixture
def call(api_url: str) -> Call:
    """Send requests as they stand: `call(method, path, body, content_type, accept, **query)` → status, decoded JSON."""

    def send(
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> tuple[int, Any]:
        url = f"{api_url}{path}?{urlencode(query)}" if query else f"{api_url}{path}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        try:
            with urlopen(Request(url, data, headers, method=method), timeout=20) as answer:  # noqa: S310 our own server
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)

    return send


@pytest.fixture
def api_client(api_url: str) -> Iterator[Any]:
    """The official client, pointed at the API."""
    configuration = client.Configuration()
    configuration.host = api_url
    with client.ApiClient(configuration) as connected:
        yield connected


@pytest.fixture
def core(api_client: Any) -> Any:
    """The core API of the official client."""
    return client.CoreV1Api(api_client)


@pytest.fixture
def apps(api_client: Any) -> Any:
    """The apps API of the official client."""
    return client.AppsV1Api(api_client)


@pytest.fixture
def custom(api_client: Any) -> Any:
    """The custom objects API of the official client."""
    return client.CustomObjectsApi(api_client)
