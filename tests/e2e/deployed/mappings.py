"""Event source mappings and schedules of a template, as the local system's pollers and schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from nodesmith.model.times import format_time
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud.queues import PolledQueues
from nodesmith_cli.local.eventsource import EventSource, Invocable, Mapped
from nodesmith_cli.local.invoker import Schedule
from tests.infra.templates import Template

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_MAPPING = frozenset(
    "BatchSize EventSourceArn FunctionName FunctionResponseTypes MaximumBatchingWindowInSeconds ScalingConfig "
    "Tags".split()
)
_SCHEDULE = frozenset("FlexibleTimeWindow GroupName ScheduleExpression Target".split())
USUAL = 2
"""Invocations at once, where a mapping does not say. Lambda has more where messages pile up, which none do here."""


def concurrency(mapping: Mapping[str, Any]) -> int:
    """Give how many invocations a mapping allows at once."""
    return int(mapping.get("ScalingConfig", {}).get("MaximumConcurrency", USUAL))


def event_sources(
    template: Template,
    functions: Mapping[str, Invocable],
    queues: Callable[[str], PolledQueues],
    url: Callable[[str], str],
    clock: LocalClock,
) -> dict[str, EventSource]:
    """Give the event sources by concern, `interruption-again` being its second chance.

    `queues` gives those that are polled for one, `url` a queue's URL by ARN.
    """
    sources = {}
    functions_of = template.of_type("Lambda::Function").values()
    allowed = {each["FunctionName"]: each.get("RecursiveLoop", "Terminate") for each in functions_of}
    for mapping in template.of_type("Lambda::EventSourceMapping").values():
        _only(_MAPPING, mapping, f"mapping of {mapping['FunctionName']}")
        concern = concern_of(mapping["FunctionName"])
        mapped = Mapped(
            batch_size=mapping.get("BatchSize", 10),
            window_seconds=mapping.get("MaximumBatchingWindowInSeconds", 0),
            concurrency=concurrency(mapping),
            partial_answers="ReportBatchItemFailures" in mapping.get("FunctionResponseTypes", ()),
        )
        arn = mapping["EventSourceArn"]
        name = concern + arn.rpartition(concern)[2]
        loop = allowed[mapping["FunctionName"]]
        sources[name] = EventSource(queues(concern), url(arn), functions[concern], arn, mapped, clock, loop)
    return sources


def concern_of(function: str) -> str:
    """Give the concern of a function, after its VPC where it has one: `private-lifecycle`."""
    return function.removeprefix("nodesmith-")


def schedules(template: Template, invoke: Callable[[str, Mapping[str, Any]], object]) -> Iterator[Schedule]:
    """Give the schedules, which invoke functions by their concern. Raises ValueError for any other target."""
    for id_, schedule in template.of_type("Scheduler::Schedule").items():
        _only(_SCHEDULE, schedule, f"schedule {id_}")
        rate = _RATE.fullmatch(schedule["ScheduleExpression"])
        if rate is None:
            raise ValueError(f"schedule {id_}: {schedule['ScheduleExpression']} is no rate")
        arn, text = schedule["Target"]["Arn"], schedule["Target"]["Input"]
        if ":function:" not in arn:
            raise ValueError(f"schedule {id_}: {arn} is no function")
        concern = concern_of(arn.rpartition(":")[2])
        yield Schedule(concern, partial(_invoke, invoke, concern, text), int(rate[1]) * _SECONDS[rate[2]])


def _invoke(
    invoke: Callable[[str, Mapping[str, Any]], object], concern: str, text: str, at: datetime
) -> object:
    """Invoke with the input of a schedule, filled in as EventBridge Scheduler does."""
    return invoke(concern, json.loads(text.replace("<aws.scheduler.scheduled-time>", format_time(at))))


def _only(known: frozenset[str], found: Mapping[str, Any], where: str) -> None:
    unknown = found.keys() - known
    if unknown:
        raise ValueError(f"{where}: unknown properties {', '.join(sorted(unknown))}")
