"""Handlers of the functions that serve a whole region, for EventBridge events and delayed invocations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nodesmith.controllers.runs.report import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.handlers import Event, Handler
from nodesmith.model.functions.hints import Concern, DelayedInvocation, retry_seconds
from nodesmith.parts import Parts, collect_seldom

Route = Callable[[str, str], Report]
"""Routes an event (JSON) of an account to the cluster that it concerns. Raises Rejected, Transient."""
_TICK = "tick"


def routing_events(parts: Parts, route: Route, tick: Callable[[], Report]) -> Handler:
    """Return the handler of routing, for EventBridge events of all clusters and for ticks."""
    collect_seldom()

    def handle(event: Event, context: object) -> None:
        parts.context = context
        content, attempt = _content(event)
        try:
            report = tick() if event.get("why") == _TICK else route(json.dumps(content), _account(context))
        except Rejected as error:
            parts.telemetry.rejected(str(error))
        except Transient as error:
            _route_again(parts, content, attempt, error)
        else:
            for why in report.rejected:
                parts.telemetry.rejected(why)
            parts.telemetry.ran(report.counts)
        parts.health.ran(True, parts.telemetry.take_symptoms())

    return handle


def _content(event: Event) -> tuple[Mapping[str, Any], int]:
    """Return EventBridge's event, and how often routing it has failed."""
    again = event.get("event")
    if isinstance(again, dict):
        return again, int(event.get("attempt", 0))
    return event, 0


def _route_again(parts: Parts, content: Mapping[str, Any], attempt: int, error: Transient) -> None:
    """Schedule a retry of an event. Raises `error` for a tick, or if the event has no attempts left."""
    seconds = retry_seconds(attempt)
    if content.get("why") == _TICK or seconds is None:
        raise error
    parts.telemetry.failed(error)
    payload = {"event": content, "attempt": attempt + 1}
    parts.delayed.put(DelayedInvocation(Concern.ROUTING, "", payload), seconds)


def _account(context: object) -> str:
    """Return the account id in the ARN by which the function was invoked, empty if there is none."""
    arn = str(getattr(context, "invoked_function_arn", ""))
    return arn.split(":")[4] if arn.count(":") >= 6 else ""


def delayed_or_scheduled(parts: Parts, tick: Callable[[Event], None]) -> Handler:
    """Return the handler of dispatch, for delayed invocations from SQS and for ticks from a schedule."""
    collect_seldom()

    def handle(event: Event, context: object) -> Mapping[str, Any] | None:
        parts.context = context
        records = event.get("Records")
        if records is None:
            tick(event)
            return None
        failed = [record["messageId"] for record in records if not _invoked(parts, record["body"])]
        return {"batchItemFailures": [{"itemIdentifier": id_} for id_ in failed]}

    return handle


def _invoked(parts: Parts, body: str) -> bool:
    """Carry out the delayed invocation in a message. Return False if SQS must deliver the message again."""
    try:
        delayed = DelayedInvocation.from_json(body)
        parts.invocations.invoke(delayed.concern, delayed.vpc, delayed.payload)
    except Rejected as error:
        parts.telemetry.rejected(str(error))
    except Transient as error:
        parts.telemetry.failed(error)
        return False
    return True
