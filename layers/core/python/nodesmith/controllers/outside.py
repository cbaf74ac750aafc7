"""What the runs of most concerns work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from nodesmith.ports import Blobs, Cloud, Cluster, Hints, Store


@dataclass(frozen=True, slots=True)
class Outside:
    """The ledger, EC2, the API server, objects, queues and the time, all of one cluster."""

    cluster_name: str
    store: Store
    cloud: Cloud
    cluster: Cluster
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
