"""What each role did, as IAM would have seen it, held against what the template grants it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any
from unittest.mock import patch

from moto.moto_server.werkzeug_app import DomainDispatcherApplication

from tests.awscalls.judging import NOT_READ, Statements, body_of, calls_of, is_granted, never_called
from tests.awscalls.requests import Call, Request, credential_scope


class CallRecord:
    """Records the requests to moto's server that are signed with known access keys. A context manager.

    `keys` says whose each access key is, `statements` what each of them is granted.
    """

    def __init__(self, keys: Mapping[str, str], statements: Mapping[str, Statements]) -> None:
        self._keys, self._statements = keys, statements
        self._called: dict[str, set[str]] = defaultdict(set)
        self._refused: set[str] = set()
        self._lock = threading.Lock()
        self._patch = patch.object(
            DomainDispatcherApplication, "__call__", self._listening(DomainDispatcherApplication.__call__)
        )

    def __enter__(self) -> CallRecord:
        self._patch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.stop()

    def called(self) -> dict[str, frozenset[str]]:
        """Give the actions by who called them."""
        with self._lock:
            return {who: frozenset(actions) for who, actions in self._called.items()}

    def ungranted(self) -> list[str]:
        """Say who called what on what without a grant."""
        with self._lock:
            return sorted(self._refused)

    def unused(self) -> list[str]:
        """Say who is granted what and never called it, but for what Lambda does itself in a function's name."""
        return never_called(self._statements, self.called())

    def record(self, who: str, calls: Iterable[Call]) -> None:
        """Take calls down and judge them."""
        for call in calls:
            granted = is_granted(self._statements[who], call)
            with self._lock:
                self._called[who].add(call.action)
                if not granted:
                    self._refused.add(f"{who}: {call.action} on {call.resource or 'anything'}")

    def _listening(self, application: Callable[..., Any]) -> Callable[..., Any]:
        def listen(self_: Any, environ: dict[str, Any], start_response: Any) -> Any:
            scope = credential_scope(environ.get("HTTP_AUTHORIZATION", ""))
            if scope is None or scope[0] not in self._keys:
                return application(self_, environ, start_response)
            body = b"" if scope[2] in NOT_READ else body_of(environ)

            def started(status: str, *rest: Any) -> Any:
                request = Request(
                    *scope[1:],
                    environ["REQUEST_METHOD"],
                    environ["PATH_INFO"],
                    environ.get("HTTP_X_AMZ_TARGET", ""),
                    body,
                    int(status.split()[0]),
                )
                self.record(self._keys[scope[0]], calls_of(request))
                return start_response(status, *rest)

            return application(self_, environ, started)

        return listen
