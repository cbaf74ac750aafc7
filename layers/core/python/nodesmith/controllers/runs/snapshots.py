"""The snapshot that a function works from: its own cluster's, or none."""

from __future__ import annotations

from nodesmith.errors import Rejected
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.reader import Reader
from nodesmith.ports import Blobs
from nodesmith.settings import snapshot_key

_READER = Reader()
"""One a process: a warm function mostly looks at what it has seen before."""


def newest_snapshot(blobs: Blobs, cluster: str) -> Snapshot | None:
    """Read a cluster's newest snapshot, None where there is none yet. Raises as `own_snapshot`, and Transient."""
    data = blobs.get(snapshot_key(cluster))
    return None if data is None else own_snapshot(data, cluster)


def own_snapshot(data: bytes, cluster: str) -> Snapshot:
    """Read a snapshot. Raises Rejected when it is damaged, or of another cluster."""
    snapshot = _READER.read(data)
    if snapshot.cluster != cluster:
        raise Rejected(f"snapshot: field 'cluster' is {snapshot.cluster!r}, this function serves {cluster!r}")
    return snapshot
