"""Deduplication of Events: a warm process does not repeat an Event on an object that it has published lately."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from datetime import datetime, timedelta
from typing import TypeAlias

from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.ports import Cluster

EventDeduplication: TypeAlias = MutableMapping[ObjectEvent, datetime]
"""Published Events, each with the time until which it must not be repeated. Kept from run to run.

Losing it does no harm: publishing an Event again only updates its time.
"""


def publish_new(
    cluster: Cluster,
    events: Iterable[ObjectEvent],
    told: EventDeduplication,
    now: datetime,
    again_after: timedelta,
    most: int | None = None,
) -> int:
    """Publish the Events that are new, at most `most`, and return how many. Each is suppressed for `again_after`.

    Raises Transient; nothing is suppressed then.
    """
    new = unpublished(events, told, now)[:most]
    if new:
        cluster.publish(new)
        told.update(dict.fromkeys(new, now + again_after))
    return len(new)


def unpublished(events: Iterable[ObjectEvent], told: EventDeduplication, now: datetime) -> list[ObjectEvent]:
    """Return the Events that are new, each once."""
    for event in [event for event, until in told.items() if until <= now]:
        del told[event]
    return [event for event in dict.fromkeys(events) if event not in told]
