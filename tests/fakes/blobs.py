"""Blobs in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import md5

from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.ports import NONE_THERE, Version


@dataclass(slots=True)
class FakeBlobs:
    """Objects by key. While `down`, every call fails; `puts` are the keys written so far, in order."""

    objects: dict[str, bytes] = field(default_factory=dict)
    down: bool = False
    puts: list[str] = field(default_factory=list)
    kept: dict[str, list[tuple[datetime, bytes]]] = field(default_factory=dict)
    """The versions of some objects, oldest first, with the time at which each was written."""

    def get(self, key: str) -> bytes | None:
        self._check()
        return self.objects.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._check()
        self.objects[key] = data
        self.puts.append(key)

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = 2**26) -> Version:
        data = self.get(key)
        if data is not None and len(data) > largest_bytes:
            raise Rejected(f"{key}: {len(data)} bytes")
        tag = _tag(data)
        return Version(tag, None if known == tag else data)

    def replace(self, key: str, data: bytes, known: str) -> str:
        self._check()
        if _tag(self.objects.get(key)) != known:
            raise Conflict(key)
        self.put(key, data)
        return _tag(data)

    def keep_version(self, key: str, data: bytes, at: datetime) -> None:
        """Note a version of an object, and drop those that were replaced a day before."""
        known = [*self.kept.get(key, ()), (at, data)]
        while len(known) > 1 and known[1][0] < at - timedelta(days=1):
            del known[0]
        self.kept[key] = known

    def written(self, key: str, since: datetime) -> list[tuple[datetime, str]]:
        self._check()
        versions = self.kept.get(key, [])
        first = max((n for n, (at, _) in enumerate(versions) if at <= since), default=0)
        return [(at, at.isoformat()) for at, _ in versions[first:]]

    def old_version(self, key: str, id_: str) -> bytes | None:
        self._check()
        return next((data for at, data in self.kept.get(key, ()) if at.isoformat() == id_), None)

    def _check(self) -> None:
        if self.down:
            raise Transient("the bucket is down", "ServiceUnavailable")


def _tag(data: bytes | None) -> str:
    return NONE_THERE if data is None else md5(data, usedforsecurity=False).hexdigest()
