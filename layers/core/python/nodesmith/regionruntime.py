"""The composition root of the functions that serve a whole region at once: routing, dispatch, catalog."""

from __future__ import annotations

from datetime import datetime

from nodesmith.errors import Rejected
from nodesmith.handlers import Event, Handler, routing_events
from nodesmith.model.events import Concern
from nodesmith.parts import Parts, now
from nodesmith.settings import function_name


def routing() -> Handler:
    """Compose routing: what EC2 says of an instance reaches the cluster that launched it."""
    from nodesmith.adapters.markedinstances import Ec2MarkedInstances
    from nodesmith.adapters.messages import SqsHints
    from nodesmith.adapters.notices import DynamoRegionNotices
    from nodesmith.adapters.routes import DynamoRoutes
    from nodesmith.controllers.routing import Routing, route, wake_warned

    parts = Parts(Concern.ROUTING)
    table, dynamodb = parts.settings.table_name, parts.client("dynamodb")
    urls = {Concern.INTERRUPTION: f"{parts.settings.queues_url}/{function_name(Concern.INTERRUPTION)}"}
    run = Routing(
        routes=DynamoRoutes(dynamodb, table),
        notices=DynamoRegionNotices(dynamodb, table, now),
        marked=Ec2MarkedInstances(lambda: parts.client("ec2")),
        hints=SqsHints(parts.client("sqs"), urls),
        clock=now,
    )
    return routing_events(parts, lambda event, account: route(run, event, account), lambda: wake_warned(run))


def dispatch() -> Handler:
    """Compose dispatch: each cluster's concerns look from time to time. Woken by a schedule, without a message."""
    from nodesmith.adapters.healthrecords import DeadLetters, HealthEvents, HealthRecords
    from nodesmith.adapters.ticks import SqsTicks
    from nodesmith.controllers.dispatch import Dispatch, send_ticks
    from nodesmith.controllers.health import HealthCheck, check_health, is_due
    from nodesmith.decisions.health import KINDS

    parts = Parts(Concern.DISPATCH, "ssm", "dynamodb", "events")
    settings, sqs = parts.settings, parts.client("sqs")
    run = Dispatch(parts.registrations, SqsTicks(sqs, settings.queues_url))
    health = HealthCheck(
        HealthRecords(parts.client("dynamodb"), settings.table_name),
        DeadLetters(sqs, settings.queues_url),
        HealthEvents(parts.client("events"), settings.region),
    )

    def handle(event: Event, context: object) -> None:
        del context
        at = scheduled_at(event)
        report = send_ticks(run, at)
        for why in report.rejected:
            parts.telemetry.rejected(why)
        if is_due(at):
            found = check_health(health, report.registrations, report.faults, now())
            for finding in found:
                parts.telemetry.unwell(finding, KINDS.get(finding.kind, ""))
            if found:
                parts.telemetry.alarm("Unwell", len(found))
        parts.telemetry.ran(report.counts)

    return handle


def scheduled_at(event: Event) -> datetime:
    """Return the time for which EventBridge Scheduler has invoked a function; the present where the event has none."""
    from nodesmith.model.times import is_time, parse_time

    said = event.get("at")
    return parse_time(said) if isinstance(said, str) and is_time(said) else now()


def catalog() -> Handler:
    """Compose catalog: what can be bought, refreshed. Woken by a schedule, without a message."""
    from nodesmith.adapters.catalogs import StoredCatalogs, embedded_prices
    from nodesmith.adapters.pricing import aws_market
    from nodesmith.controllers.catalog import refresh_catalog

    parts = Parts(Concern.CATALOG)
    region = parts.settings.region
    market = aws_market(region, isolated_vpc=parts.settings.isolated_vpc)
    catalogs = StoredCatalogs(region, parts.blobs)

    def handle(event: Event, context: object) -> None:
        del event, context
        try:
            report = refresh_catalog(market, catalogs, embedded_prices(region), now())
        except Rejected as error:
            parts.telemetry.rejected(str(error))
            parts.health.ran(False, parts.telemetry.take_symptoms())
            return
        parts.telemetry.ran({"InstanceTypes": report.types, "Offerings": report.offerings}, ref=report.ref)
        parts.health.ran(True, {})

    return handle
