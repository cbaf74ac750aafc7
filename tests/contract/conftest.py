"""What the contract tests talk to. The API server's tests know nothing but a base URL and the official client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

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
