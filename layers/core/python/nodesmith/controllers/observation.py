"""The story of observation: when the forwarder has gone silent, look at the API server ourselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from nodesmith.controllers.snapshots import newest_snapshot
from nodesmith.errors import Rejected
from nodesmith.model.events import INFORMED, Hint
from nodesmith.observation.wire import Observed, encode
from nodesmith.ports import Blobs, Hints
from nodesmith.settings import snapshot_key

_CLOCK_SKEW = timedelta(minutes=1)
"""How far a forwarder's clock may be ahead: a snapshot of next year must not count as fresh until then."""


class Observer(Protocol):
    """Something that reads a whole cluster."""

    def observe(self) -> Observed:
        """List everything a decision needs."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a run needs. A snapshot older than `stale_after` means that the forwarder is away."""

    cluster_name: str
    observer: Callable[[], Observer]
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
    stale_after: timedelta


def observe(run: Observation) -> bool:
    """Write a snapshot if the newest is stale or damaged; tell whether one was written. Raises Transient."""
    now = run.clock()
    if _is_fresh(run, now):
        return False
    run.blobs.put(snapshot_key(run.cluster_name), encode(run.cluster_name, now, run.observer().observe()))
    for concern in INFORMED:
        run.hints.send(concern, Hint(run.cluster_name, "observed without the forwarder"))
    return True


def _is_fresh(run: Observation, now: datetime) -> bool:
    try:
        newest = newest_snapshot(run.blobs, run.cluster_name)
    except Rejected:
        return False
    return newest is not None and now - run.stale_after < newest.taken_at <= now + _CLOCK_SKEW
