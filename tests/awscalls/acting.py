"""AWS clients that name the role they act as, in a header; separate processes name it in their access key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

HEADER = "x-in-the-name-of"
_PREFIX = "role"
_PLAIN = frozenset({"can_paginate", "close", "exceptions", "meta"})


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a concern's function or of the forwarder, in its session for a cluster; "" means no session."""

    concern: str
    cluster: str
    region: str

    def to_text(self) -> str:
        """Return the role as text, for a header or an access key."""
        return ".".join((_PREFIX, self.concern, self.region, self.cluster))

    @classmethod
    def parse(cls, text: str) -> Role | None:
        """Parse the text of `to_text`; return None for any other text."""
        prefix, *rest = text.split(".", 3)
        return cls(rest[0], rest[2], rest[1]) if prefix == _PREFIX and len(rest) == 3 else None


def access_key(role: Role) -> str:
    """Return the access key id with which a separate process acts as a role."""
    return role.to_text()


_acting: ContextVar[Role | None] = ContextVar("acting", default=None)


@contextmanager
def _in_the_name_of(role: Role) -> Iterator[None]:
    token = _acting.set(role)
    try:
        yield
    finally:
        _acting.reset(token)


def _say_so(request: Any, **_: Any) -> None:
    if role := _acting.get():
        request.headers[HEADER] = role.to_text()


class ActingClient:
    """A boto3 client that makes each call as a role. Roles may share the underlying client."""

    def __init__(self, client: Any, role: Role) -> None:
        self._client, self._role = client, role
        client.meta.events.register_first("before-send", _say_so, unique_id=HEADER)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name in _PLAIN:
            return found
        if name == "get_paginator":
            return lambda operation: _ActingPaginator(found(operation), self._role)

        @wraps(found)
        def call(*arguments: Any, **asked: Any) -> Any:
            with _in_the_name_of(self._role):
                return found(*arguments, **asked)

        return call


class _ActingPaginator:
    def __init__(self, paginator: Any, role: Role) -> None:
        self._paginator, self._role = paginator, role

    def paginate(self, **asked: Any) -> Iterator[Mapping[str, Any]]:
        pages = iter(self._paginator.paginate(**asked))
        while True:
            with _in_the_name_of(self._role):
                page = next(pages, None)
            if page is None:
                return
            yield page


class ActingSession:
    """The parts of a botocore session that functions use; its clients act as a role."""

    def __init__(self, session: Any, role: Role) -> None:
        self._session, self._role = session, role

    def create_client(self, service: str, **how: Any) -> ActingClient:
        return ActingClient(self._session.create_client(service, **how), self._role)

    def get_credentials(self) -> Any:
        return self._session.get_credentials()


def acting(client: Callable[[str], Any], role: Role) -> Callable[[str], Any]:
    """Return a function that returns a service's client, as `client` does, but acting as a role."""
    return lambda service: ActingClient(client(service), role)
