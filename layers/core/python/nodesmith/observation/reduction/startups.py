"""The startup time of a pod, from its status, from which the cost of moving it is calculated.

    minutes = from a start to Ready × starts,    starts = 1 + restarts / days until it was Ready, at least one day

A pod that has restarted failed during its start or does not stay up, and its successor is expected to restart as often.
Restarts long ago, or rare ones in a long life, hardly count. For a pod that has restarted, the last start is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.times import parse_time

Manifest = Mapping[str, Any]
NOTEWORTHY_MINUTES = 10
"""A shorter startup is not kept: nearly all pods take less, and the eviction cost already covers that."""
_MOST_MINUTES = 360
_DAY_SECONDS = 86_400.0


def startup_minutes(metadata: Manifest, status: Manifest) -> int:
    """Return the startup time, at most six hours; 0 if it is short, or not known yet because the pod is not Ready."""
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    if ready.get("status") != "True" or not ready.get("lastTransitionTime") or not status.get("startTime"):
        return 0
    at, made = parse_time(ready["lastTransitionTime"]), parse_time(metadata["creationTimestamp"])
    containers = status.get("containerStatuses") or ()
    restarts = sum(int(container.get("restartCount") or 0) for container in containers)
    starts = [parse_time(status["startTime"]), *(_began(c) for c in containers if c.get("restartCount"))]
    last = max((start for start in starts if start is not None and start <= at), default=at)
    times = 1 + restarts / max(1.0, (at - made).total_seconds() / _DAY_SECONDS)
    minutes = int((at - last).total_seconds() * times / 60)
    return min(minutes, _MOST_MINUTES) if minutes > NOTEWORTHY_MINUTES else 0


def _began(container: Manifest) -> datetime | None:
    began = ((container.get("state") or {}).get("running") or {}).get("startedAt")
    return parse_time(began) if began else None
