"""Trace headers on SQS messages: SQS keeps a request's header, moto only one sent as a message attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

from moto.sqs.models import Message
from moto.sqs.responses import SQSResponse

from nodesmith_local.functions.loopdetection import ATTRIBUTE, HEADER

_sent: ContextVar[str] = ContextVar("sent", default="")


@contextmanager
def trace_headers_are_kept() -> Iterator[None]:
    """Let moto in this process keep trace headers until the end of the block."""
    make = Message.__init__

    def made(message: Any, *arguments: Any, **keywords: Any) -> None:
        make(message, *arguments, **keywords)
        if _sent.get():
            message.system_attributes.setdefault(
                ATTRIBUTE, {"DataType": "String", "StringValue": _sent.get()}
            )

    with ExitStack() as stack:
        stack.enter_context(patch.object(Message, "__init__", made))
        for name in ("send_message", "send_message_batch"):
            stack.enter_context(patch.object(SQSResponse, name, _heard(getattr(SQSResponse, name))))
        yield


def _heard(receive: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def hear(response: Any) -> Any:
        token = _sent.set(response.headers.get(HEADER, ""))
        try:
            return receive(response)
        finally:
            _sent.reset(token)

    return hear
