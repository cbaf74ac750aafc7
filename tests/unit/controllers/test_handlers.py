"""How a function handles an event with hints for several clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest

from nodesmith.adapters.aws.registrations import LAST_USE, READ_AGAIN, SsmRegistrations
from nodesmith.composition import handlers, parts
from nodesmith.composition.handlers import Handler, concern_handler
from nodesmith.composition.parts import ClusterParts, Parts
from nodesmith.composition.telemetry import Telemetry
from nodesmith.controllers.runs import Report
from nodesmith.errors import Rejected, RetryScheduled, Transient
from nodesmith.model.functions import MOST_ATTEMPTS, Concern, DelayedInvocation, Hint, hints_payload
from nodesmith.registration import CANARY_PARAMETER, Registration, Trial, parameter_name
from nodesmith.settings import function_name, function_vpc
from nodesmith_local.functions.deployment import register
from tests import builders
from tests.aws.account import REGION, client, deployed

if TYPE_CHECKING:
    from nodesmith.adapters.aws.messaging import LambdaInvocations, SqsDelayedInvocations

VPC = "vpc-01234567"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with deployed(monkeypatch):
        for cluster in ("east", "west", "north"):
            register(client, Registration(cluster, VPC, ("nodes",)))
        yield


def hints(*clusters: str, attempt: int = 0) -> Mapping[str, Any]:
    return hints_payload([Hint(cluster, attempt=attempt) for cluster in clusters])


class Delayed:
    """The queue of delayed invocations, as seconds and hint."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away
        self.put_off: list[tuple[int, str, str, Mapping[str, Any]]] = []

    def put(self, invocation: DelayedInvocation, delay_seconds: int) -> None:
        if self.away:
            raise Transient("SQS is away")
        self.put_off += [
            (delay_seconds, invocation.concern, invocation.vpc, message)
            for message in invocation.payload["messages"]
        ]

    @property
    def hints(self) -> list[tuple[int, str, int]]:
        """Return seconds, cluster and attempt."""
        return [(seconds, each["cluster"], each.get("attempt", 0)) for seconds, _, _, each in self.put_off]


class RecordingTelemetry(Telemetry):
    """Records what a function logs about clusters."""

    def __init__(self, cluster: str = "", lines: list[str] | None = None) -> None:
        super().__init__("lifecycle", cluster)
        self.cluster, self.lines = cluster, [] if lines is None else lines

    def of(self, cluster: str) -> RecordingTelemetry:
        return RecordingTelemetry(cluster, self.lines)

    def rejected(self, message: str) -> None:
        self._symptoms["Rejected"] = message
        self.lines.append(f"{self.cluster} rejected: {message}")

    def failed(self, error: BaseException) -> None:
        self.lines.append(f"{self.cluster} failed: {error}")


class Looks:
    """A concern that records the clusters that it served, and fails completely or partly for some."""

    def __init__(self, *parts: str, **errors: Exception) -> None:
        self.parts, self.errors = parts, errors
        self.composed: list[str] = []
        self.seen: list[str] = []
        self.telemetry = RecordingTelemetry()
        self.delayed = Delayed()

    def __call__(self, own: ClusterParts) -> handlers.Run:
        cluster = own.settings.cluster_name
        self.composed.append(cluster)

        def look() -> Report:
            self.seen.append(cluster)
            if cluster in self.errors:
                raise self.errors[cluster]
            return Report(retries_soon=cluster in self.parts)

        return look

    def handler(self, invoked: Invoked | None = None) -> Handler:
        made = Parts(Concern.LIFECYCLE)
        if invoked is not None:
            made.invocations = cast("LambdaInvocations", invoked)
        made.telemetry = self.telemetry
        made.delayed = cast("SqsDelayedInvocations", self.delayed)
        return concern_handler(made, self)


def test_each_cluster_of_an_event_is_served_once() -> None:
    looks = Looks()

    looks.handler()(hints("east", "west", "east"), None)

    assert looks.seen == ["east", "west"]
    assert looks.delayed.put_off == []


