"""Reading a complete cluster from its API server, for use without a forwarder."""

from __future__ import annotations

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Expired, NotServed
from nodesmith.observation.decoding import Observed
from nodesmith.observation.mirror import WATCHED, Mirror, WatchedKind, observed

_ATTEMPTS = 3


class Observer:
    """Lists the objects that the forwarder would watch. Pages are reduced as they arrive, to keep memory use low."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def observe(self) -> Observed:
        """Return all objects. A custom kind that is not installed has none. Raises Transient."""
        return observed([read_all(self._server, kind) for kind in WATCHED])


def read_all(server: ApiServer, kind: WatchedKind) -> Mirror:
    """Return all objects of one kind. A custom kind that is not installed has none. Raises Transient."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _listed(server, kind)
        except Expired:
            continue
    return _listed(server, kind)


def _listed(server: ApiServer, kind: WatchedKind) -> Mirror:
    mirror = Mirror(kind)
    try:
        for page in server.pages(kind.path):
            for manifest in page.get("items") or ():
                mirror.put(manifest)
    except NotServed:
        if not kind.custom:
            raise
    return mirror
