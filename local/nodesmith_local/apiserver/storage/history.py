"""Object revisions: current objects, recent changes, and watchers.

This is etcd's part in a real cluster. It does not know Kubernetes' rules for writes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import RLock
from typing import Literal, TypeAlias

from nodesmith_formats.kubernetes.errors import expired
from nodesmith_formats.kubernetes.objects import Object, View, dig, name_of, namespace_of

Key: TypeAlias = tuple[str, str]  # namespace (empty when cluster-scoped), name
Verb: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

HISTORY_LIMIT = 10_000  # changes kept for each resource
BACKLOG_LIMIT = 50_000  # pending changes at which the server ends a watch, as a real server does


class Revision:
    """One object at one revision. Its JSON is built once, for all lists and watchers that send it."""

    __slots__ = ("_body", "_named", "object", "revision")

    def __init__(self, obj: Object, revision: int) -> None:
        self.object: View = obj
        self.revision = revision
        self._body = b""
        self._named = 0  # where the JSON continues after kind and apiVersion

    def body(self) -> bytes:
        """Return the object as JSON."""
        if not self._body:
            body_fields = dict(self.object)
            names = {name: body_fields.pop(name, "") for name in ("kind", "apiVersion")}
            head, tail = (json.dumps(part, separators=(",", ":")).encode() for part in (names, body_fields))
            self._body, self._named = head[:-1] + b"," + tail[1:], len(head)
        return self._body

    def nameless(self) -> bytes:
        """Return the object as JSON without kind and apiVersion, the form that lists of built-in kinds use."""
        return b"{" + self.body()[self._named :]


@dataclass(frozen=True, slots=True)
class Change:
    """One step of one object. `before` is None for ADDED; a DELETED change carries the last state."""

    verb: Verb
    after: Revision
    before: Revision | None

    @property
    def revision(self) -> int:
        """The resourceVersion that this change produced."""
        return self.after.revision


class Watcher:
    """A queue of the changes of one resource, in order. None in the queue marks the end of the watch."""

    def __init__(self, resource: str, namespace: str, wake: Callable[[], None] | None) -> None:
        self.resource = resource
        self.namespace = namespace
        self._wake = wake
        self.queue: SimpleQueue[Change | None] = SimpleQueue()
        self.open = True

    def offer(self, change: Change) -> None:
        """Queue `change` if it is in the watched namespace; end the watch if its reader lags too far behind."""
        if self.namespace and namespace_of(change.after.object) != self.namespace:
            return
        if self.queue.qsize() >= BACKLOG_LIMIT:
            self.close()
        elif self.open:
            self.queue.put(change)
            if self._wake:
                self._wake()

    def close(self) -> None:
        """End the watch: put None into the queue."""
        self.open = False
        self.queue.put(None)


class History:
    """Every object and every recent change. Hold `lock` around a read followed by a write."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.revision = 1
        self._objects: dict[str, dict[Key, Revision]] = {}
        self._changes: dict[str, deque[Change]] = {}
        self._forgotten: dict[str, int] = {}  # the newest revision that is no longer kept
        self.compacted = 0
        self._watchers: dict[str, list[Watcher]] = {}
        self._children: dict[str, set[tuple[str, Key]]] = {}
        self._uids: dict[str, tuple[str, Key]] = {}

    def find(self, resource: str, key: Key) -> Revision | None:
        """Return the newest revision of one object, or None where there is none."""
        return self._objects.get(resource, {}).get(key)

    def scan(self, resource: str, namespace: str = "") -> list[Revision]:
        """Return every object of a resource, sorted by namespace and name."""
        with self.lock:
            stored = sorted(self._objects.get(resource, {}).items())
        return [revision for key, revision in stored if not namespace or key[0] == namespace]

    def by_uid(self, uid: str) -> tuple[str, Key] | None:
        """Return the resource and key of the object with this uid, or None."""
        return self._uids.get(uid)

    def children(self, uid: str) -> list[tuple[str, Key]]:
        """Return the resources and keys of the objects that name this uid as an owner, sorted."""
        with self.lock:
            return sorted(self._children.get(uid, ()))

    def put(self, resource: str, obj: Object) -> Revision:
        """Store `obj` as its newest revision and set metadata.resourceVersion."""
        with self.lock:
            key = (namespace_of(obj), name_of(obj))
            table = self._objects.setdefault(resource, {})
            before = table.get(key)
            after = self._stamp(obj)
            table[key] = after
            self._index(resource, key, before, after)
            self._notify_watchers(resource, Change("MODIFIED" if before else "ADDED", after, before))
            return after

    def drop(self, resource: str, last: Object) -> Revision | None:
        """Remove an object and return `last`, its last state, with the resourceVersion of the removal.

        Return None if the object does not exist.
        """
        with self.lock:
            key = (namespace_of(last), name_of(last))
            before = self._objects.get(resource, {}).pop(key, None)
            if before is None:
                return None
            after = self._stamp(last)
            self._index(resource, key, before, None)
            self._notify_watchers(resource, Change("DELETED", after, before))
            return after

    def watch(
        self,
        resource: str,
        namespace: str = "",
        since: int | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Watcher:
        """Watch a resource from now on, or starting with everything after revision `since`.

        `wake` is called under the lock whenever something is queued. Raises ApiError 410 if `since` is older than the
        history.
        """
        with self.lock:
            watcher = Watcher(resource, namespace, wake)
            if since is not None:
                for change in self._since(resource, since):
                    watcher.offer(change)
            self._watchers.setdefault(resource, []).append(watcher)
            return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Remove a watcher whose reader has closed its connection."""
        with self.lock:
            watcher.open = False
            followers = self._watchers.get(watcher.resource, [])
            if watcher in followers:
                followers.remove(watcher)

    def compact(self) -> None:
        """Drop all recent changes, as etcd does every five minutes. Older watches then get 410."""
        with self.lock:
            self._changes.clear()
            self._forgotten.clear()
            self.compacted = self.revision

    def _stamp(self, obj: Object) -> Revision:
        self.revision += 1
        stamped = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        return Revision(stamped, self.revision)

    def _since(self, resource: str, since: int) -> Iterator[Change]:
        oldest = max(self._forgotten.get(resource, 0), self.compacted)
        if since < oldest:
            raise expired(f"too old resource version: {since} ({oldest})")
        yield from (change for change in self._changes.get(resource, ()) if change.revision > since)

    def _notify_watchers(self, resource: str, change: Change) -> None:
        changes = self._changes.setdefault(resource, deque())
        if len(changes) >= HISTORY_LIMIT:
            self._forgotten[resource] = changes.popleft().revision
        changes.append(change)
        for watcher in self._watchers.get(resource, ()):
            watcher.offer(change)

    def _index(self, resource: str, key: Key, before: Revision | None, after: Revision | None) -> None:
        if before is None and after is not None:
            self._uids[after.object["metadata"]["uid"]] = (resource, key)
        if after is None and before is not None:
            self._uids.pop(before.object["metadata"]["uid"], None)
        old, new = _owner_uids(before), _owner_uids(after)
        for uid in old - new:
            self._children[uid].discard((resource, key))
            if not self._children[uid]:
                del self._children[uid]
        for uid in new - old:
            self._children.setdefault(uid, set()).add((resource, key))


def _owner_uids(revision: Revision | None) -> set[str]:
    owners = dig(revision.object, "metadata", "ownerReferences") if revision else None
    return {str(owner.get("uid")) for owner in owners or ()}
