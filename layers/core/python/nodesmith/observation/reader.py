"""Read successive snapshots, and parse a snapshot only if more than its time has changed.

Even in an idle cluster, a snapshot is written every minute and every function reads it. Decompressing and comparing the
text takes a twentieth of the time of parsing it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import inflated, read

_TAKEN_AT = b'"takenAt":"'


class Reader:
    """Reads snapshots like `decode`, and keeps the last one, whose content must not be modified."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Snapshot] | None = None

    def read(self, data: bytes) -> Snapshot:
        """Read a snapshot. Raises Rejected like `decode`."""
        text = inflated(data)
        taken_at, digest = _parted(text)
        if taken_at is None:
            return read(text)
        if self._last is not None and self._last[0] == digest:
            return replace(self._last[1], taken_at=taken_at)
        self._last = None  # so that two snapshots are never in memory at once
        snapshot = read(text)
        if snapshot.taken_at == taken_at:
            self._last = digest, snapshot
        return snapshot


def _parted(text: bytes) -> tuple[datetime | None, bytes]:
    """Return the last `takenAt` in a text, which is the snapshot's, and a digest of the text around it."""
    start = text.rfind(_TAKEN_AT) + len(_TAKEN_AT)
    end = text.find(b'"', start)
    if start < len(_TAKEN_AT) or end < 0:
        return None, b""
    view = memoryview(text)
    digest = hashlib.sha256(view[:start])
    digest.update(view[end:])
    try:
        return parse_time(text[start:end].decode()), digest.digest()
    except ValueError:
        return None, b""
