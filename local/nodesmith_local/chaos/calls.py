"""Calls that fail: a layer between the deployed code of functions and forwarders and the services that it calls."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from urllib3 import BaseHTTPResponse, HTTPResponse
from urllib3.exceptions import ConnectTimeoutError as CannotConnect
from urllib3.exceptions import ProtocolError

from nodesmith.adapters.kubernetes.connection import Connection
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.chaos.active import ActiveFaults
from nodesmith_local.chaos.faults import OF_ANY_SERVICE, SLOW_SECONDS, FaultKind, Service
from nodesmith_local.chaos.stalesnapshots import READS, StaleReads
from nodesmith_local.functions.invocable import Throttled

_SERVICES = {**{member.value: member for member in Service}, "eventbridge": Service.EVENTS}
"""The services by the names that botocore's events have."""
_REFUSALS: Mapping[Service, Mapping[FaultKind, tuple[int, str]]] = {
    service: {FaultKind.THROTTLED: throttled, FaultKind.ERRORS: failed}
    for service, throttled, failed in (
        (Service.DYNAMODB, (400, "ThrottlingException"), (500, "InternalServerError")),
        (Service.S3, (503, "SlowDown"), (500, "InternalError")),
        (Service.SQS, (400, "RequestThrottled"), (500, "InternalFailure")),
        (Service.EC2, (503, "RequestLimitExceeded"), (500, "InternalError")),
        (Service.SSM, (400, "ThrottlingException"), (500, "InternalServerError")),
        (Service.EVENTS, (400, "ThrottlingException"), (500, "InternalFailure")),
        (Service.LAMBDA, (429, "TooManyRequestsException"), (500, "ServiceException")),
    )
}
"""Status and error code of a refusal: "Common errors" in the API reference of each service."""
_OF_CONNECTIONS = frozenset({FaultKind.ERRORS, FaultKind.PARTITIONED})
"""Faults of the API server that end watches which are open."""
_PLAIN = frozenset({"can_paginate", "close", "exceptions", "meta"})
_caller: ContextVar[str] = ContextVar("caller", default="")


class FaultyCalls:
    """Lets the calls of functions and forwarders meet the active faults. All other calls are left alone."""

    def __init__(self, faults: ActiveFaults, clock: LocalClock) -> None:
        self._faults, self._clock = faults, clock
        self._reads = StaleReads()
        self._http = URLLib3Session()

    @contextmanager
    def running(self, concern: str) -> Iterator[None]:
        """Run a function in the block. Raises Throttled if Lambda has no concurrency for it."""
        if self._faults.met(Service.LAMBDA, concern, {FaultKind.CONCURRENCY}):
            raise Throttled(f"{concern}: rate exceeded")
        self._faults.met(Service.LAMBDA, concern, {FaultKind.SKEWED})
        with _calling(concern):
            yield

    def now(self) -> datetime:
        """Return the time by the clock of the function that asks."""
        return self._clock.now() + self._faults.skew(_caller.get())

    def session(self, clients: Any, caller: str) -> FaultySession:
        """Return a session whose clients are those of the session `clients`, used by this function."""
        return FaultySession(clients, caller, self)

    def client(self, wrapped: Any, caller: str) -> FaultyClient:
        """Return an AWS client as this function or forwarder uses it. The client itself may be shared."""
        wrapped.meta.events.register_first("before-send", self._before_send, unique_id="nodesmith-chaos")
        return FaultyClient(wrapped, caller)

    def connection(self, caller: str, wrapped: Connection) -> Connection:
        """Return a connection to an API server as this function or forwarder uses it."""
        return FaultyConnection(wrapped, caller, self._faults, self._clock)

    def _before_send(self, request: Any, event_name: str, **context: Any) -> AWSResponse | None:
        """Return None to let botocore send the request, or the response to it. botocore retries what it raises."""
        del context
        name, operation = event_name.split(".")[1:]
        service = _SERVICES.get(name)
        if service is None or not _caller.get():
            return None
        kinds = self._faults.met(service, _caller.get(), OF_ANY_SERVICE)
        if FaultKind.SLOW in kinds:
            self._clock.sleep(SLOW_SECONDS)
        for kind in kinds:
            if kind is FaultKind.PARTITIONED:
                raise ConnectTimeoutError(endpoint_url=request.url)
            if kind is FaultKind.LATE:
                self._http.send(request)
                raise ReadTimeoutError(endpoint_url=request.url)
            if kind in _REFUSALS[service]:
                return _refusal(request.url, service, *_REFUSALS[service][kind])
        if service is Service.S3 and operation == "GetObject":
            return self._read(request)
        return None

    def _read(self, request: Any) -> AWSResponse | None:
        if not self._reads.is_snapshot(request.url):
            return None
        kinds = self._faults.met(Service.S3, _caller.get(), READS)
        if not kinds:
            self._reads.forget(request.url)
            return None
        request.headers.pop("If-None-Match", None)
        response = self._http.send(request)
        if response.status_code != 200:
            return response
        return _response(response.url, 200, *self._reads.changed(request.url, kinds[0], response))