@pytest.mark.parametrize("error", [Transient("EC2 is away"), RuntimeError("a bug")])
def test_a_failure_for_one_cluster_is_retried_for_that_cluster_alone(error: Exception) -> None:
    looks = Looks(east=error)

    looks.handler()(hints("east", "west", "east"), None)

    assert looks.seen == ["east", "west"]
    assert looks.delayed.hints == [(5, "east", 1)]
    assert looks.telemetry.lines == [f"east failed: {error}"]


def test_a_run_that_scheduled_its_own_retry_is_logged_as_failed_and_not_retried() -> None:
    looks = Looks(east=RetryScheduled("EC2 throttles"))

    looks.handler()(hints("east", "west"), None)

    assert looks.seen == ["east", "west"]
    assert looks.delayed.put_off == []
    assert looks.telemetry.lines == ["east failed: EC2 throttles"]


def test_a_run_that_failed_in_part_is_retried() -> None:
    looks = Looks("west")

    looks.handler()(hints("east", "west"), None)

    assert looks.delayed.hints == [(5, "west", 1)]
    assert looks.telemetry.lines == []


def test_each_failure_of_a_run_delays_its_next_retry() -> None:
    looks = Looks(east=Transient("EC2 is away"))
    handle = looks.handler()

    for attempt in range(MOST_ATTEMPTS - 1):
        handle(hints("east", attempt=attempt), None)

    waits = [seconds for seconds, _, _ in looks.delayed.hints]
    assert waits == sorted(waits)
    assert [attempt for _, _, attempt in looks.delayed.hints] == list(range(1, MOST_ATTEMPTS))


@pytest.mark.parametrize("parts", [(), ("east",)])
def test_an_event_without_attempts_left_fails_after_the_other_clusters_are_served(
    parts: tuple[str, ...],
) -> None:
    looks = Looks(*parts, **({} if parts else {"east": RuntimeError("a bug")}))

    with pytest.raises(
        (RuntimeError, Transient), match=r"a bug|a part of the work fails in every run for east"
    ):
        looks.handler()(hints("east", "west", attempt=MOST_ATTEMPTS - 1), None)

    assert looks.seen == ["east", "west"]
    assert looks.delayed.put_off == []


def test_an_event_whose_retries_cannot_be_queued_fails_so_that_lambda_repeats_it() -> None:
    looks = Looks(east=Transient("EC2 is away"))
    looks.delayed.away = True

    with pytest.raises(Transient, match="SQS is away"):
        looks.handler()(hints("east", "west"), None)
    assert looks.seen == ["east", "west"]


def test_a_function_in_a_vpc_schedules_retries_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VPC_NAME", "private")
    register(client, Registration("east", VPC, ("nodes",), "private"))
    looks = Looks(east=Transient("EC2 is away"))

    looks.handler()(hints("east"), None)

    ((_, concern, vpc, _),) = looks.delayed.put_off
    assert (concern, vpc) == ("lifecycle", "private")


def test_a_rejection_for_one_cluster_is_logged_and_not_retried() -> None:
    looks = Looks(east=Rejected("the snapshot is damaged"))

    looks.handler()(hints("east", "west"), None)

    assert looks.delayed.put_off == []
    assert looks.telemetry.lines == ["east rejected: the snapshot is damaged"]


@pytest.mark.parametrize("cluster", ["nobody", "x", "../east", "e" * 300])
def test_a_message_for_an_unknown_cluster_is_logged_and_dropped(cluster: str) -> None:
    looks = Looks()

    looks.handler()(hints(cluster, "east"), None)

    assert (looks.seen, looks.delayed.put_off) == (["east"], [])
    (line,) = looks.telemetry.lines
    assert f"cluster '{cluster[:100]}' is not registered" in line


def test_a_cluster_whose_session_is_denied_affects_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(concern: Concern, cluster: str) -> Any:
        made = parts.own_session(concern, cluster)
        if cluster == "east":
            refuse(made.get_component("event_emitter"), "before-call.dynamodb", "AccessDeniedException", 400)
        return made

    monkeypatch.delenv("SESSION_ROLE_ARN", raising=False)
    parts.set_session(session)
    try:
        looks = Looks(east=RuntimeError("AccessDenied"))
        looks.handler()(hints("east", "west"), None)
    finally:
        parts.set_session(parts.own_session)

    assert looks.seen == ["east", "west"]
    assert looks.delayed.hints == [(5, "east", 1)]


