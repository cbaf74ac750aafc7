"""Metrics on pods that wait for a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from nodesmith.decisions.scheduling.pending import waiting_by_zone
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.metrics.metrics import Labels, Metrics, labelled

_BY = {"controller": "provisioner"}


def note_waiting(metrics: Metrics, pods: Sequence[Pod], unplaced: int, now: datetime) -> None:
    """Record how many pods of the cluster wait, in which zones they may run, and how many are `unplaced`."""
    zones, ignored = waiting_by_zone(pods)
    by_zone = {labelled(**_BY, zone=zone): count for zone, count in zones.items()}
    shown: Mapping[str, Mapping[Labels, float]] = {
        "scheduler_unschedulable_pods_count": {labelled(**_BY): unplaced},
        "scheduler_ignored_pods_count": {(): ignored},
        "scheduler_pending_pods_by_effective_zone_count": by_zone,
    }
    for name, series in shown.items():
        metrics.show(name, series, now)
