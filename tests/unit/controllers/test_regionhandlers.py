"""How the functions of a region handle events: routing those of EventBridge, dispatch delayed invocations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from nodesmith.adapters.dynamodb.healthrecords import HealthRecords
from nodesmith.composition import parts
from nodesmith.composition.parts import Parts
from nodesmith.composition.regionruntime import delayed_or_scheduled, dispatch, routing_events
from nodesmith.controllers.runs import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions import MOST_ATTEMPTS, Concern, DelayedInvocation, Hint, hints_payload
from nodesmith.model.policies import LIMIT_PARAMETERS
from nodesmith.registration import Registration
from nodesmith_local.functions.deployment import TABLE_NAME, register
from tests import builders
from tests.aws.account import REGION, client, deployed

if TYPE_CHECKING:
    from nodesmith.adapters.aws.messaging import LambdaInvocations, SqsDelayedInvocations

EVENT = {"id": "e-1", "account": builders.ACCOUNT, "detail": {"instance-id": "i-1"}}
CONTEXT = SimpleNamespace(
    invoked_function_arn=f"arn:aws:lambda:{REGION}:{builders.ACCOUNT}:function:nodesmith-routing:live"
)
WAITING = DelayedInvocation(Concern.LIFECYCLE, "private", hints_payload([Hint("east")]))


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with deployed(monkeypatch):
        yield


class ClusterPorts:
    """Records invocations and delays. Some functions do not exist, and some cannot be reached."""

    def __init__(self, *, missing: str = "", away: str = "") -> None:
        self.missing, self.away = missing, away
        self.invoked: list[tuple[str, str, Mapping[str, Any]]] = []
        self.put_off: list[tuple[int, DelayedInvocation]] = []

    def invoke(self, concern: Concern, vpc: str, payload: Mapping[str, Any]) -> None:
        if concern == self.missing:
            raise Rejected(f"the function {concern} does not exist")
        if concern == self.away:
            raise Transient("Lambda is away")
        self.invoked.append((concern, vpc, payload))

    def put(self, invocation: DelayedInvocation, delay_seconds: int) -> None:
        self.put_off.append((delay_seconds, invocation))

    def parts(self, concern: Concern) -> Parts:
        made = Parts(concern)
        made.invocations = cast("LambdaInvocations", self)
        made.delayed = cast("SqsDelayedInvocations", self)
        return made


class Routed:
    """Records what is routed, and fails if requested."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.events: list[tuple[Any, str]] = []
        self.ticks = 0

    def route(self, event: str, account: str) -> Report:
        self.events.append((json.loads(event), account))
        if self.error is not None:
            raise self.error
        return Report()

    def tick(self) -> Report:
        self.ticks += 1
        if self.error is not None:
            raise self.error
        return Report()


def test_an_eventbridge_event_is_routed_with_the_functions_account() -> None:
    routed = Routed()

    routing_events(ClusterPorts().parts(Concern.ROUTING), routed.route, routed.tick)(EVENT, CONTEXT)

    assert routed.events == [(EVENT, builders.ACCOUNT)]
    assert routed.ticks == 0


def test_a_tick_of_routing_is_not_an_event() -> None:
    routed = Routed()

    routing_events(ClusterPorts().parts(Concern.ROUTING), routed.route, routed.tick)(
        {"reason": "tick"}, CONTEXT
    )

    assert (routed.events, routed.ticks) == ([], 1)


def test_an_event_that_cannot_be_routed_is_retried_unchanged_until_no_attempts_are_left() -> None:
    outside, routed = ClusterPorts(), Routed(Transient("DynamoDB is away"))
    handle = routing_events(outside.parts(Concern.ROUTING), routed.route, routed.tick)

    handle(EVENT, CONTEXT)
    for _ in range(1, MOST_ATTEMPTS - 1):
        handle(outside.put_off[-1][1].payload, CONTEXT)

    assert [seconds for seconds, _ in outside.put_off][:4] == [5, 5, 5, 10]
    assert {each.concern for _, each in outside.put_off} == {Concern.ROUTING}
    assert routed.events == [(EVENT, builders.ACCOUNT)] * (MOST_ATTEMPTS - 1)
    with pytest.raises(Transient, match="DynamoDB is away"):
        handle(outside.put_off[-1][1].payload, CONTEXT)


def test_a_rejected_event_is_not_retried() -> None:
    outside, routed = ClusterPorts(), Routed(Rejected("no event"))

    routing_events(outside.parts(Concern.ROUTING), routed.route, routed.tick)(EVENT, CONTEXT)

    assert outside.put_off == []


def test_a_failed_tick_is_not_retried_since_the_next_one_follows() -> None:
    outside, routed = ClusterPorts(), Routed(Transient("EC2 is away"))

    with pytest.raises(Transient, match="EC2 is away"):
        routing_events(outside.parts(Concern.ROUTING), routed.route, routed.tick)({"reason": "tick"}, CONTEXT)
    assert outside.put_off == []


def records(*bodies: str) -> Mapping[str, Any]:
    return {"Records": [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]}


def test_delayed_invocations_are_invoked_and_only_failed_ones_are_redelivered() -> None:
    ticks: list[Mapping[str, Any]] = []
    outside = ClusterPorts(missing="repair", away="termination")
    handle = delayed_or_scheduled(outside.parts(Concern.DISPATCH), ticks.append)
    gone, later = (DelayedInvocation(concern, "", {}) for concern in (Concern.REPAIR, Concern.TERMINATION))

    answer = handle(records(WAITING.to_json(), "no JSON", gone.to_json(), later.to_json()), CONTEXT)

    assert outside.invoked == [("lifecycle", "private", WAITING.payload)]
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m3"}]}
    assert ticks == []


def test_a_scheduled_event_runs_dispatch_without_records() -> None:
    ticks: list[Mapping[str, Any]] = []

    answer = delayed_or_scheduled(ClusterPorts().parts(Concern.DISPATCH), ticks.append)(
        {"reason": "tick"}, CONTEXT
    )

    assert (answer, ticks) == (None, [{"reason": "tick"}])


@pytest.mark.parametrize(
    ("call", "about"), [("lambda.Invoke", ""), ("ssm.GetParametersByPath", LIMIT_PARAMETERS)]
)
def test_health_is_checked_although_another_part_of_the_tick_fails(call: str, about: str) -> None:
    error = {"Error": {"Code": "TooManyRequestsException", "Message": "no"}, "ResponseMetadata": {}}
    answer = SimpleNamespace(status_code=429), error

    def refuse(params: Mapping[str, Any], **_: object) -> object:
        return answer if about in str(params["body"]) else None

    def session(concern: Concern, cluster: str) -> Any:
        made = parts.own_session(concern, cluster)
        made.get_component("event_emitter").register(f"before-call.{call}", refuse)
        return made

    register(client, Registration("east", "vpc-01234567", ("nodes",)))
    parts.set_session(session)
    try:
        with pytest.raises(Transient, match="TooManyRequestsException"):
            dispatch()({"at": "2026-11-21T12:00:00Z"}, None)
    finally:
        parts.set_session(parts.own_session)

    since, _ = HealthRecords(client("dynamodb"), TABLE_NAME).state()
    assert set(since) == {"", "east"}
