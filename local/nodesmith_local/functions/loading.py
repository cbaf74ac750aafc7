"""The functions as Lambda runs them: the real handlers in `functions/`, in this process."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from nodesmith.errors import Rejected
from nodesmith.settings import function_name
from nodesmith_formats.shipped import shipped
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.deployment import function_arn

Handler = Callable[[Mapping[str, Any], "Context"], Any]


@dataclass(frozen=True, slots=True)
class Context:
    """Lambda's information about an invocation; the names are Lambda's."""

    function_name: str
    aws_request_id: str
    memory_limit_in_mb: int = 1769
    function_version: str = "$LATEST"
    invoked_function_arn: str = ""
    timeout_seconds: float = 60.0

    def get_remaining_time_in_millis(self) -> int:
        """Return the time left, which here is always the whole timeout."""
        return int(self.timeout_seconds * 1000)


@dataclass(frozen=True, slots=True)
class Function:
    """One concern's handler in one execution environment. Each call invokes it once; concurrent calls wait."""

    concern: str
    handler: Handler
    timeout_seconds: float = 60.0
    _turn: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        """Invoke the handler with this trace header. Its exceptions propagate, as Lambda sees them."""
        context = Context(
            function_name(self.concern),
            str(uuid4()),
            invoked_function_arn=function_arn(os.environ.get("AWS_REGION", ""), self.concern),
            timeout_seconds=self.timeout_seconds,
        )
        with self._turn, loopdetection.running_with(trace):
            return self.handler(event, context)

    def within(self, around: Callable[[str], AbstractContextManager[None]]) -> Function:
        """Return the same function with each invocation in the context of `around`, which gets the concern."""

        def handle(event: Mapping[str, Any], context: Context) -> Any:
            with around(self.concern):
                return self.handler(event, context)

        return replace(self, handler=handle)

    def followed_by(self, after: Callable[[], None]) -> Function:
        """Return the same function with `after` called after each invocation, including failed ones."""

        def handle(event: Mapping[str, Any], context: Context) -> Any:
            try:
                return self.handler(event, context)
            finally:
                after()

        return replace(self, handler=handle)


def functions_folder() -> Path:
    """Return the functions' folder."""
    return shipped("_functions", "functions")


def load_function(concern: str, timeout_seconds: float = 60.0) -> Function:
    """Import a concern's handler. Raises Rejected if the installation lacks it."""
    path = functions_folder() / concern / "handler.py"
    spec = importlib.util.spec_from_file_location(f"nodesmith_function_{concern}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Rejected(f"this installation lacks the function {concern!r} ({path})")
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Function(concern, module.handler, timeout_seconds)


@contextmanager
def environment(variables: Mapping[str, str], without: tuple[str, ...] = ()) -> Iterator[None]:
    """Set environment variables and remove `without` during the block, then restore the environment."""
    before = dict(os.environ)
    os.environ.update(variables)
    for name in without:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
