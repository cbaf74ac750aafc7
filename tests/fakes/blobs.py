"""Blobs in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodesmith.errors import Transient


@dataclass(slots=True)
class FakeBlobs:
    """Objects by key. While `down` every call fails; `puts` are the keys written so far, in order."""

    objects: dict[str, bytes] = field(default_factory=dict)
    down: bool = False
    puts: list[str] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        self._check()
        return self.objects.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._check()
        self.objects[key] = data
        self.puts.append(key)

    def _check(self) -> None:
        if self.down:
            raise Transient("the bucket is down", "ServiceUnavailable")
