"""CapacityBuffers as lifecycle sees them: the histories of workloads that size them, and their status."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from datetime import datetime

from nodesmith.decisions.due import first
from nodesmith.decisions.provisioning.buffers.forecast import (
    History,
    Sizing,
    history_item,
    next_size_at,
    noted,
    read_history,
    sizing,
)
from nodesmith.decisions.provisioning.buffers.resolutions import due_statuses, next_window
from nodesmith.decisions.provisioning.plan import Room
from nodesmith.keys import growth_key, unplaced_key
from nodesmith.model.karpenter.capacitybuffers import CAPACITY_BUFFER, CapacityBuffer, parse_buffers
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cluster

STATUSES_AT_ONCE = 50
"""The most statuses of CapacityBuffers that one run writes; the others follow in the next."""
MOST_HISTORIES = 100
"""The most workloads with a history; the first by name are kept. One with noise for four weeks takes 12 KB."""
_FORMAT = 1


def tell_rooms(blobs: Blobs, cluster: Cluster, snapshot: Snapshot, now: datetime) -> tuple[int, bool]:
    """Note what workloads want that size buffers, and write each status that does not show what was found last.

    Return the number of written statuses, and whether the size of a buffer has changed.
    """
    if not snapshot.capacitybuffers:
        return 0, False
    sizes = _sizes(blobs, snapshot, now)
    data = blobs.get(unplaced_key(snapshot.cluster))
    written = json.loads(data).get("rooms", ()) if data else ()
    rooms = {each["buffer"]: Room(**{f: each[f] for f in Room.__slots__ if f in each}) for each in written}
    due = list(due_statuses(snapshot, rooms, now, sizes))[:STATUSES_AT_ONCE]
    for key, status in due:
        cluster.merge_status(CAPACITY_BUFFER.name, key, status)
    shown = {f"{m['metadata']['namespace']}/{m['metadata']['name']}": m for m in snapshot.capacitybuffers}
    news = any(
        key in sizes and (shown[key].get("status") or {}).get("replicas") != status["replicas"]
        for key, status in due
    )
    return len(due), news


def next_sizes(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when buffers that are sized by history may have another size, None if there are none."""
    buffers = (each.value for each in parse_buffers(snapshot.capacitybuffers))
    if not any(each is not None and each.quantile for each in buffers):
        return None
    return first((next_size_at(now), next_window(snapshot, now)))


def _sizes(blobs: Blobs, snapshot: Snapshot, now: datetime) -> Mapping[str, Sizing]:
    """Return the sizes of the buffers that are sized by history, by their key, after noting what workloads want now."""
    buffers = [each.value for each in parse_buffers(snapshot.capacitybuffers) if each.value]
    sized = [buffer for buffer in buffers if buffer.quantile is not None]
    if not sized:
        return {}
    before = _read(blobs.get(growth_key(snapshot.cluster)))
    histories = _noted(before, sized, snapshot, now)
    if histories != before:
        items = {name: history_item(each) for name, each in sorted(histories.items())}
        text = json.dumps({"format": _FORMAT, "workloads": items}, separators=(",", ":"))
        blobs.put(growth_key(snapshot.cluster), gzip.compress(text.encode(), mtime=0))
    return {
        buffer.key: sizing(buffer, buffer.quantile, histories.get(buffer.template_key), now)
        for buffer in sized
        if buffer.quantile is not None
    }


def _noted(
    before: Mapping[str, History], sized: list[CapacityBuffer], snapshot: Snapshot, now: datetime
) -> dict[str, History]:
    """Return the histories of the workloads that buffers refer to. A workload that is gone keeps its history."""
    histories: dict[str, History] = {}
    for name in sorted({buffer.template_key for buffer in sized})[:MOST_HISTORIES]:
        template = snapshot.podtemplates.get(name)
        if template is not None:
            histories[name] = noted(before.get(name), template.replicas, now)
        elif name in before:
            histories[name] = before[name]
    return histories


def _read(data: bytes | None) -> dict[str, History]:
    """Read the histories. Damaged ones, and those that a later release wrote, are begun anew."""
    try:
        document = json.loads(gzip.decompress(data)) if data else {}
        items = document.get("workloads", {}) if document.get("format") == _FORMAT else {}
        return {str(name): read_history(item) for name, item in items.items()}
    except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, zlib.error):
        return {}