def test_an_invalid_registration_affects_only_its_own_cluster() -> None:
    client("ssm").put_parameter(
        Name=parameter_name("east"), Value='{"format": 1}', Type="String", Overwrite=True
    )
    looks = Looks()

    looks.handler()(hints("east", "west"), None)

    assert (looks.seen, looks.delayed.put_off) == (["west"], [])
    (line,) = looks.telemetry.lines
    assert "vpcId: expected the id of the cluster's VPC, found None" in line


def test_a_process_keeps_the_parts_of_a_cluster_until_its_registration_changes() -> None:
    now = [builders.NOW]
    parts.set_clock(lambda: now[0])
    try:
        looks = Looks()
        handle = looks.handler()
        handle(hints("east"), None)
        handle(hints("east"), None)
        register(client, Registration("east", VPC, ("nodes",), settings={"RESERVED_ENIS": "1"}))
        handle(hints("east"), None)
        now[0] += READ_AGAIN + timedelta(seconds=1)
        handle(hints("east"), None)
    finally:
        parts.set_clock(parts.system_time)

    assert looks.composed == ["east", "east"]
    assert looks.seen == ["east"] * 4


def away(ssm: Any) -> None:
    """Let Parameter Store answer the calls of this client, which no other test uses, with an internal error."""
    refuse(ssm.meta.events, "before-call.ssm", "InternalServerError", 500)


def refuse(events: Any, calls: str, code: str, status: int) -> None:
    """Let AWS answer calls of a client or a session, by its events, with an error."""
    error = {"Error": {"Code": code, "Message": "away"}}
    answer = SimpleNamespace(status_code=status), {**error, "ResponseMetadata": {"HTTPStatusCode": status}}
    events.register(calls, lambda **_: answer)


@pytest.mark.parametrize("code", ["InternalServerError", "AccessDeniedException"])
def test_a_registration_serves_for_another_minute_while_parameter_store_is_away_and_no_longer(
    code: str,
) -> None:
    now, ssm = [builders.NOW], boto3.client("ssm", region_name=REGION)
    known = SsmRegistrations(lambda: ssm, lambda: now[0])
    east = known.get("east")
    refuse(ssm.meta.events, "before-call.ssm", code, 500 if code == "InternalServerError" else 400)

    for seconds in (0, 59, 61, 119):
        now[0] = builders.NOW + timedelta(seconds=seconds)
        assert known.get("east") == east
        assert not known.is_canary("east")

    now[0] = builders.NOW + LAST_USE
    with pytest.raises(Transient, match=f"ssm:GetParameters: {code}: away"):
        known.get("east")


def test_a_cluster_whose_registration_was_never_read_waits_for_parameter_store() -> None:
    ssm = boto3.client("ssm", region_name=REGION)
    known = SsmRegistrations(lambda: ssm, lambda: builders.NOW)
    known.get("east")
    away(ssm)
    with pytest.raises(Transient):
        known.get("west")


@pytest.mark.parametrize("value", [None, "{}"])
def test_a_registration_that_is_gone_or_invalid_serves_no_longer_although_another_was_known(
    value: str | None,
) -> None:
    now, ssm, name = [builders.NOW], boto3.client("ssm", region_name=REGION), parameter_name("east")
    known = SsmRegistrations(lambda: ssm, lambda: now[0])
    known.get("east")
    if value is None:
        ssm.delete_parameter(Name=name)
    else:
        ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
    now[0] += READ_AGAIN
    with pytest.raises(Rejected):
        known.get("east")
    away(ssm)
    with pytest.raises(Transient):
        known.get("east")


def test_a_process_keeps_the_parts_of_the_most_recently_served_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "MOST_CLUSTERS", 2)
    looks = Looks()
    handle = looks.handler()

    for cluster in ("east", "west", "east", "north", "east", "west"):
        handle(hints(cluster), None)

    assert looks.composed == ["east", "west", "north", "west"]


@pytest.mark.parametrize("event", [{}, {"messages": "east"}, {"messages": [7]}])
def test_an_event_that_cannot_be_read_is_logged_and_dropped(event: Mapping[str, Any]) -> None:
    looks = Looks()

    looks.handler()(event, None)

    assert looks.seen == []
    (line,) = looks.telemetry.lines
    assert " rejected: " in line


