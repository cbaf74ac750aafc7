"""Leases of leader elections, which show whether a controller of the cluster is running."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.model.apimachinery.times import parse_time

KARPENTERS_LEASE = "karpenter-leader-election"
"""Karpenter's default name. Its chart disables leader election for a single replica."""
_LEASES = "/apis/coordination.k8s.io/v1/leases"
_PATIENCE = timedelta(minutes=1)
"""How long an expired lease counts as held, because clocks differ and another replica may be about to take it."""


def karpenter_runs(server: ApiServer, now: datetime) -> bool:
    """Return whether a Karpenter controller holds its lease, in any namespace. Raises Transient, Rejected."""
    pages = server.pages(_LEASES, f"fieldSelector=metadata.name%3D{KARPENTERS_LEASE}")
    return any(is_held(lease, now) for page in pages for lease in page.get("items") or ())


def is_held(lease: Mapping[str, Any], now: datetime) -> bool:
    """Return whether a lease has a holder that has renewed it in time."""
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    if not spec.get("holderIdentity") or not renewed:
        return False
    term = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0))
    return now - parse_time(renewed) < term + _PATIENCE
