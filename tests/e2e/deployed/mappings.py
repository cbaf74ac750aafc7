"""A template's event source mappings and schedules, as the local system's pollers and schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from nodesmith.model.apimachinery.times import format_time
from nodesmith.settings import function_name
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions.eventsource import EventSource, QueueMapping
from nodesmith_local.functions.invocable import Invocable
from nodesmith_local.functions.invoker import Schedule
from nodesmith_local.functions.queues import PolledQueues
from tests.e2e.deployed.invocations import USUAL, concern_of, only, recursive_loops
from tests.infra.templates import Template

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_MAPPING = frozenset(
    "BatchSize EventSourceArn FunctionName FunctionResponseTypes MaximumBatchingWindowInSeconds ScalingConfig "
    "Tags".split()
)
_SCHEDULE = frozenset("FlexibleTimeWindow GroupName ScheduleExpression Target".split())
_TARGET = frozenset("Arn Input RetryPolicy RoleArn".split())
"""Scheduler would retry what Lambda does not accept, which does not happen here."""


def concurrency(mapping: Mapping[str, Any]) -> int:
    """Return how many concurrent invocations a mapping allows."""
    return int(mapping.get("ScalingConfig", {}).get("MaximumConcurrency", USUAL))


def event_sources(
    template: Template,
    functions: Mapping[str, Invocable],
    queues: Callable[[str], PolledQueues],
    url: Callable[[str], str],
    clock: LocalClock,
) -> dict[str, EventSource]:
    """Return the event sources by queue name.

    `queues` returns the queues that are polled for a concern, and `url` a queue's URL by ARN.
    """
    sources, loops = {}, recursive_loops(template)
    for mapping in template.of_type("Lambda::EventSourceMapping").values():
        only(_MAPPING, mapping, f"mapping of {mapping['FunctionName']}")
        concern = concern_of(mapping["FunctionName"])
        mapped = QueueMapping(
            batch_size=mapping.get("BatchSize", 10),
            window_seconds=mapping.get("MaximumBatchingWindowInSeconds", 0),
            concurrency=concurrency(mapping),
            partial_answers="ReportBatchItemFailures" in mapping.get("FunctionResponseTypes", ()),
        )
        arn = mapping["EventSourceArn"]
        loop = loops[function_name(concern)]
        source = EventSource(queues(concern), url(arn), functions[concern], arn, mapped, clock, loop)
        sources[arn.rpartition(":")[2]] = source
    return sources


def schedules(template: Template, invoke: Callable[[str, Mapping[str, Any]], object]) -> Iterator[Schedule]:
    """Yield the schedules, which `invoke` functions by ARN. Raises ValueError for any other target."""
    for id_, schedule in template.of_type("Scheduler::Schedule").items():
        only(_SCHEDULE, schedule, f"schedule {id_}")
        rate = _RATE.fullmatch(schedule["ScheduleExpression"])
        if rate is None:
            raise ValueError(f"schedule {id_}: {schedule['ScheduleExpression']} is not a rate")
        arn, text = schedule["Target"]["Arn"], schedule["Target"]["Input"]
        if ":function:" not in arn:
            raise ValueError(f"schedule {id_}: {arn} is not a function")
        only(_TARGET, schedule["Target"], f"target of schedule {id_}")
        every_seconds = int(rate[1]) * _SECONDS[rate[2]]
        yield Schedule(concern_of(arn), partial(_invoke, invoke, arn, text), every_seconds)


def _invoke(invoke: Callable[[str, Mapping[str, Any]], object], arn: str, text: str, at: datetime) -> object:
    """Invoke with a schedule's input, filled in as EventBridge Scheduler does."""
    return invoke(arn, json.loads(text.replace("<aws.scheduler.scheduled-time>", format_time(at))))
