"""Snapshots that are old only because nothing has changed since, which the forwarder's heartbeat confirms."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.provisioning import Inputs, is_old
from nodesmith.errors import Transient
from nodesmith.model.functions.health import Heartbeat
from nodesmith.model.snapshot import Snapshot


def no_heartbeat() -> Heartbeat | None:
    """Return None: there is no heartbeat."""
    return None


def vouched_for(inputs: Inputs, last_heartbeat: Callable[[], Heartbeat | None]) -> Inputs:
    """Return `inputs` with the snapshot's time moved to the last moment at which the forwarder confirms its content.

    The heartbeat is read only if the snapshot is old. If it cannot be read, users' NodeClaims wait. Raises Rejected.
    """
    if not is_old(inputs):
        return inputs
    with suppress(Transient):
        return replace(inputs, snapshot=_still_true(inputs.snapshot, last_heartbeat(), inputs.now))
    return inputs


def _still_true(snapshot: Snapshot, heartbeat: Heartbeat | None, now: datetime) -> Snapshot:
    if heartbeat is None or heartbeat.changed > snapshot.taken_at:
        return snapshot
    return replace(snapshot, taken_at=max(snapshot.taken_at, min(heartbeat.at, now)))
