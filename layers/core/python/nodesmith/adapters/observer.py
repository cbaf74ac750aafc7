"""Reading a whole cluster off its API server, for when no forwarder does."""

from __future__ import annotations

from nodesmith.adapters.apiserver import ApiServer, Expired, NotServed
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
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._listed(kind)
            except Expired:
                continue
        return self._listed(kind)

    def _listed(self, kind: WatchedKind) -> Mirror:
        mirror = Mirror(kind)
        try:
            for page in self._server.pages(kind.path):
                for manifest in page.get("items") or ():
                    mirror.put(manifest)
        except NotServed:
            if not kind.custom:
                raise
        return mirror
