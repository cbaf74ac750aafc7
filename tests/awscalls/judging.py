"""Evaluation of requests to AWS against a role's statements."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tests.awscalls.ec2requests import ec2, iam
from tests.awscalls.requests import READERS, Call, Request, unknown
from tests.infra.iam import NOT_CALLED, allows

NOT_READ = frozenset({"s3"})
"""Services whose request bodies do not matter to IAM."""
_READERS = {**READERS, "ec2": ec2, "iam": iam}
Statements = list[dict[str, Any]]


def calls_of(request: Request) -> Iterator[Call]:
    """Yield every call that IAM evaluates for a request, with the condition keys that all requests have."""
    for call in _READERS.get(request.service, unknown)(request):
        yield Call(call.action, call.resource, {"aws:RequestedRegion": request.region, **call.context})


def is_granted(statements: Statements, call: Call, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Return whether these statements allow a call; without a known resource, whether they grant its action at all.

    `tags` are those of the calling session, by condition key (`aws:PrincipalTag/…`).
    """
    if call.resource:
        return allows(statements, call.action, call.resource, {**call.context, **tags})
    return call.action in granted_actions(statements)


def granted_actions(statements: Statements) -> set[str]:
    """Return every action that some statement allows."""
    return {action for each in statements if each["Effect"] == "Allow" for action in each["Action"]}


def never_called(statements: Mapping[str, Statements], called: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the granted actions that each role never called, except those that Lambda takes on a function's behalf."""
    return sorted(
        f"{who}: {action}"
        for who, granted in statements.items()
        for action in granted_actions(granted) - set(called.get(who, ()))
        if not NOT_CALLED.get(action, "").startswith("Lambda")
    )


def body_of(environ: dict[str, Any]) -> bytes:
    """Read the body of a WSGI request, and restore it."""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body
