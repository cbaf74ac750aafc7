"""Calls that meet faults of a local system: what the callers' libraries make of them."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from urllib3 import PoolManager

from nodesmith.adapters.aws.calls import THROTTLED, error_code, is_passing
from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.connection import Connection
from nodesmith.errors import Transient
from nodesmith.keys import snapshot_key
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.chaos.active import ActiveFaults
from nodesmith_local.chaos.calls import FaultyCalls
from nodesmith_local.chaos.faults import HALVES, SKEW, faults_of
from nodesmith_local.functions.invocable import Throttled

CALLS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "dynamodb": ("dynamodb", lambda client: client.list_tables()),
    "s3": ("s3", lambda client: client.get_object(Bucket="b", Key="k")),
    "sqs": ("sqs", lambda client: client.list_queues()),
    "ec2": ("ec2", lambda client: client.describe_vpcs()),
    "ssm": ("ssm", lambda client: client.get_parameter(Name="n")),
    "events": ("events", lambda client: client.list_rules()),
    "lambda": ("lambda", lambda client: client.invoke(FunctionName="f")),
}
"""A call of each service, with the name of its client."""
SNAPSHOT = {"takenAt": "2026-11-26T12:00:00.000+00:00", "pods": []}


class Here:
    """A server that notes the requests it gets, and answers all with the same body."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.body = gzip.compress(json.dumps(SNAPSHOT).encode())
        self.etag = '"real"'
        here = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                here.paths.append(self.path)
                is_known = self.headers.get("If-None-Match") == here.etag
                self.send_response(304 if is_known else 200)
                self.send_header("ETag", here.etag)
                self.send_header("Content-Length", "0" if is_known else str(len(here.body)))
                self.end_headers()
                if not is_known:
                    self.wfile.write(here.body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.do_GET()

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def here() -> Iterator[Here]:
    here = Here()
    yield here
    here.server.shutdown()
    here.server.server_close()


@pytest.fixture
def clock() -> LocalClock:
    return LocalClock(1000)


@pytest.fixture
def faults(clock: LocalClock) -> Iterator[ActiveFaults]:
    stopping = threading.Event()
    yield ActiveFaults(clock, stopping)
    stopping.set()


@pytest.fixture
def calls(faults: ActiveFaults, clock: LocalClock) -> FaultyCalls:
    return FaultyCalls(faults, clock)


def client(service: str, here: Here) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=here.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def start(faults: ActiveFaults, kind: str, *services: str, functions: tuple[str, ...] = ()) -> None:
    share = 1 if kind == "throttled" else None
    faults.start(faults_of(kind, services, functions, seconds=3600, share=share))


@pytest.mark.parametrize("service", sorted(CALLS))
@pytest.mark.parametrize("kind", ["throttled", "errors"])
def test_a_refusal_is_read_as_the_service_s_own_and_the_service_never_sees_the_call(
    service: str, kind: str, calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    start(faults, kind, service)
    name, call = CALLS[service]
    with pytest.raises(ClientError) as error:
        call(calls.client(client(name, here), "provisioning"))
    assert is_passing(error.value)
    assert (error_code(error.value) in THROTTLED) == (kind == "throttled")
    assert here.paths == []


def test_a_late_call_takes_effect_and_its_caller_gets_no_answer(
    calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    start(faults, "late", "ec2")
    with pytest.raises(ReadTimeoutError):
        calls.client(client("ec2", here), "provisioning").describe_vpcs()
    assert here.paths == ["/"]


def test_half_of_the_functions_cannot_connect_and_the_other_half_can(
    calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    start(faults, "partitioned", "s3")
    shared = client("s3", here)
    cut, well = (calls.client(shared, min(half)) for half in HALVES)
    with pytest.raises(ConnectTimeoutError):
        cut.get_object(Bucket="b", Key="k")
    assert well.get_object(Bucket="b", Key="k")["Body"].read() == here.body


def test_calls_by_nobody_are_left_alone_although_they_share_the_client(
    calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    start(faults, "errors")
    shared = client("s3", here)
    calls.client(shared, "provisioning")
    assert shared.get_object(Bucket="b", Key="k")["Body"].read() == here.body


def test_pages_are_calls_as_well(calls: FaultyCalls, faults: ActiveFaults, here: Here) -> None:
    start(faults, "throttled", "ec2")
    pages = calls.client(client("ec2", here), "routing").get_paginator("describe_instances").paginate()
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        list(pages)


def test_a_slow_call_is_answered_after_five_seconds_of_the_clock(
    calls: FaultyCalls, faults: ActiveFaults, clock: LocalClock, here: Here
) -> None:
    start(faults, "slow", "s3")
    began = clock.now()
    calls.client(client("s3", here), "routing").get_object(Bucket="b", Key="k")
    assert (clock.now() - began).total_seconds() >= 5


# The API server


def api_server(calls: FaultyCalls, here: Here) -> ApiServer:
    made = Connection(here.url, PoolManager(), lambda: "")
    return ApiServer(calls.connection("termination", made), patience_seconds=0)


@pytest.mark.parametrize(("kind", "seen"), [("throttled", 0), ("errors", 0), ("partitioned", 0), ("late", 1)])
def test_a_request_to_the_api_server_fails_for_now_and_only_a_late_one_arrives(
    kind: str, seen: int, calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    here.body = b"{}"
    start(faults, kind, "apiserver", functions=("termination",))
    with pytest.raises(Transient):
        api_server(calls, here).get("/api/v1/nodes/a")
    assert len(here.paths) == seen
    faults.stop()
    assert api_server(calls, here).get("/api/v1/nodes/a") == {}


def test_a_watch_that_is_open_ends_when_the_connection_is_cut(
    calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    here.body = b'{"type": "BOOKMARK"}\n'
    lines = api_server(calls, here).stream("/api/v1/nodes", "watch=1", read_seconds=5)
    start(faults, "partitioned", "apiserver", functions=("termination",))
    with pytest.raises(Transient, match="the connection was reset"):
        list(lines)


# Functions


def test_a_function_without_concurrency_does_not_start(calls: FaultyCalls, faults: ActiveFaults) -> None:
    start(faults, "concurrency", functions=("provisioning",))
    with pytest.raises(Throttled), calls.running("provisioning"):
        pytest.fail("it runs")
    with calls.running("termination"):
        pass


def test_the_clock_of_a_function_is_wrong_while_it_runs(
    calls: FaultyCalls, faults: ActiveFaults, clock: LocalClock
) -> None:
    start(faults, "skewed")
    with calls.running(min(HALVES[0])):
        ahead = calls.now() - clock.now()
    assert abs(ahead - SKEW).total_seconds() < 60
    assert abs(calls.now() - clock.now()).total_seconds() < 60


# Snapshots


def read(calls: FaultyCalls, here: Here, known: str = "") -> tuple[str, bytes]:
    s3 = calls.client(client("s3", here), "provisioning")
    unless: Any = {"IfNoneMatch": known} if known else {}
    answer = s3.get_object(Bucket="b", Key=snapshot_key("shop"), **unless)
    return answer["ETag"], answer["Body"].read()


def test_a_stale_snapshot_is_an_hour_old_and_stays_as_it_was(
    calls: FaultyCalls, faults: ActiveFaults, here: Here
) -> None:
    start(faults, "stale")
    etag, first = read(calls, here, known=here.etag)
    here.body = gzip.compress(json.dumps({**SNAPSHOT, "pods": ["new"]}).encode())
    assert read(calls, here) == (etag, first)
    stale = json.loads(gzip.decompress(first))
    assert stale["pods"] == []
    assert datetime.fromisoformat(stale["takenAt"]) == datetime(2026, 11, 26, 11, tzinfo=UTC)
    faults.stop()
    assert read(calls, here, known=etag) == (here.etag, here.body)


def test_a_corrupted_snapshot_is_cut_in_half(calls: FaultyCalls, faults: ActiveFaults, here: Here) -> None:
    start(faults, "corrupted")
    assert read(calls, here)[1] == here.body[: len(here.body) // 2]


def test_other_objects_are_read_as_they_are(calls: FaultyCalls, faults: ActiveFaults, here: Here) -> None:
    start(faults, "corrupted")
    s3 = calls.client(client("s3", here), "provisioning")
    assert s3.get_object(Bucket="b", Key="clusters/shop/unplaced.json")["Body"].read() == here.body
