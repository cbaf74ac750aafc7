"""Reading the snapshot of the cluster that a function serves."""

from __future__ import annotations

from nodesmith.errors import Rejected
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import Reader
from nodesmith.ports import Blobs
from nodesmith.settings import snapshot_key

_READER = Reader()
"""One per process: most of a snapshot is the same as in the run before."""


def newest_snapshot(blobs: Blobs, cluster: str) -> Snapshot | None:
    """Return a cluster's newest snapshot, None if there is none yet. Raises Transient, Rejected (`own_snapshot`)."""
    data = blobs.get(snapshot_key(cluster))
    return None if data is None else own_snapshot(data, cluster)


def own_snapshot(data: bytes, cluster: str) -> Snapshot:
    """Return the snapshot read from `data`. Raises Rejected if it is damaged or of another cluster."""
    snapshot = _READER.read(data)
    if snapshot.cluster != cluster:
        raise Rejected(f"snapshot: field 'cluster' is {snapshot.cluster!r}, this function serves {cluster!r}")
    return snapshot
