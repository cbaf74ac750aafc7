"""The snapshot that a function works from: its own cluster's, or none."""

from __future__ import annotations

from nodesmith.errors import Rejected
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.rereading import Reader

_READER = Reader()
"""One a process: a warm function mostly looks at what it has seen before."""


def own_snapshot(data: bytes, cluster: str) -> Snapshot:
    """Read a snapshot. Raises Rejected when it is damaged, or of another cluster."""
    snapshot = _READER.read(data)
    if snapshot.cluster != cluster:
        raise Rejected(f"snapshot: field 'cluster' is {snapshot.cluster!r}, this function serves {cluster!r}")
    return snapshot
