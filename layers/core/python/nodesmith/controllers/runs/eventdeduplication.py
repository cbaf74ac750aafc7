"""Events that are news: what a warm process has said of an object lately it does not say again."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from datetime import datetime, timedelta
from typing import TypeAlias

from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.ports import Cluster

Told: TypeAlias = MutableMapping[ObjectEvent, datetime]
"""What was said, and until when it is no news; kept from run to run. No harm if lost: it only moves an Event's time."""


def tell(
    cluster: Cluster,
    events: Iterable[ObjectEvent],
    told: Told,
    now: datetime,
    again_after: timedelta,
    most: int | None = None,
) -> int:
    """Publish what is news, of much the first so many; give how much. It is no news then until `again_after`.

    Raises Transient, after which it still is.
    """
    new = unsaid(events, told, now)[:most]
    if new:
        cluster.publish(new)
        told.update(dict.fromkeys(new, now + again_after))
    return len(new)


def unsaid(events: Iterable[ObjectEvent], told: Told, now: datetime) -> list[ObjectEvent]:
    """Return what is news, each once."""
    for event in [event for event, until in told.items() if until <= now]:
        del told[event]
    return [event for event in dict.fromkeys(events) if event not in told]
