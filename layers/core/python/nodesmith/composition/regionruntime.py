"""The composition root of the functions that serve a whole region, and their handlers: routing, dispatch, catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from nodesmith.composition.handlers import Event, Handler
from nodesmith.composition.parts import Parts, collect_seldom, now
from nodesmith.controllers.runs import Report
from nodesmith.errors import Failures, Rejected, Transient
from nodesmith.model.functions import Concern, DelayedInvocation, retry_seconds
from nodesmith.settings import COMMITMENTS

if TYPE_CHECKING:
    from nodesmith.ports import Catalogs
    from nodesmith.registration import Registration


def routing() -> Handler:
    """Compose routing, which passes notices about an instance to the cluster that launched it."""
    from nodesmith.adapters.aws.eks import RegionShifts
    from nodesmith.adapters.aws.messaging import LambdaHints, LambdaTicks
    from nodesmith.adapters.dynamodb.regionitems import DynamoRegionNotices, DynamoRoutes
    from nodesmith.adapters.ec2.instances import Ec2MarkedInstances
    from nodesmith.controllers.region.routing import (
        Routing,
        Shifts,
        is_of_shifts,
        route,
        wake_shifted,
        wake_warned,
    )
    from nodesmith.controllers.runs import Report

    parts = Parts(Concern.ROUTING, "dynamodb", "lambda")
    table, dynamodb = parts.settings.table_name, parts.client("dynamodb")
    run = Routing(
        routes=DynamoRoutes(dynamodb, table),
        notices=DynamoRegionNotices(dynamodb, table, now),
        marked=Ec2MarkedInstances(lambda: parts.client("ec2")),
        hints=LambdaHints(parts.invocations, parts.delayed),
        clock=now,
    )
    shifts = Shifts(
        RegionShifts(lambda: parts.client("arc-zonal-shift")),
        parts.registrations,
        LambdaTicks(parts.invocations),
    )

    def routed(event: str, account: str) -> Report:
        return wake_shifted(shifts, event) if is_of_shifts(event) else route(run, event, account)

    def tick() -> Report:
        report = Report()
        with Failures() as failures:
            # A spot warning leaves two minutes, so it comes first. If one look-up fails, the other still runs.
            with failures.of("spot instances"):
                report.counts.update(wake_warned(run).counts)
            with failures.of("zonal shifts"):
                report.counts.update(wake_shifted(shifts).counts)
        return report

    return routing_events(parts, routed, tick)


def dispatch() -> Handler:
    """Compose dispatch, which wakes each cluster's concerns when they are due. A schedule invokes it."""
    from nodesmith.adapters.aws.messaging import HealthEvents, LambdaTicks
    from nodesmith.adapters.aws.registrations import SsmLimits, SsmTrials
    from nodesmith.adapters.dynamodb.healthrecords import (
        DynamoMarks,
        HealthRecords,
        SqsDeadLetters,
    )
    from nodesmith.adapters.dynamodb.regionitems import DynamoSharedLimits
    from nodesmith.controllers.region.dispatch import (
        Dispatch,
        HealthCheck,
        Limits,
        check_health,
        is_due,
        keep_limits,
        try_ticks,
    )
    from nodesmith.decisions.dispatch import KINDS
    from nodesmith.registration import settings_of

    parts = Parts(Concern.DISPATCH, "ssm", "dynamodb", "events", "lambda")
    settings, dynamodb = parts.settings, parts.client("dynamodb")
    records = HealthRecords(dynamodb, settings.table_name)

    def stale_after(registration: Registration) -> timedelta:
        return timedelta(seconds=settings_of(registration, settings).heartbeat_stale_seconds)

    marks = DynamoMarks(dynamodb, settings.table_name)
    ticks = LambdaTicks(parts.invocations)
    run = Dispatch(parts.registrations, marks, records, ticks, stale_after)
    health = HealthCheck(
        records,
        SqsDeadLetters(parts.client, settings.queue_url),
        HealthEvents(parts.client("events"), settings.region),
        SsmTrials(lambda: parts.client("ssm")),
    )

    shared = DynamoSharedLimits(dynamodb, settings.table_name)
    limits = Limits(SsmLimits(lambda: parts.client("ssm")), shared, ticks)

    def tick(event: Event) -> None:
        at, of_limits = scheduled_at(event), None
        report = try_ticks(run, at)
        for reason in report.rejected:
            parts.telemetry.rejected(reason)
        with Failures() as failures:
            for delay in report.delays:
                failures.add(delay)
            with failures.of("limits"):
                of_limits = keep_limits(limits, report.registrations, report.faults, now())
            if is_due(at):
                new_findings = check_health(health, report.registrations, report.faults, now(), of_limits)
                for finding in new_findings:
                    parts.telemetry.unhealthy(finding, KINDS.get(finding.kind, ""))
                if new_findings:
                    parts.telemetry.alarm("Unhealthy", len(new_findings))
            parts.telemetry.ran(report.counts)

    return delayed_or_scheduled(parts, tick)


