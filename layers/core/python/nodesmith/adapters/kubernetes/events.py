"""Publishing Events. A repeated Event updates the time of the existing one while that exists (for an hour)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, failure
from nodesmith.adapters.kubernetes.paths import PATHS, object_path
from nodesmith.adapters.kubernetes.podwrites import READ_SECONDS, for_each
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.kubernetes.events import ObjectEvent, shortened

_EVENTS = "/api/v1/namespaces/{namespace}/events"
_CLUSTER_SCOPED_EVENTS = "default"  # the namespace of events about cluster-scoped objects
_LONGEST_NAME_PART = 200  # a name, at most 253 characters, is the object's name and a digest


def publish(server: ApiServer, events: Sequence[ObjectEvent], now: datetime) -> None:
    """Publish Events, several at once. Raises Transient if some remain unpublished after two rounds."""
    for_each(events, lambda event: _publish(server, event, now), "Events not published")


def _publish(server: ApiServer, event: ObjectEvent, now: datetime) -> None:
    """Publish one Event. It is dropped if its namespace is being deleted, which rejects new Events."""
    written = _manifest(event, event.uid or _uid(server, event), format_time(now))
    path = _EVENTS.format(namespace=quote(written["metadata"]["namespace"], safe=""))
    status, said = server.ask("POST", path, written, read_seconds=READ_SECONDS)
    if status == 409:
        again = f"{path}/{quote(written['metadata']['name'], safe='')}"
        server.patch(again, {"lastTimestamp": written["lastTimestamp"]})
    elif status >= 400 and not _is_closing(status, said):
        raise failure(status, said, f"POST {path}")


def _uid(server: ApiServer, event: ObjectEvent) -> str:
    there = server.get(object_path(event.kind, event.name), read_seconds=READ_SECONDS) or {}
    return str((there.get("metadata") or {}).get("uid", ""))


def _is_closing(status: int, said: Manifest) -> bool:
    causes = (said.get("details") or {}).get("causes") or ()
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
