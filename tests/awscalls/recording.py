"""Listens to moto, in this process or served on a port, and evaluates each request that a role makes."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from nodesmith.composition import parts
from nodesmith.model.functions import Concern
from nodesmith.settings import role_name
from tests.awscalls.acting import HEADER, ActingSession, Role, acting
from tests.awscalls.judging import NOT_READ, body_of, calls_of, is_granted
from tests.awscalls.policies import FORWARDER, region_template, statements_of, tags_of
from tests.awscalls.requests import Request, credential_scope
from tests.e2e.deployed.access import assumed


class Recorder:
    """The calls of each role. It listens from `start` on, for the lifetime of the process."""

    def __init__(self) -> None:
        self.called: dict[str, set[str]] = defaultdict(set)
        self.refused: list[str] = []
        self._sessions: set[tuple[str, str]] = set()
        """The sessions that roles have started: ARN of the role, name of the session."""
        self._lock = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Listen to moto, and make the functions and the forwarder of local systems act as their roles."""
        if self._started:
            return
        self._started = True
        region_template()  # made now, and not while a client waits for an answer
        from moto.core.botocore_stubber import BotocoreStubber
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication

        from nodesmith_local.runs import servedcluster

        for owner, name, listening in (
            (DomainDispatcherApplication, "__call__", self._served),
            (BotocoreStubber, "process_request", self._stubbed),
            (parts, "set_session", _for_roles),
            (servedcluster, "forwarder_here", _for_forwarders),
        ):
            patch.object(owner, name, listening(getattr(owner, name))).start()

    def record(self, role: Role, request: Request) -> None:
        """Evaluate a request, and add what is not granted to `refused`."""
        statements, tags = statements_of(role), tags_of(role)
        for call in calls_of(request):
            granted = is_granted(statements, call, tags)
            with self._lock:
                if call.action == "sts:AssumeRole":
                    self._sessions.add((call.resource, str(call.context["sts:RoleSessionName"])))
                self.called[role.concern].add(call.action)
                if not granted:
                    what = call.resource or "anything"
                    self.refused.append(f"{role.concern}: {call.action} on {what}, {dict(call.context)}")

    def _role(self, headers: Mapping[str, str], scope: tuple[str, str, str] | None) -> Role | None:
        """Return the role that makes a request; None if there is none, as in end-to-end scenarios."""
        said = Role.parse(headers.get(HEADER, ""))
        if said is not None or scope is None:
            return said
        return Role.parse(scope[0]) or self._of_session(*scope[:2])

    def _of_session(self, access_key: str, region: str) -> Role | None:
        """Return the role of a session that a role has started here; the session is named after its cluster."""
        session = assumed(access_key)
        if session is None or (session.role_arn, session.session) not in self._sessions:
            return None
        role = session.role_arn.rpartition("/")[2]
        concern = role.removeprefix("nodesmith-").removesuffix(f"-{region}")
        return Role(concern, session.session, region) if role == role_name(concern, region) else None

    def _served(self, application: Callable[..., Any]) -> Callable[..., Any]:
        def listen(self_: Any, environ: dict[str, Any], start_response: Any) -> Any:
            headers = {HEADER: environ.get("HTTP_" + HEADER.upper().replace("-", "_"), "")}
            scope = credential_scope(environ.get("HTTP_AUTHORIZATION", ""))
            role = self._role(headers, scope)
            if role is None or scope is None:
                return application(self_, environ, start_response)
            body = b"" if scope[2] in NOT_READ else body_of(environ)

            def started(status: str, *rest: Any) -> Any:
                target = environ.get("HTTP_X_AMZ_TARGET", "")
                method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
                code, query = int(status.split()[0]), environ.get("QUERY_STRING", "")
                self.record(role, Request(*scope[1:], method, path, target, body, code, query))
                return start_response(status, *rest)

            return application(self_, environ, started)

        return listen

    def _stubbed(self, process: Callable[..., Any]) -> Callable[..., Any]:
        def listen(self_: Any, request: Any) -> Any:
            headers = {name.lower(): _text(value) for name, value in request.headers.items()}
            scope = credential_scope(headers.get("authorization", ""))
            role = self._role(headers, scope)
            answer = process(self_, request)
            if role is not None and scope is not None and answer is not None:
                body = b"" if scope[2] in NOT_READ else _bytes(request.body)
                url = urlsplit(request.url)
                target = headers.get("x-amz-target", "")
                method, code = request.method, int(answer[0])
                self.record(role, Request(*scope[1:], method, url.path, target, body, code, url.query))
            return answer

        return listen


def _for_roles(set_session: Callable[..., None]) -> Callable[..., None]:
    """Give each function of a process clients that act as its role, in its session for a cluster."""

    def set_for_roles(session: parts.Session) -> None:
        def of_role(concern: Concern, cluster: str) -> ActingSession:
            role = Role(concern, cluster, os.environ["AWS_REGION"])
            return ActingSession(session(concern, cluster), role)

        set_session(session if session is parts.own_session else of_role)

    return set_for_roles


def _for_forwarders(forwarder_here: Callable[..., Any]) -> Callable[..., Any]:
    def forwarder(name: str, cluster: Any, client: Callable[[str], Any], *rest: Any) -> Any:
        role = Role(FORWARDER, name, os.environ["AWS_REGION"])
        return forwarder_here(name, cluster, acting(client, role), *rest)

    return forwarder


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)
