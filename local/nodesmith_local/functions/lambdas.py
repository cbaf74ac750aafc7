"""Lambda's Invoke and EventBridge's deliveries to Lambda, for functions that run in this process.

moto itself would need Docker. A function is known only by the ARN of its alias; none is invoked by its bare name.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

from moto.awslambda.responses import LambdaResponse
from moto.core import DEFAULT_ACCOUNT_ID
from moto.events.models import Rule
from moto.sqs import sqs_backends

from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.asynchronous import AsyncInvocations
from nodesmith_local.functions.failedevents import VERSION, error_payload
from nodesmith_local.functions.invocable import Throttled

LARGEST_EVENT_BYTES, LARGEST_REQUEST_BYTES = 2**20, 6 * 2**20
"""Limits for asynchronous and synchronous invocations: "Lambda quotas", AWS Lambda Developer Guide."""
_EVENT_FIELDS = ("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
_PATH = re.compile(r"/\d{4}-\d\d-\d\d/functions/(?P<function>.+)/invocations/?")
_log = logging.getLogger(__name__)
Reply = tuple[int, dict[str, str], str]


def invoked_arn(region: str, path: str, qualifier: str) -> str:
    """Return the ARN that an invoke request names: by name or by ARN, with the alias inside or in `qualifier`."""
    match = _PATH.fullmatch(unquote(path))
    named = match["function"] if match else ""
    name, _, inside = named.rpartition("function:")[2].partition(":")
    return f"arn:aws:lambda:{region}:{DEFAULT_ACCOUNT_ID}:function:{name}:{qualifier or inside}".rstrip(":")


class Lambdas:
    """The functions of an account. Inside `answering`, moto passes invocations to the functions added with `know`.

    `may_pass_on` returns whether the policy of a function's alias (second) allows a rule (first) to invoke it; both are
    ARNs. `deliveries` returns when EventBridge delivers an event to a function (a name), in seconds from now.
    """

    def __init__(self) -> None:
        self._known: dict[str, AsyncInvocations] = {}
        self.may_pass_on: Callable[[str, str], bool] = lambda rule, function: True  # noqa: ARG005
        self.deliveries: Callable[[str], Iterable[float]] = lambda function: (0.0,)  # noqa: ARG005
        self.undelivered: list[str] = []
        """Deliveries from EventBridge that failed, each with the reason."""

    def know(self, invocations: AsyncInvocations) -> None:
        """Accept invocations of a function from now on."""
        self._known[invocations.arn] = invocations

    def forget(self, arn: str) -> None:
        """Let a function be invoked no more."""
        self._known.pop(arn, None)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer moto's invocations and EventBridge deliveries during the block."""
        send = Rule.send_to_targets

        def invoke(response: Any) -> Reply:
            status, headers, body = self._answer(response)
            return status, {**headers, "status": str(status)}, body  # moto reads the status from the headers

        def send_to_targets(rule: Rule, event: Any, transform_input: bool = True) -> None:
            ours = [
                rule_target for rule_target in rule.targets if rule_target["Arn"].split(":")[2] == "lambda"
            ]
            if ours and rule.event_pattern.matches_event(event):
                for target in ours:
                    self._pass_on(rule.arn, target["Arn"], event)
            remaining_rule = copy.copy(rule)
            remaining_rule.targets = [rule_target for rule_target in rule.targets if rule_target not in ours]
            send(remaining_rule, event, transform_input)

        with (
            patch.object(LambdaResponse, "invoke", invoke),
            patch.object(Rule, "send_to_targets", send_to_targets),
        ):
            try:
                yield
            finally:
                self._known.clear()

    def accept(self, arn: str, payload: Any, trace: str = "") -> str:
        """Invoke a function asynchronously and return the request's id. Raises KeyError for an unknown function."""
        return self._known[arn].accept(payload, trace)

    def _pass_on(self, rule: str, arn: str, event: Mapping[str, Any]) -> None:
        reason = ""
        if arn not in self._known:
            reason = "there is no such function"
        elif not self.may_pass_on(rule, arn):
            reason = "its policy does not allow it"
        if reason:
            self.undelivered.append(f"{rule} cannot invoke {arn}: {reason}")
            _log.error("%s", self.undelivered[-1])
            return
        invocations = self._known[arn]
        payload = {**{name: event[name] for name in _EVENT_FIELDS}, "time": _written(event["time"])}
        for seconds in self.deliveries(invocations.function.concern):
            invocations.accept(payload, after_seconds=seconds)

    def _answer(self, response: Any) -> Reply:
        qualifier = response.querystring.get("Qualifier", [""])[0]
        arn = invoked_arn(response.region, response.path, qualifier)
        invocations = self._known.get(arn)
        if invocations is None:
            return _refusal(404, "ResourceNotFoundException", f"Function not found: {arn}")
        kind = response.headers.get("X-Amz-Invocation-Type") or "RequestResponse"
        body = response.body.encode() if isinstance(response.body, str) else bytes(response.body or b"")
        limit = LARGEST_EVENT_BYTES if kind == "Event" else LARGEST_REQUEST_BYTES
        if len(body) > limit:
            what = (
                f"{len(body)} byte payload is too large for the {kind} invocation type (limit {limit} bytes)"
            )
            return _refusal(413, "RequestEntityTooLargeException", what)
        try:
            payload = json.loads(body or b"{}")
        except ValueError as error:
            what = f"Could not parse request body into json: {error}"
            return _refusal(400, "InvalidRequestContentException", what)
        return _invoked(invocations, kind, payload, response.headers.get(loopdetection.HEADER, ""))


def send_to_dead_letters(region: str, arn: str, body: str) -> None:
    """Put a message into the queue with this ARN, as Lambda does for the destination on failure."""
    sqs_backends[DEFAULT_ACCOUNT_ID][region].send_message(arn.rpartition(":")[2], body)


def _invoked(invocations: AsyncInvocations, kind: str, payload: Any, trace: str) -> Reply:
    match kind:
        case "DryRun":
            return 204, {}, ""
        case "Event":
            return 202, {"x-amzn-RequestId": invocations.accept(payload, trace)}, ""
        case "RequestResponse" if invocations.is_looping(trace):
            what = "Lambda has ended a chain of invocations that leads back to the function"
            return _refusal(400, "RecursiveInvocationException", what)
        case "RequestResponse":
            return _run(invocations, payload, trace)
        case _:
            return _refusal(400, "InvalidParameterValueException", f"unknown invocation type {kind}")


def _run(invocations: AsyncInvocations, payload: Any, trace: str) -> Reply:
    """Run the function synchronously and return Lambda's response."""
    function = invocations.function
    headers = {"X-Amz-Executed-Version": VERSION, "Content-Type": "application/json"}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(function, payload, loopdetection.invoked([trace], function.concern))
        error = run.exception()
    if isinstance(error, Throttled):
        return _refusal(429, "TooManyRequestsException", "Rate Exceeded.")
    if error is not None:
        return 200, {**headers, "X-Amz-Function-Error": "Unhandled"}, json.dumps(error_payload(error))
    return 200, headers, json.dumps(run.result())


def _refusal(status: int, code: str, message: str) -> Reply:
    kind = "User" if status < 500 else "Service"
    return status, {"x-amzn-ErrorType": code}, json.dumps({"Type": kind, "Message": message})


def _written(time: Any) -> str:
    """Format an event's time as EventBridge does; moto keeps it as the client sent it."""
    if isinstance(time, str) and not time.replace(".", "", 1).isdecimal():
        return time
    return datetime.fromtimestamp(float(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