def scheduled_at(event: Event) -> datetime:
    """Return the scheduled time of an EventBridge Scheduler invocation, or the current time if the event has none."""
    from nodesmith.model.apimachinery.times import is_time, parse_time

    text = event.get("at")
    return parse_time(text) if isinstance(text, str) and is_time(text) else now()


def catalog() -> Handler:
    """Compose catalog, which refreshes the catalogue and reads commitments. Schedules invoke it.

    The event of the more frequent schedule asks for commitments alone.
    """
    from nodesmith.adapters.catalog.catalogs import StoredCatalogs, embedded_prices
    from nodesmith.adapters.catalog.pricing import aws_market
    from nodesmith.controllers.region.catalog import refresh_catalog

    parts = Parts(Concern.CATALOG)
    region = parts.settings.region
    market = aws_market(region, isolated_vpc=parts.settings.isolated_vpc)
    catalogs = StoredCatalogs(region, parts.blobs)

    def handle(event: Event, context: object) -> None:
        parts.context = context
        try:
            if event.get("reason") == COMMITMENTS:
                _read_commitments(parts, catalogs)
                return
            report = refresh_catalog(market, catalogs, embedded_prices(region), now())
            _read_commitments(parts, catalogs)
        except Rejected as error:
            parts.telemetry.rejected(str(error))
            parts.health.ran(False, parts.telemetry.take_symptoms())
            return
        parts.telemetry.ran({"InstanceTypes": report.types, "Offerings": report.offerings}, ref=report.ref)
        parts.health.ran(True, {})

    return handle


def _read_commitments(parts: Parts, catalogs: Catalogs) -> None:
    """Read the commitments if the deployment uses them. Log each fault when it first appears."""
    settings = parts.settings.commitments
    if settings is None:
        return
    from nodesmith.adapters.aws.commitments import AwsCommitments
    from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
    from nodesmith.controllers.region.commitments import read_commitments_of

    reader = AwsCommitments(parts.settings.region, parts.client)
    store = DynamoCommitments(parts.client("dynamodb"), parts.settings.table_name)
    role = settings.payer_role_arn
    payer = partial(reader.of_payer_through, role, partial(_clients_of, parts)) if role else None
    reading = read_commitments_of(reader, payer, settings, store, parts.blobs, catalogs.latest(), now())
    for fault in reading.new_faults:
        parts.telemetry.rejected(f"commitments: {fault}")
    parts.telemetry.ran({"Commitments": len(reading.book.commitments)})


def _clients_of(parts: Parts, credentials: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a function that makes clients with temporary credentials."""

    def client(service: str) -> Any:
        return parts.client.session.create_client(
            service,
            region_name=parts.settings.region,
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["SessionToken"],
        )

    return client


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
            report = tick() if event.get("reason") == _TICK else route(json.dumps(content), _account(context))
        except Rejected as error:
            parts.telemetry.rejected(str(error))
        except Transient as error:
            _route_again(parts, content, attempt, error)
        else:
            for reason in report.rejected:
                parts.telemetry.rejected(reason)
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
    if content.get("reason") == _TICK or seconds is None:
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
