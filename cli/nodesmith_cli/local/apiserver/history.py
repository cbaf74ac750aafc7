"""Objects by revision: what is there now, what changed lately, and who is watching.

This is the part that etcd plays in a real cluster. It knows nothing of Kubernetes' rules for writes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import RLock
from typing import Literal, TypeAlias

from nodesmith_cli.local.apiserver.errors import expired
from nodesmith_cli.local.apiserver.objects import Object, View, dig, name_of, namespace_of

Key: TypeAlias = tuple[str, str]  # namespace (empty when cluster-scoped), name
Verb: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

HISTORY_LIMIT = 10_000  # changes remembered for each resource
BACKLOG_LIMIT = 50_000  # changes a watcher may lag behind before it is cut off, as a real server does


class Revision:
    """One object at one revision. Its JSON is made once, however many lists and watchers send it."""

    __slots__ = ("_body", "_named", "object", "revision")

    def __init__(self, obj: Object, revision: int) -> None:
        self.object: View = obj
        self.revision = revision
        self._body = b""
        self._named = 0  # where the JSON goes on after kind and apiVersion

    def body(self) -> bytes:
        """Return the object as JSON."""
        if not self._body:
            rest = dict(self.object)
            names = {name: rest.pop(name, "") for name in ("kind", "apiVersion")}
            head, tail = (json.dumps(part, separators=(",", ":")).encode() for part in (names, rest))
            self._body, self._named = head[:-1] + b"," + tail[1:], len(head)
        return self._body

    def nameless(self) -> bytes:
        """Return the object as JSON without kind and apiVersion, as lists of built-in kinds carry it."""
        return b"{" + self.body()[self._named :]


@dataclass(frozen=True, slots=True)
class Change:
    """One step of one object; `before` is absent for ADDED. A DELETED change carries the last state."""

    verb: Verb
    after: Revision
    before: Revision | None

    @property
    def revision(self) -> int:
        """The resourceVersion that this change made."""
        return self.after.revision


class Watcher:
    """A queue of the changes of one resource, in order. None in the queue says that the watch is over."""

    def __init__(self, resource: str, namespace: str, wake: Callable[[], None] | None) -> None:
        self.resource = resource
        self.namespace = namespace
        self._wake = wake
        self.queue: SimpleQueue[Change | None] = SimpleQueue()
        self.open = True

    def offer(self, change: Change) -> None:
        """Queue `change` if it is in the watched namespace; hang up on a reader that lags too far behind."""
        if self.namespace and namespace_of(change.after.object) != self.namespace:
            return
        if self.queue.qsize() >= BACKLOG_LIMIT:
            self.close()
        elif self.open:
            self.queue.put(change)
            if self._wake:
                self._wake()

    def close(self) -> None:
        """Tell the reader that nothing more will come."""
        self.open = False
        self.queue.put(None)


class History:
    """Every object, every recent change. Hold `lock` around a read-then-write."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.revision = 1
        self._objects: dict[str, dict[Key, Revision]] = {}
        self._changes: dict[str, deque[Change]] = {}
        self._forgotten: dict[str, int] = {}  # the newest revision that is no longer remembered
        self.compacted = 0
        self._watchers: dict[str, list[Watcher]] = {}
        self._children: dict[str, set[tuple[str, Key]]] = {}
        self._uids: dict[str, tuple[str, Key]] = {}

    def find(self, resource: str, key: Key) -> Revision | None:
        """Return the newest revision of one object."""
        return self._objects.get(resource, {}).get(key)

    def scan(self, resource: str, namespace: str = "") -> list[Revision]:
        """Return every object of a resource, by namespace and name."""
        with self.lock:
            held = sorted(self._objects.get(resource, {}).items())
        return [revision for key, revision in held if not namespace or key[0] == namespace]

    def by_uid(self, uid: str) -> tuple[str, Key] | None:
        """Return which object has this uid."""
        return self._uids.get(uid)

    def children(self, uid: str) -> list[tuple[str, Key]]:
        """Return which objects name this uid as an owner, in a stable order."""
        with self.lock:
            return sorted(self._children.get(uid, ()))

    def put(self, resource: str, obj: Object) -> Revision:
        """Store `obj` as the newest revision of itself; stamps metadata.resourceVersion."""
        with self.lock:
            key = (namespace_of(obj), name_of(obj))
            table = self._objects.setdefault(resource, {})
            before = table.get(key)
            after = self._stamp(obj)
            table[key] = after
            self._index(resource, key, before, after)
            self._tell(resource, Change("MODIFIED" if before else "ADDED", after, before))
            return after

    def drop(self, resource: str, last: Object) -> Revision | None:
        """Remove an object; gives `last`, its last state, with the resourceVersion of the removal."""
        with self.lock:
            key = (namespace_of(last), name_of(last))
            before = self._objects.get(resource, {}).pop(key, None)
            if before is None:
                return None
            after = self._stamp(last)
            self._index(resource, key, before, None)
            self._tell(resource, Change("DELETED", after, before))
            return after

    def watch(
        self,
        resource: str,
        namespace: str = "",
        since: int | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Watcher:
        """Follow a resource: from now, or with everything after revision `since` first.

        `wake` is called, under the lock, whenever something is queued. Raises ApiError 410 when `since` is older than
        what is remembered.
        """
        with self.lock:
            watcher = Watcher(resource, namespace, wake)
            if since is not None:
                for change in self._since(resource, since):
                    watcher.offer(change)
            self._watchers.setdefault(resource, []).append(watcher)
            return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Forget a watcher whose reader has gone."""
        with self.lock:
            watcher.open = False
            followers = self._watchers.get(watcher.resource, [])
            if watcher in followers:
                followers.remove(watcher)

    def compact(self) -> None:
        """Forget every change so far, as etcd does every five minutes: older watches get 410."""
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
        yield from (each for each in self._changes.get(resource, ()) if each.revision > since)

    def _tell(self, resource: str, change: Change) -> None:
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
