"""The snapshot that a function works from: its own cluster's, or none."""

from __future__ import annotations

from nodesmith.errors import Rejected
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.wire import decode


def own_snapshot(data: bytes, cluster: str) -> Snapshot:
    """Read a snapshot. Raises Rejected when it is damaged, or of another cluster."""
    snapshot = decode(data)
    if snapshot.cluster != cluster:
        raise Rejected(f"snapshot: field 'cluster' is {snapshot.cluster!r}, this function serves {cluster!r}")
    return snapshot
