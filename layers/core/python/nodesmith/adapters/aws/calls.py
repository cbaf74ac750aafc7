"""Calls of AWS APIs: whether an error may succeed later, and iteration over paginated lists.

Sources of the codes: botocore's retry tables, EC2's list of error codes, and Karpenter's AWS provider.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    ResponseStreamingError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from nodesmith.errors import Rejected, Transient

THROTTLED = frozenset(
    "Throttling ThrottlingException ThrottledException RequestLimitExceeded RequestThrottled RequestThrottledException "
    "TooManyRequestsException EC2ThrottledException ProvisionedThroughputExceededException PriorRequestNotComplete "
    "BandwidthLimitExceeded SlowDown TransactionInProgressException".split()
)
UNWELL = frozenset(
    "InternalError InternalFailure InternalServerError InternalServerException ServerInternal ServiceUnavailable "
    "ServiceUnavailableException Unavailable RequestTimeout RequestTimeoutException ServerException".split()
)
EXPIRED = frozenset("RequestExpired ExpiredToken ExpiredTokenException".split())
"""The credentials have expired since the call was signed. The next call is signed with new ones."""
DENIED = frozenset("UnauthorizedOperation AccessDenied AccessDeniedException AuthorizationError".split())
_NETWORK = (HTTPClientError, BotoConnectionError, IncompleteReadError, ResponseStreamingError)


class SessionFailed(BotoCoreError):
    """A call was not sent, because there are no credentials for it. The code and message are those of STS."""

    fmt = "sts:AssumeRole {role}: {code}: {message}"


def error_code(error: ClientError | BotoCoreError) -> str:
    """Return AWS's error code or, if the request got no response, the name of botocore's exception."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def plain_code(code: str) -> str:
    """Return a code without the prefix that EC2 sometimes adds: `InternalError` for `Server.InternalError`."""
    return code.removeprefix("Server.").removeprefix("Client.")


def error_message(error: ClientError | BotoCoreError) -> str:
    """Return AWS's error message."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Message") or error)
    return str(error)


def is_passing(error: ClientError | BotoCoreError) -> bool:
    """Return whether the same call may succeed later.

    It was throttled, got a 5xx, was lost on the network, or its credentials have expired or could not be had.
    """
    if not isinstance(error, ClientError):
        return isinstance(error, (*_NETWORK, SessionFailed))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_code(error) in THROTTLED | UNWELL | EXPIRED or status >= 500 or status == 429


@contextmanager
def transient_errors(call: str) -> Iterator[None]:
    """Raise Transient, naming `call`, for errors that may succeed later. Other errors propagate unchanged."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        if not is_passing(error):
            raise
        raise _transient(call, error) from error


@contextmanager
def as_transient(call: str) -> Iterator[None]:
    """Raise Transient, naming `call`, for all AWS errors: even a missing permission may still be granted."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise _transient(call, error) from error


def _transient(call: str, error: ClientError | BotoCoreError) -> Transient:
    code = error_code(error)
    return Transient(f"{call}: {code}: {error_message(error)}", code)


@contextmanager
def all_errors(call: str) -> Iterator[None]:
    """Raise Transient, naming `call`, for errors that may succeed later, and Rejected for all other AWS errors."""
    try:
        with transient_errors(call):
            yield
    except (ClientError, BotoCoreError) as error:
        raise Rejected(f"{call}: {error_code(error)}: {error_message(error)}") from error


@contextmanager
def missing_errors(call: str, codes: Collection[str], missing: str) -> Iterator[None]:
    """Raise Rejected with the message `missing` for these AWS `codes`, and Transient, naming `call`, for the rest."""
    with as_transient(call):
        try:
            yield
        except ClientError as error:
            if error_code(error) in codes:
                raise Rejected(missing) from error
            raise


def rows(client: Any, call: str, key: str, **parameters: Any) -> Iterator[Any]:
    """Yield the items under `key` from all pages of a call such as `describe_subnets`. Raises botocore's errors."""
    for page in client.get_paginator(call).paginate(**parameters):
        yield from page[key]
