"""Clients of AWS that say in whose name they ask, by a header; programs of their own say it by their access key."""

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
    """The role of a concern's function, or the forwarder's, in its session for a cluster; "" is in no such session."""

    concern: str
    cluster: str
    region: str

    def to_text(self) -> str:
        """Write it, for a header or an access key."""
        return ".".join((_PREFIX, self.concern, self.region, self.cluster))

    @classmethod
    def parse(cls, text: str) -> Role | None:
        """Read what `to_text` wrote; None for anything else."""
        prefix, *rest = text.split(".", 3)
        return cls(rest[0], rest[2], rest[1]) if prefix == _PREFIX and len(rest) == 3 else None


def access_key(role: Role) -> str:
    """Return the access key id by which a program of its own asks in a role's name."""
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
    """A boto3 client, each of whose calls is made in a role's name. Roles may share the client."""

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
    """As much of a botocore session as functions use, whose clients ask in a role's name."""

    def __init__(self, session: Any, role: Role) -> None:
        self._session, self._role = session, role

    def create_client(self, service: str, **how: Any) -> ActingClient:
        return ActingClient(self._session.create_client(service, **how), self._role)

    def get_credentials(self) -> Any:
        return self._session.get_credentials()


def acting(client: Callable[[str], Any], role: Role) -> Callable[[str], Any]:
    """Return what gives the client of a service, as `client` does, that asks in a role's name."""
    return lambda service: ActingClient(client(service), role)
