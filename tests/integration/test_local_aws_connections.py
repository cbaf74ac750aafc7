"""Connections to AWS on a port of this machine: they stay open as long as it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, RemoteDisconnected

import pytest

from nodesmith_cli.local.cloud import Endpoint, LocalAws


@pytest.fixture
def aws() -> Iterator[LocalAws]:
    with LocalAws("us-east-1", cluster="kept", endpoint=Endpoint("https://api.kept.test", "Q0E=")) as aws:
        yield aws


@pytest.fixture
def connection(aws: LocalAws) -> Iterator[HTTPConnection]:
    with closing(HTTPConnection(aws.url.removeprefix("http://"), timeout=30)) as connection:
        yield connection


SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=local/20261101/us-east-1/s3/aws4_request"}


def asked(connection: HTTPConnection, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection.request(method, path, body, SIGNED)
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def test_one_connection_takes_one_request_after_the_other_whatever_came_of_them(
    connection: HTTPConnection,
) -> None:
    connection.connect()
    port = connection.sock.getsockname()[1]
    assert asked(connection, "PUT", "/kept")[0] == 200
    assert asked(connection, "PUT", "/kept/key", "what is kept")[0] == 200
    assert asked(connection, "GET", "/kept/none", "that nobody reads")[0] == 404
    assert asked(connection, "HEAD", "/kept/key") == (200, b"")
    assert asked(connection, "HEAD", "/kept/none") == (404, b"")
    assert asked(connection, "DELETE", "/kept/none") == (204, b"")
    assert asked(connection, "GET", "/kept/key") == (200, b"what is kept")
    assert connection.sock.getsockname()[1] == port


def test_who_asks_whether_to_send_its_body_is_told_at_once(connection: HTTPConnection) -> None:
    assert asked(connection, "PUT", "/kept")[0] == 200
    connection.putrequest("PUT", "/kept/key")
    for name, value in {**SIGNED, "Content-Length": "4", "Expect": "100-continue"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    with connection.sock.makefile("rb", buffering=0) as answers:
        assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"


def test_a_body_in_pieces_is_taken(connection: HTTPConnection) -> None:
    assert asked(connection, "PUT", "/kept")[0] == 200
    connection.request("PUT", "/kept/key", iter([b"one, ", b"two"]), SIGNED, encode_chunked=True)
    with connection.getresponse() as answer:
        answer.read()
    assert asked(connection, "GET", "/kept/key") == (200, b"one, two")


def test_what_was_cut_off_is_not_done(aws: LocalAws, connection: HTTPConnection) -> None:
    assert asked(connection, "PUT", "/kept")[0] == 200
    with closing(HTTPConnection(aws.url.removeprefix("http://"))) as killed:
        killed.putrequest("PUT", "/kept/key")
        killed.putheader("Authorization", SIGNED["Authorization"])
        killed.putheader("Content-Length", "10")
        killed.endheaders(b"half")
    assert asked(connection, "HEAD", "/kept/key")[0] == 404


def test_one_that_has_been_stopped_answers_nobody_who_is_still_connected(
    aws: LocalAws, connection: HTTPConnection
) -> None:
    assert asked(connection, "PUT", "/kept")[0] == 200
    aws.stop()
    with pytest.raises((RemoteDisconnected, ConnectionError)):
        asked(connection, "GET", "/kept/key")
