"""The simulated AWS server keeps connections alive for the next request, regardless of the last one's outcome."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from socket import SHUT_WR
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from werkzeug.serving import make_server

from nodesmith_local.aws.serving import LastingConnection


def answers(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Return a response by path. Only one path reads the request's body."""
    match environ["PATH_INFO"]:
        case "/echo":
            start_response("200 OK", [])
            return [environ["wsgi.input"].read()]
        case "/long":
            start_response("200 OK", [("Content-Length", "9")])
            return [b"in", b" ", b"pieces"]
        case "/" | "/2015-03-31/functions":
            raise ModuleNotFoundError("No module named 'openapi_spec_validator'")
        case _:
            start_response("204 NO CONTENT", [])
            return [b""]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = make_server("127.0.0.1", 0, answers, threaded=True, request_handler=LastingConnection)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def connection(port: int) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.connect()
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (("POST", "/echo", b"x" * 100_000), (200, b"x" * 100_000)),
        (("POST", "/long", b"GET /not-read-by-anybody HTTP/1.1\r\n\r\n"), (200, b"in pieces")),
        (("HEAD", "/long", None), (200, b"")),
        (("GET", "/nothing", None), (204, b"")),
    ],
    ids=["a body", "a body that nobody reads", "no body is wanted", "there is no body"],
)
def test_the_same_connection_serves_the_next_request(
    connection: HTTPConnection, request_: tuple[str, str, bytes | None], answer: tuple[int, bytes]
) -> None:
    connected = connection.sock
    for asked, expected in ((request_, answer), (("POST", "/echo", b"next"), (200, b"next"))):
        connection.request(*asked)
        response = connection.getresponse()
        assert (response.status, response.read()) == expected
        assert connection.sock is connected


def test_a_client_that_expects_100_continue_receives_it(connection: HTTPConnection) -> None:
    connection.putrequest("PUT", "/echo")
    connection.putheader("Expect", "100-continue")
    connection.putheader("Content-Length", "4")
    connection.endheaders()
    assert connection.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(b"body")
    assert connection.getresponse().read() == b"body"


def test_a_request_that_its_client_aborts_is_ignored(connection: HTTPConnection) -> None:
    connection.putrequest("POST", "/echo")
    connection.putheader("Content-Length", "4")
    connection.endheaders(b"bo")
    connection.sock.shutdown(SHUT_WR)
    assert connection.sock.recv(100) == b""


@pytest.mark.parametrize(
    ("service", "operation"), [("cloudformation", "describe_stacks"), ("lambda", "list_functions")]
)
def test_a_service_that_cannot_be_simulated_says_so(port: int, service: str, operation: str) -> None:
    client = boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    with pytest.raises(ClientError, match=f"NotImplemented.*the local AWS does not simulate {service}"):
        getattr(client, operation)()