def test_a_cluster_is_served_with_the_settings_of_its_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VPC_NAME", "private")
    register(
        client,
        Registration("east", VPC, ("first", "second"), "private", {"VM_MEMORY_OVERHEAD_PERCENT": "0.05"}),
    )
    found: list[ClusterParts] = []

    def composed(own: ClusterParts) -> handlers.Run:
        found.append(own)
        return Report

    concern_handler(Parts(Concern.READINESS), composed)(hints("east"), None)

    (own,) = found
    assert own.settings.default_node_role == "first"
    assert own.node_settings().vm_memory_overhead_percent == 0.05


@pytest.mark.parametrize(("here", "there"), [("", "private"), ("private", ""), ("private", "other")])
def test_a_cluster_is_left_to_the_function_that_reaches_its_api_server(
    here: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VPC_NAME", here)
    for cluster, reached_from in (("east", there), ("west", here)):
        register(client, Registration(cluster, VPC, ("nodes",), reached_from))
    looks = Looks()

    looks.handler()(hints("east", "west"), None)

    assert (looks.seen, looks.delayed.put_off) == (["west"], [])
    (line,) = looks.telemetry.lines
    assert f"{function_name('lifecycle', there)} serves it" in line


def test_only_functions_that_call_api_servers_run_in_a_clusters_vpc() -> None:
    assert function_vpc(Concern.LIFECYCLE, "private") == "private"
    assert function_vpc(Concern.PROVISIONING, "private") == ""


def test_registrations_are_read_by_name_and_faults_are_reported_separately() -> None:
    boto3.client("ssm", REGION).put_parameter(
        Name=parameter_name("broken"), Value="?", Type="String", Overwrite=True
    )

    found, faults = Parts(Concern.DISPATCH).registrations.all()

    assert [each.cluster for each in found] == ["east", "north", "west"]
    assert faults.keys() == {"broken"}
    assert parameter_name("broken") in faults["broken"]


class Invoked:
    """Records invocations, and fails them if there is no release on trial."""

    def __init__(self, *, missing: bool = False) -> None:
        self.missing = missing
        self.events: list[tuple[str, str, Any]] = []

    def invoke(self, concern: Concern, vpc: str, payload: Mapping[str, Any], alias: str = "live") -> None:
        if self.missing:
            raise Rejected("there is no alias canary")
        assert vpc == ""
        self.events.append((concern, alias, payload))


def invoked_as(alias: str) -> object:
    arn = f"arn:aws:lambda:{REGION}:{builders.ACCOUNT}:function:nodesmith-lifecycle:{alias}"
    return SimpleNamespace(invoked_function_arn=arn)


def on_trial(*clusters: str) -> None:
    value = Trial(frozenset(clusters), "2-b").to_json()
    client("ssm").put_parameter(Name=CANARY_PARAMETER, Value=value, Type="String")


@pytest.mark.parametrize(
    ("alias", "seen", "handed_over"),
    [("live", ["west"], ["east"]), ("canary", ["east", "west"], [])],
)
def test_a_trial_release_serves_its_clusters_and_the_stable_one_all_others(
    alias: str, seen: list[str], handed_over: list[str]
) -> None:
    on_trial("east")
    looks, invoked = Looks(), Invoked()

    looks.handler(invoked)(hints("east", "west"), invoked_as(alias))

    assert looks.seen == seen
    assert invoked.events == [("lifecycle", "canary", hints_payload([Hint(each)])) for each in handed_over]


@pytest.mark.parametrize("value", ["?", '{"clusters": "east"}', '{"clusters": [7]}', '["east"]', None])
def test_without_a_readable_trial_no_cluster_is_on_trial(value: str | None) -> None:
    if value is not None:
        client("ssm").put_parameter(Name=CANARY_PARAMETER, Value=value, Type="String")
    looks, invoked = Looks(), Invoked()

    looks.handler(invoked)(hints("east"), invoked_as("live"))

    assert (looks.seen, invoked.events) == (["east"], [])


def test_the_other_release_serves_the_clusters_of_a_trial_that_is_gone() -> None:
    on_trial("east")
    looks = Looks()

    looks.handler(Invoked(missing=True))(hints("east"), invoked_as("live"))

    assert looks.seen == ["east"]