class FaultySession:
    """The parts of a botocore session that functions use."""

    def __init__(self, clients: Any, caller: str, calls: FaultyCalls) -> None:
        self._clients, self._caller, self._calls = clients, caller, calls

    def create_client(self, service: str, *, region_name: str, config: Any) -> FaultyClient:
        """Return the client of a service with exactly this configuration."""
        wrapped = self._clients.create_client(service, region_name=region_name, config=config)
        return self._calls.client(wrapped, self._caller)

    def get_credentials(self) -> Any:
        """Return the credentials that sign requests."""
        return self._clients.get_credentials()


class FaultyClient:
    """An AWS client that identifies its caller. Functions share clients, and call them from threads of their own."""

    def __init__(self, client: Any, caller: str) -> None:
        self._client, self._caller = client, caller

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if name in _PLAIN:
            return attribute
        if name == "get_paginator":
            return lambda operation: _FaultyPaginator(attribute(operation), self._caller)

        @wraps(attribute)
        def call(*arguments: Any, **keywords: Any) -> Any:
            with _calling(self._caller):
                return attribute(*arguments, **keywords)

        return call


class _FaultyPaginator:
    def __init__(self, paginator: Any, caller: str) -> None:
        self._paginator, self._caller = paginator, caller

    def paginate(self, **keywords: Any) -> Iterator[Mapping[str, Any]]:
        pages = iter(self._paginator.paginate(**keywords))
        while True:
            with _calling(self._caller):
                page = next(pages, None)
            if page is None:
                return
            yield page


class FaultyConnection(Connection):
    """A connection to an API server whose requests meet the active faults, and otherwise go through `made`."""

    def __init__(self, connection: Connection, caller: str, faults: ActiveFaults, clock: LocalClock) -> None:
        self._made, self._caller, self._faults, self._clock = connection, caller, faults, clock

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: object = None, *, read_seconds: float
    ) -> BaseHTTPResponse:
        """Send a request once, as a Connection does, or let it fail."""
        kinds = self._faults.met(Service.API_SERVER, self._caller, OF_ANY_SERVICE)
        if FaultKind.SLOW in kinds:
            self._clock.sleep(SLOW_SECONDS)
        if FaultKind.PARTITIONED in kinds:
            raise CannotConnect(f"{method} {path}: connection timed out")
        if FaultKind.THROTTLED in kinds:
            return _status(429, "TooManyRequests", {"Retry-After": "1"})
        if FaultKind.ERRORS in kinds:
            return _status(500, "InternalError", {})
        response = self._made.send(method, path, headers, body, read_seconds=read_seconds)
        if FaultKind.LATE in kinds:
            response.close()
            raise ProtocolError(f"{method} {path}: the connection was closed before the response came")
        if "watch=" in path:
            _cut_off(response, lambda: self._faults.met(Service.API_SERVER, self._caller, _OF_CONNECTIONS))
        return response


def _cut_off(response: BaseHTTPResponse, is_cut: Callable[[], object]) -> None:
    """Let an open watch end with an error once the connection is cut."""
    stream = response.stream

    def cut(*arguments: Any, **keywords: Any) -> Iterator[bytes]:
        for chunk in stream(*arguments, **keywords):
            if is_cut():
                raise ProtocolError("the connection was reset")
            yield chunk

    response.stream = cut  # type: ignore[method-assign]


@contextmanager
def _calling(caller: str) -> Iterator[None]:
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def _refusal(url: str, service: Service, status: int, code: str) -> AWSResponse:
    """Return a refusal in the format that the service's client reads."""
    message = "A fault of `nodesmith chaos`."
    content = f"<Code>{code}</Code><Message>{message}</Message>"
    match service:
        case Service.EC2:
            body = f"<Response><Errors><Error>{content}</Error></Errors><RequestID>0</RequestID></Response>"
        case Service.S3:
            body = f"<Error>{content}<RequestId>0</RequestId></Error>"
        case _:
            body = json.dumps({"__type": code, "message": message})
    return _response(url, status, {"x-amzn-ErrorType": code}, body.encode())


def _response(url: str, status: int, headers: Mapping[str, str], body: bytes) -> AWSResponse:
    http_response = HTTPResponse(io.BytesIO(body), headers, status, preload_content=False)
    return AWSResponse(url, status, HTTPHeaders.from_dict(dict(headers)), http_response)


def _status(code: int, reason: str, headers: Mapping[str, str]) -> BaseHTTPResponse:
    """Return a response of an API server with a Status object."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": "a fault of `nodesmith chaos`",
    }
    body = io.BytesIO(json.dumps(status).encode())
    return HTTPResponse(body, {"Content-Type": "application/json", **headers}, code, preload_content=False)
