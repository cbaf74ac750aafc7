"""The controller of shadows: let the fleets on paper of an observed cluster live on, and keep what they come to.

It reads the snapshot and the catalogue, and writes one object. There is no port by which it could change anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.controllers.observation import newest_snapshot, shows_now
from nodesmith.controllers.runs import Report
from nodesmith.decisions.shadow.advance import has_changed, step
from nodesmith.errors import Conflict, Rejected
from nodesmith.keys import shadow_key
from nodesmith.model.costs.shadow import Shadow, read_shadow, write_shadow
from nodesmith.model.functions import Heartbeat
from nodesmith.model.policies import NodeSettings
from nodesmith.ports import Blobs, Catalogs, VersionedBlobs

KEPT_AT_LEAST = timedelta(minutes=5)
"""How often the object is written while nothing but time passes. Until then, a later run makes up for it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a run needs. `blobs` has the snapshot, `versions` the shadows.

    A heartbeat older than `stale_after` means that the forwarder is away.
    """

    cluster_name: str
    settings: NodeSettings
    blobs: Blobs
    versions: VersionedBlobs
    catalogs: Catalogs
    last_heartbeat: Callable[[], Heartbeat | None]
    clock: Callable[[], datetime]
    stale_after: timedelta


def watch(run: Watch) -> Report:
    """Let the shadows live until now, unless the cluster cannot be seen as it is now.

    Shadows that cannot be read are reported and start again. Raises Transient, or Rejected if the snapshot or the
    catalogue cannot be read.
    """
    now, key = run.clock(), shadow_key(run.cluster_name)
    snapshot = newest_snapshot(run.blobs, run.cluster_name)
    if snapshot is None:
        return Report()
    if not shows_now(snapshot, run.last_heartbeat, run.stale_after, now):
        return Report(Counter(SnapshotsStale=1))
    report = Report()
    version = run.versions.read(key)
    before = _stored_shadow(run, version.data, key, report)
    if before is not None and now <= before.at:
        return report
    after = step(before, snapshot, run.catalogs.latest(), run.settings, now)
    if before is not None and now - before.at < KEPT_AT_LEAST and not has_changed(before, after):
        return report
    try:
        run.versions.replace(key, write_shadow(after), version.tag)
        report.counts["ShadowsWritten"] += 1
    except Conflict:  # another run has looked at the same time
        report.counts["Conflict"] += 1
    return report


def _stored_shadow(run: Watch, data: bytes | None, key: str, report: Report) -> Shadow | None:
    if data is None:
        return None
    try:
        shadow = read_shadow(data, key)
    except Rejected as error:
        report.rejected.append(f"{error}; the shadows start again")
        return None
    return shadow if shadow.cluster == run.cluster_name else None
