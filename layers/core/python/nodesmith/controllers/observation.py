"""The controller of observation: read the API server directly when the forwarder has stopped, and load snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from nodesmith.errors import Rejected, Transient
from nodesmith.keys import snapshot_key
from nodesmith.model.functions import CLOCK_SKEW, INFORMED, Concern, Heartbeat, Hint
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import Reader
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.ports import Blobs, Hints

OUTDATED = timedelta(hours=1)
"""The age of a snapshot that nobody has confirmed since, from which on nothing is bought for its pods."""


class Observer(Protocol):
    """Reads a whole cluster."""

    def observe(self) -> Observed:
        """Return everything that decisions need."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a run needs. A heartbeat older than `stale_after` means that the forwarder is away.

    `last_heartbeat` returns the forwarder's newest heartbeat, None if there is none.
    """

    cluster_name: str
    observer: Callable[[], Observer]
    blobs: Blobs
    hints: Hints
    last_heartbeat: Callable[[], Heartbeat | None]
    clock: Callable[[], datetime]
    stale_after: timedelta
    is_observed: bool = False
    """whether the cluster is only observed, so that nothing but its shadows is woken"""
    labels_kept: tuple[str, ...] = ()


def observe(run: Observation) -> bool:
    """Write a snapshot if the forwarder is away and the newest one is stale, missing or unreadable.

    Return whether one was written. The forwarder's heartbeat is not changed. Raises Transient, Rejected.
    """
    now = run.clock()
    if _is_fresh(run, now):
        return False
    observed = replace(run.observer().observe(), labels_kept=run.labels_kept)
    run.blobs.put(snapshot_key(run.cluster_name), encode(run.cluster_name, now, observed))
    for concern in (Concern.SHADOW,) if run.is_observed else INFORMED:
        run.hints.send(concern, Hint(run.cluster_name, "observed without the forwarder"))
    return True


def _is_fresh(run: Observation, now: datetime) -> bool:
    """Return whether the snapshot shows the cluster as it is now or was a moment ago.

    While the forwarder runs, a snapshot of any age is fresh, since the forwarder writes every change. After it has
    stopped, the last snapshot stays fresh for `stale_after`, as a heartbeat does.
    """
    try:
        newest = newest_snapshot(run.blobs, run.cluster_name)
    except Rejected:
        return False
    return newest is not None and shows_now(newest, run.last_heartbeat, run.stale_after, now)


def shows_now(
    snapshot: Snapshot,
    last_heartbeat: Callable[[], Heartbeat | None],
    stale_after: timedelta,
    now: datetime,
) -> bool:
    """Return whether a snapshot is new, or the forwarder confirms that nothing has changed. Raises Transient."""
    if now - stale_after < snapshot.taken_at <= now + CLOCK_SKEW:
        return True
    heartbeat = last_heartbeat()
    return heartbeat is not None and heartbeat.is_fresh(now, stale_after)


_READER = Reader()
"""One per process: most of a snapshot is the same as in the run before."""


def newest_snapshot(blobs: Blobs, cluster: str) -> Snapshot | None:
    """Return a cluster's newest snapshot, None if there is none yet. Raises Transient, Rejected (`own_snapshot`)."""
    data = newest_data(blobs, cluster)
    return None if data is None else own_snapshot(data, cluster)


def newest_data(blobs: Blobs, cluster: str) -> bytes | None:
    """Return the bytes of a cluster's newest snapshot, with its base if it is a delta; None if there is none yet.

    Raises Transient, or Rejected if its base does not exist.
    """
    head = blobs.get(snapshot_key(cluster))
    return None if head is None else completed(head, blobs, cluster)


def timely_data(
    blobs: Blobs, cluster: str, last_heartbeat: Callable[[], Heartbeat | None], now: datetime
) -> tuple[bytes, Snapshot] | None:
    """Return the bytes of a cluster's newest snapshot, and the snapshot. Raises like `newest_snapshot`.

    Return None if there is none yet, or if nobody is known to have seen the cluster for an hour: its pods may be gone.
    A cluster that is connected again has such a snapshot until the first new one.
    """
    data = newest_data(blobs, cluster)
    if data is None:
        return None
    snapshot = own_snapshot(data, cluster)
    return None if _is_outdated(snapshot, last_heartbeat, now) else (data, snapshot)


def _is_outdated(snapshot: Snapshot, last_heartbeat: Callable[[], Heartbeat | None], now: datetime) -> bool:
    if now - snapshot.taken_at <= OUTDATED:
        return False
    try:
        heartbeat = last_heartbeat()
    except Transient:
        return False
    return heartbeat is None or now - heartbeat.at > OUTDATED


def completed(head: bytes, blobs: Blobs, cluster: str) -> bytes:
    """Return the bytes of a snapshot, given the object at its key or an old version. Raises like `newest_data`."""
    return _READER.completed(head, cluster, blobs.get)


def own_snapshot(data: bytes, cluster: str) -> Snapshot:
    """Return the snapshot read from `data`. Raises Rejected if it is damaged or of another cluster."""
    snapshot = _READER.read(data)
    if snapshot.cluster != cluster:
        raise Rejected(f"snapshot: field 'cluster' is {snapshot.cluster!r}, this function serves {cluster!r}")
    return snapshot
