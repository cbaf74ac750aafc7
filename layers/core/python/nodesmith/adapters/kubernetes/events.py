"""Events: each is created once, and its count and time are updated when it is sent again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, failure
from nodesmith.adapters.kubernetes.writes import PATHS, READ_SECONDS, for_each, object_path
from nodesmith.errors import Conflict
from nodesmith.model.apimachinery.problems import ObjectEvent, shortened
from nodesmith.model.apimachinery.times import format_time

_EVENTS = "/api/v1/namespaces/{namespace}/events"
_CLUSTER_SCOPED_EVENTS = "default"  # the namespace of events about cluster-scoped objects
_LONGEST_NAME_PART = 200  # a name, at most 253 characters, is the object's name and a digest
_MOST_KNOWN = 2000


class EventRecorder:
    """Publishes Events. Kept from run to run, it repeats an Event in one call, because it knows the last count.

    Events may be patched, but not read. What it knows holds until another process repeats the Event.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._known: dict[str, tuple[str, int]] = {}

    def publish(self, events: Sequence[ObjectEvent], now: datetime) -> None:
        """Publish Events, several at once. Raises Transient if some remain unpublished after two rounds."""
        for_each(events, lambda event: self._publish(event, now), "Events not published")
        for path in list(self._known)[:-_MOST_KNOWN]:
            del self._known[path]

    def _publish(self, event: ObjectEvent, now: datetime) -> None:
        """Publish one Event. It is dropped if its namespace is being deleted, which rejects new Events."""
        written = _manifest(event, event.uid or _uid(self._server, event), format_time(now))
        path = _EVENTS.format(namespace=quote(written["metadata"]["namespace"], safe=""))
        existing = f"{path}/{quote(written['metadata']['name'], safe='')}"
        if self._repeat(existing, written["lastTimestamp"]):
            return
        status, answer = self._server.ask("POST", path, written, read_seconds=READ_SECONDS)
        if status == 409:
            repeated = self._server.patch(existing, {"lastTimestamp": written["lastTimestamp"]})
            if repeated is not None:
                # `kubectl describe` shows lastTimestamp only if the count is above 1.
                count = int(repeated.get("count") or 1) + 1
                self._note(existing, self._server.patch(existing, {"count": count}))
        elif status < 400:
            self._note(existing, answer)
        elif not _is_closing(status, answer):
            raise failure(status, answer, f"POST {path}")

    def _repeat(self, path: str, moment: str) -> bool:
        """Repeat an Event that this process wrote last; return whether it did."""
        version, count = self._known.pop(path, ("", 0))
        if not version:
            return False
        patch = {"metadata": {"resourceVersion": version}, "lastTimestamp": moment, "count": count + 1}
        try:
            repeated = self._server.patch(path, patch)
        except Conflict:
            return False  # repeated by another process meanwhile
        self._note(path, repeated)
        return repeated is not None

    def _note(self, path: str, event: Manifest | None) -> None:
        version = str(((event or {}).get("metadata") or {}).get("resourceVersion") or "")
        if event is not None and version:
            self._known[path] = version, int(event.get("count") or 1)


def _uid(server: ApiServer, event: ObjectEvent) -> str:
    involved = server.get(object_path(event.kind, event.name), read_seconds=READ_SECONDS) or {}
    return str((involved.get("metadata") or {}).get("uid", ""))


def _is_closing(status: int, status_object: Manifest) -> bool:
    causes = (status_object.get("details") or {}).get("causes") or ()
    is_ending = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
    return status == 404 or (status == 403 and is_ending)


def _manifest(event: ObjectEvent, uid: str, moment: str) -> dict[str, Any]:
    group = PATHS[event.kind].removeprefix("/apis/").removeprefix("/api/")
    namespace, _, name = event.name.rpartition("/")
    about: Mapping[str, str] = {
        "apiVersion": group.rpartition("/")[0],
        "kind": event.kind,
        "name": name,
        "uid": uid,
        **({"namespace": namespace} if namespace else {}),
    }
    parts = (event.kind, event.name, uid, event.reason, event.message)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name[:_LONGEST_NAME_PART].rstrip('.-')}.{digest}",
            "namespace": namespace or _CLUSTER_SCOPED_EVENTS,
        },
        "involvedObject": about,
        "reason": event.reason,
        "message": shortened(event.message),
        "type": "Warning" if event.warning else "Normal",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": "nodesmith"},
        "reportingComponent": "nodesmith",
        "reportingInstance": "nodesmith",
    }
