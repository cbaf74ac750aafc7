"""Reading a whole cluster off its API server, for when no forwarder does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodesmith.adapters.apiserver import ApiServer, Expired, NotServed
from nodesmith.model.pods import Manifest
from nodesmith.observation.mirror import WATCHED, Mirror, WatchedKind, observed
from nodesmith.observation.wire import Observed

_ATTEMPTS = 3


class Observer:
    """Lists what the forwarder would watch. Pages are reduced as they come, so memory stays small."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def observe(self) -> Observed:
        """Read everything; a custom kind that is not installed has no objects. Raises Transient."""
        return observed([self._read(kind) for kind in WATCHED])

    def _read(self, kind: WatchedKind) -> Mirror:
        mirror = Mirror(kind)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                mirror.replace(self._items(kind))
            except NotServed:
                if not kind.custom:
                    raise
            except Expired:
                if attempt == _ATTEMPTS:
                    raise
                continue
            break
        return mirror

    def _items(self, kind: WatchedKind) -> Iterator[Manifest]:
        for page in self._server.pages(kind.path):
            items: list[dict[str, Any]] = page.get("items") or []
            yield from items
