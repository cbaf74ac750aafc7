"""AWS calls that create a resource, and succeed if it already exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code
from nodesmith_cli.access.awssession import Client, asking

_THERE = frozenset(
    "ResourceInUseException EntityAlreadyExists ParameterAlreadyExists InvalidInput AlreadyExists".split()
)
_UNKNOWN_ROLE = "InvalidParameterException"
_IAM_SECONDS, _POLL_SECONDS = 60.0, 5.0


class Calls:
    """Makes calls with the caller's clients. `sleep` waits for a number of seconds."""

    def __init__(self, client: Client, sleep: Callable[[float], None]) -> None:
        self._client, self._sleep = client, sleep

    def call(self, service: str, operation: str, resource: str, **parameters: Any) -> Any:
        """Make a call. Returns None if the resource already exists. Raises Denied, Rejected, Transient."""
        with asking(f"{service}:{operation}", resource), _fine_if_there():
            return self._method(service, operation)(**parameters)
        return None

    def patiently(self, service: str, operation: str, resource: str, **parameters: Any) -> Any:
        """Make a call, and retry while EKS does not know a role that IAM has just created."""
        method, waited = self._method(service, operation), 0.0
        while True:
            with asking(f"{service}:{operation}", resource), _fine_if_there():
                try:
                    return method(**parameters)
                except ClientError as error:
                    if error_code(error) != _UNKNOWN_ROLE or waited >= _IAM_SECONDS:
                        raise
                    self._sleep(_POLL_SECONDS)
                    waited += _POLL_SECONDS
                    continue
            return None

    def _method(self, service: str, operation: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self._client(service), xform_name(operation))
        return found


@contextmanager
def _fine_if_there() -> Iterator[None]:
    """Ignore the errors of AWS for a resource that already exists."""
    try:
        yield
    except ClientError as error:
        if error_code(error) not in _THERE:
            raise
