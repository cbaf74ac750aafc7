"""Fixtures of the contract tests: the in-memory API server, the real one, or both (`--api-server`).

Tests of the API server use only a base URL and the official client. All of them share one real server, so each test
uses its own namespace and its own names.
"""

from __future__ import annotations

import os
import secrets
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_local.apiserver import ApiServer, Store
from nodesmith_local.controlplane import ControlPlane
from tests.clocks import StillClock
from tests.contract import servers
from tests.contract.servers import (
    IN_MEMORY,
    REAL,
    Call,
    Server,
    control_plane,
    in_memory,
    make_real_forget,
    real,
)
from tests.contract.worlds import START, FakeWorld, ServedWorld, World
from tests.patience import eventually
from tests.servers.served import CRDS

_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ONLY = {IN_MEMORY: (IN_MEMORY,), REAL: (REAL,), "both": (IN_MEMORY, REAL)}
# All tests on the real server run in one worker, because a server takes seconds to start and half a gigabyte.
_TOGETHER = pytest.mark.xdist_group("real-api-server")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "in_memory_only(why): a contract test that cannot run on the real API server"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the kubectl tests without the real API server, because kubectl is built together with it."""
    needs_kubectl = collection_path.name == "test_kubectl.py"
    return True if needs_kubectl and config.getoption("--api-server") == IN_MEMORY else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a server once for each requested server."""
    names = [name for name in ("world", "server") if name in metafunc.fixturenames]
    if not names:
        return
    kinds = _ONLY[metafunc.config.getoption("--api-server")]
    if metafunc.definition.get_closest_marker("in_memory_only"):
        kinds = (IN_MEMORY,)
    marked = [pytest.param(kind, id=kind, marks=[_TOGETHER] if kind == REAL else []) for kind in kinds]
    if names[0] == "world" and IN_MEMORY in kinds:
        marked.insert(0, pytest.param("fake", id="fake"))
    metafunc.parametrize(names[0], marked, indirect=True)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """Yield the real control plane."""
    with control_plane(os.environ.get("PYTEST_XDIST_WORKER", "main")) as running:
        yield running


@pytest.fixture(scope="session")
def plane_with_crds(plane: ControlPlane) -> ControlPlane:
    """Return the real control plane with our CRDs installed."""
    served = real(plane)
    for crd in custom_resource_definitions():
        assert served.call("POST", _CRDS_PATH, crd)[0] == 201
    for path in (
        "karpenter.sh/v1/nodepools",
        "karpenter.sh/v1/nodeclaims",
        "karpenter.k8s.aws/v1/ec2nodeclasses",
    ):
        eventually(lambda path=path: served.call("GET", f"/apis/{path}")[0] == 200)  # type: ignore[misc]
    return plane


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    """Yield an in-memory API server for a single test."""
    with ApiServer(now=lambda: datetime.now(UTC)) as running:
        yield running


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Yield a cluster: the unit tests' fake, or the adapter on an API server."""
    clock = StillClock(START)
    match request.param:
        case "fake":
            yield FakeWorld()
        case servers.IN_MEMORY:
            with ApiServer(crds=CRDS, now=clock) as running:
                yield ServedWorld(in_memory(running), clock)
        case servers.REAL:
            served = ServedWorld(real(request.getfixturevalue("plane_with_crds")), clock)
            yield served
            served.clear()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """Return the API server under test."""
    if request.param == REAL:
        return real(request.getfixturevalue("plane"))
    return in_memory(request.getfixturevalue("api_server"))


@pytest.fixture
def call(server: Server) -> Call:
    """Return `call(method, path, body, content_type, accept, **query)`, which returns the status and decoded JSON."""
    return server.call


@pytest.fixture
def serving(request: pytest.FixtureRequest, server: Server) -> Call:
    """Return the same of a server with nodesmith's CRDs."""
    if server.kind == REAL:
        request.getfixturevalue("plane_with_crds")
    else:
        for crd in custom_resource_definitions():
            assert server.call("POST", _CRDS_PATH, crd)[0] == 201
    return server.call


@pytest.fixture
def forget(request: pytest.FixtureRequest, server: Server) -> Callable[[], None]:
    """Return a function that makes the server drop its history of resource versions."""
    if server.kind == REAL:
        plane = request.getfixturevalue("plane")
        return lambda: make_real_forget(plane)
    store: Store = request.getfixturevalue("api_server").store
    return store.history.compact


@pytest.fixture
def own() -> Callable[[str], str]:
    """Return a function that makes names unique to the test: `own("n1")` returns the same name each time."""
    suffix = secrets.token_hex(4)
    return lambda name: f"{name}-{suffix}"


@pytest.fixture
def node_name(own: Callable[[str], str]) -> str:
    """Return a node name that no other test uses."""
    return own("n1")


@pytest.fixture
def ns(call: Call, own: Callable[[str], str]) -> str:
    """Create a namespace for the test, in which pods can be created, and return its name."""
    name = own("contract")
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    account = {"metadata": {"name": "default"}}
    assert call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)[0] == 201
    return name


@pytest.fixture
def api_client(server: Server) -> Iterator[Any]:
    """Yield the official client, connected to the API server."""
    configuration = client.Configuration(
        host=server.url,
        api_key={"BearerToken": server.token},
        api_key_prefix={"BearerToken": "Bearer"},
        ca_cert_data=b64decode(server.ca_bundle).decode() or None,
        retries=0,
    )
    with client.ApiClient(configuration) as connected:
        yield connected


@pytest.fixture
def core(api_client: Any) -> Any:
    """Return the core API of the official client."""
    return client.CoreV1Api(api_client)


@pytest.fixture
def apps(api_client: Any) -> Any:
    """Return the apps API of the official client."""
    return client.AppsV1Api(api_client)
