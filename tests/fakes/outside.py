"""The outside world of the core, in memory: every adapter, and the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cloud import FakeCloud
from tests.fakes.cluster import FakeCluster
from tests.fakes.hints import FakeHints
from tests.fakes.store import FakeStore


@dataclass
class ClusterPorts:
    """A ledger, an account, a cluster, objects and queues, all of them empty."""

    now: datetime = builders.NOW
    store: FakeStore = field(default_factory=FakeStore)
    cloud: FakeCloud = field(default_factory=lambda: FakeCloud(cluster=builders.cluster_info()))
    cluster: FakeCluster = field(default_factory=FakeCluster)
    blobs: FakeBlobs = field(default_factory=FakeBlobs)
    hints: FakeHints = field(default_factory=FakeHints)

    def clock(self) -> datetime:
        """Return the time."""
        return self.now
