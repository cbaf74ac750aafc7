"""Lambda's recursive-loop detection: how often each function has run in the chain behind an invocation.

Lambda writes the chain into the invocation's trace header (`Lineage=ID:COUNT|ID:COUNT`). The AWS SDK in the function
sends the header with each call, and SQS and Lambda keep it with the resulting message or event:
https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal
from urllib.parse import unquote

RecursiveLoop = Literal["Allow", "Terminate"]
"""A function's setting; Terminate is Lambda's default."""
HEADER, ATTRIBUTE = "X-Amzn-Trace-Id", "AWSTraceHeader"
LONGEST_CHAIN = 16
"""Runs of one function in one chain; Lambda ends the chain at the next one."""
_ROOT = "Root=1-00000000-000000000000000000000000"

_current: ContextVar[str] = ContextVar("trace", default="")


def runs(trace: str) -> dict[str, int]:
    """Return how often each function, by its id, has run in the chain of a trace header."""
    fields = dict(field.partition("=")[::2] for field in unquote(trace).split(";"))
    pairs = (entry.partition(":") for entry in fields.get("Lineage", "").split("|") if entry)
    return {function: int(count) for function, _, count in pairs}


def is_over(trace: str, function: str) -> bool:
    """Return whether Lambda ends this trace header's chain instead of running the function (a name) again."""
    return runs(trace).get(_id(function), 0) >= LONGEST_CHAIN


def invoked(traces: Iterable[str], function: str) -> str:
    """Return the trace header of a run of the function (a name) that calls with these headers have caused."""
    chain: dict[str, int] = {}
    for trace in traces:
        for other, count in runs(trace).items():
            chain[other] = max(count, chain.get(other, 0))
    chain[_id(function)] = chain.get(_id(function), 0) + 1
    return f"{_ROOT};Lineage={'|'.join(f'{id_}:{count}' for id_, count in sorted(chain.items()))}"


@contextmanager
def running_with(trace: str) -> Iterator[None]:
    """Attach a trace header to this thread's calls during the block."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def add_header(**call: Any) -> None:
    """Add this thread's trace header to a request; a handler of botocore's event `before-call`."""
    if _current.get():
        call["params"]["headers"].setdefault(HEADER, _current.get())


def _id(function: str) -> str:
    return hashlib.sha256(function.encode()).hexdigest()[:8]
