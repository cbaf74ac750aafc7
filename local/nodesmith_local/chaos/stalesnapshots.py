"""Snapshots that functions read in place of those in the bucket."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

from nodesmith.keys import snapshot_key
from nodesmith_local.chaos.faults import FaultKind

_ANY_CLUSTER = "*"
_BEFORE, _, _AFTER = snapshot_key(_ANY_CLUSTER).partition(_ANY_CLUSTER)
_LEFT_OUT = ("content-length", "etag", "transfer-encoding", "x-amz-checksum")


def an_hour_ago(data: bytes) -> bytes:
    """Return a snapshot as if it had been taken an hour before, with nothing of what has happened since."""
    document = json.loads(gzip.decompress(data))
    taken_at = datetime.fromisoformat(document["takenAt"]) - timedelta(hours=1)
    document["takenAt"] = taken_at.isoformat(timespec="milliseconds")
    return gzip.compress(json.dumps(document).encode(), 1, mtime=0)


def cut_in_half(data: bytes) -> bytes:
    """Return the first half of an object."""
    return data[: len(data) // 2]


READS: Mapping[FaultKind, Callable[[bytes], bytes]] = {
    FaultKind.STALE: an_hour_ago,
    FaultKind.CORRUPTED: cut_in_half,
}
"""What functions read of a snapshot, by fault."""


class StaleReads:
    """The snapshot that is read in place of each: the one from when the fault was first met. Threads share it."""

    def __init__(self) -> None:
        self._first: dict[str, bytes] = {}
        self._lock = Lock()

    def is_snapshot(self, url: str) -> bool:
        """Return whether an object is a cluster's snapshot."""
        path = unquote(urlsplit(url).path)
        return f"/{_BEFORE}" in path and path.endswith(_AFTER)

    def forget(self, url: str) -> None:
        """Read an object as it is from now on."""
        with self._lock:
            self._first.pop(url, None)

    def changed(self, url: str, kind: FaultKind, response: Any) -> tuple[dict[str, str], bytes]:
        """Return headers and content in place of an answer's.

        The ETag is another one, so that no function takes the content for the object's once the fault is over.
        """
        with self._lock:
            data = READS[kind](self._first.setdefault(url, response.content))
        headers = {
            name: value for name, value in response.headers.items() if not name.lower().startswith(_LEFT_OUT)
        }
        return {**headers, "ETag": f'"{kind}"', "Content-Length": str(len(data))}, data
