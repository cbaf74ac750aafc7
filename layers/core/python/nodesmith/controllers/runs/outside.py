"""The ports that the runs of most concerns use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.model.metrics import Metrics
from nodesmith.ports import Blobs, Cloud, Cluster, Hints, Store


@dataclass(frozen=True, slots=True)
class Outside:
    """The ledger, EC2, the API server, objects, queues, clock and metrics of one cluster."""

    cluster_name: str
    store: Store
    cloud: Cloud
    cluster: Cluster
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
    metrics: Metrics = field(default_factory=Metrics, kw_only=True)
