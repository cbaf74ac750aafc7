"""Events and conditions, as the stand-ins write them."""

from __future__ import annotations

from hashlib import sha256

from nodesmith_formats.kubernetes.objects import (
    Object,
    View,
    condition_of,
    dig,
    name_of,
    namespace_of,
    timestamp,
)
from nodesmith_local.apiserver.storage.store import Store


def record(
    store: Store, obj: View, component: str, reason: str, message: str, *, warning: bool = False
) -> None:
    """Write an Event about `obj`, or increase the count of an equal one."""
    namespace = namespace_of(obj) or "default"
    mark = sha256(f"{dig(obj, 'metadata', 'uid')}{component}{reason}{message}".encode()).hexdigest()[:16]
    name, now = f"{name_of(obj)}.{mark}", timestamp(store.now())
    existing = store.find("events", name, namespace)
    if existing is not None:
        store.patch("events", name, {"count": existing["count"] + 1, "lastTimestamp": now}, namespace)
        return
    involved = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "name": name_of(obj)}
    involved |= {"namespace": namespace_of(obj), "uid": obj["metadata"]["uid"]}
    event: Object = {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    store.create("events", event)


def with_condition(obj: View, condition: Object, now: str) -> list[Object]:
    """Return status.conditions with `condition` set; lastTransitionTime changes only when the status does."""
    previous = condition_of(obj, condition["type"])
    since = now
    if previous is not None and previous.get("status") == condition["status"]:
        since = previous.get("lastTransitionTime", now)
    conditions = dig(obj, "status", "conditions") or ()
    new = {**condition, "lastTransitionTime": since}
    if previous is None:
        return [*conditions, new]
    return [{**existing, **new} if existing is previous else existing for existing in conditions]
