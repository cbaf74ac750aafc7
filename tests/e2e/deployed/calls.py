"""Each role's calls as IAM would see them, checked against what the template grants."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from unittest.mock import patch

from moto.moto_server.werkzeug_app import DomainDispatcherApplication

from tests.awscalls.judging import NOT_READ, Statements, body_of, calls_of, is_granted, never_called
from tests.awscalls.requests import Call, Request, credential_scope
from tests.e2e.deployed.access import assumed


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: the concern (or `forwarder`, `ticks`), and its session's tags as condition keys."""

    who: str
    tags: Mapping[str, str] = field(default_factory=dict)


class CallRecord:
    """Record requests to moto's server that are signed by the templates' roles. A context manager.

    `principals` are by access key, `roles` maps role ARNs to callers, and `statements` are the grants of each caller. A
    session of one of these roles is recognised by its credentials.
    """

    def __init__(
        self,
        principals: Mapping[str, Principal],
        roles: Mapping[str, str],
        statements: Mapping[str, Statements],
    ) -> None:
        self._principals, self._roles, self._statements = dict(principals), roles, statements
        self._tags: dict[tuple[str, str], Mapping[str, str]] = {}
        """Tags of sessions by role ARN and session name, kept here because moto does not keep them."""
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
        """Return the actions that each caller called."""
        with self._lock:
            return {who: frozenset(actions) for who, actions in self._called.items()}

    def ungranted(self) -> list[str]:
        """Return the calls without a grant, with caller and resource."""
        with self._lock:
            return sorted(self._refused)

    def unused(self) -> list[str]:
        """Return the grants that were never used, except for those that Lambda itself uses on a function's behalf."""
        return never_called(self._statements, self.called())

    def record(self, principal: Principal, calls: Iterable[Call]) -> None:
        """Record calls and check them against the grants."""
        who, tags = principal.who, principal.tags
        for call in calls:
            if call.action == "sts:AssumeRole":
                self._remember(call)
            granted = is_granted(self._statements[who], call, tags)
            with self._lock:
                self._called[who].add(call.action)
                if not granted:
                    session = f", session {dict(tags)}" if tags else ""
                    self._refused.add(f"{who}: {call.action} on {call.resource or 'anything'}{session}")

    def _remember(self, call: Call) -> None:
        tags = {
            key.replace("RequestTag", "PrincipalTag"): str(value)
            for key, value in call.context.items()
            if key.startswith("aws:RequestTag/")
        }
        with self._lock:
            self._tags[call.resource, str(call.context["sts:RoleSessionName"])] = tags

    def _principal(self, access_key: str) -> Principal | None:
        """Return the caller for an access key, or None for one that does not use the templates' roles."""
        found = self._principals.get(access_key)
        session = assumed(access_key) if found is None else None
        if session is None or session.role_arn not in self._roles:
            return found
        tags = self._tags.get((session.role_arn, session.session), {})
        found = self._principals[access_key] = Principal(self._roles[session.role_arn], tags)
        return found

    def _listening(self, application: Callable[..., Any]) -> Callable[..., Any]:
        def listen(self_: Any, environ: dict[str, Any], start_response: Any) -> Any:
            scope = credential_scope(environ.get("HTTP_AUTHORIZATION", ""))
            principal = self._principal(scope[0]) if scope else None
            if scope is None or principal is None:
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
                    environ.get("QUERY_STRING", ""),
                )
                self.record(principal, calls_of(request))
                return start_response(status, *rest)

            return application(self_, environ, started)

        return listen
