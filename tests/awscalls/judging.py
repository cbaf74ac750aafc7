"""Whether a role's statements allow a request to AWS."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tests.awscalls.ec2requests import ec2, iam
from tests.awscalls.requests import READERS, Call, Request, unknown
from tests.infra.iam import NOT_CALLED, allows

NOT_READ = frozenset({"s3"})
"""Services whose request bodies say nothing to IAM."""
_READERS = {**READERS, "ec2": ec2, "iam": iam}
Statements = list[dict[str, Any]]


def calls_of(request: Request) -> Iterator[Call]:
    """Yield all that IAM is asked about a request, with the condition keys of every request."""
    for call in _READERS.get(request.service, unknown)(request):
        yield Call(call.action, call.resource, {"aws:RequestedRegion": request.region, **call.context})


def is_granted(statements: Statements, call: Call, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether these statements allow a call; where its resource cannot be told, whether they name its action at all.

    `tags` are those of the session in which it is made, by condition key (`aws:PrincipalTag/…`).
    """
    if call.resource:
        return allows(statements, call.action, call.resource, {**call.context, **tags})
    return call.action in granted_actions(statements)


def granted_actions(statements: Statements) -> set[str]:
    """Return every action that some statement allows."""
    return {action for each in statements if each["Effect"] == "Allow" for action in each["Action"]}


def never_called(statements: Mapping[str, Statements], called: Mapping[str, Iterable[str]]) -> list[str]:
    """Return who is granted what and never called it, but for what Lambda does itself in a function's name."""
    return sorted(
        f"{who}: {action}"
        for who, granted in statements.items()
        for action in granted_actions(granted) - set(called.get(who, ()))
        if not NOT_CALLED.get(action, "").startswith("Lambda")
    )


def body_of(environ: dict[str, Any]) -> bytes:
    """Read the body of a WSGI request, and put it back."""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body
