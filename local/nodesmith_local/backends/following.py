"""A watch on one resource of an API server: list once, then stream the changes with the state before each."""

from __future__ import annotations

import time

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Expired, failure, read_json
from nodesmith.errors import NodesmithError
from nodesmith_formats.kubernetes.objects import Object, View, name_of, namespace_of
from nodesmith_local.apiserver.storage.history import Change, Key, Revision, Verb, Watcher

_SILENCE_SECONDS = 90.0  # API servers send a bookmark every minute
_PAUSE_SECONDS = 0.3


class Following:
    """Feeds a watcher. `begin` sets the starting point; `run` is for a thread of its own."""

    def __init__(self, server: ApiServer, path: str, watcher: Watcher) -> None:
        self._server = server
        self._path = path
        self._watcher = watcher
        self._known: dict[Key, Revision] = {}
        self._version = ""

    def begin(self) -> None:
        """List the existing objects as known. Raises Transient or Rejected."""
        self._known = self._listed()

    def run(self) -> None:
        """Follow until the watcher is closed; an open connection then ends with its next event."""
        while self._watcher.open:
            try:
                if not self._version:
                    self._catch_up(self._listed())
                self._stream()
            except Expired:
                self._version = ""
            except (NodesmithError, ValueError):  # the server is away, or stopped in the middle of an event
                time.sleep(_PAUSE_SECONDS)

    def _stream(self) -> None:
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={self._version}"
        for line in self._server.stream(self._path, query, read_seconds=_SILENCE_SECONDS):
            if not self._watcher.open:
                return
            self._take(read_json(line))

    def _take(self, event: Object) -> None:
        obj, verb = event["object"], event["type"]
        if verb == "ERROR":
            self._version = ""
            raise failure(int(obj.get("code") or 500), obj, f"watching {self._path}")
        if verb != "BOOKMARK":
            self._offer(verb, _revision(obj))
        self._version = obj["metadata"]["resourceVersion"]

    def _listed(self) -> dict[Key, Revision]:
        revisions: dict[Key, Revision] = {}
        for page in self._server.pages(self._path):
            kind = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
            revisions |= {_key(item): _revision({**kind, **item}) for item in page.get("items") or ()}
            self._version = page["metadata"]["resourceVersion"]
        return revisions

    def _catch_up(self, revisions: dict[Key, Revision]) -> None:
        """Report the changes since the last event that was received."""
        for key in self._known.keys() - revisions.keys():
            self._offer("DELETED", self._known[key])
        for key, revision in revisions.items():
            before = self._known.get(key)
            if before is None or before.revision != revision.revision:
                self._offer("MODIFIED" if before else "ADDED", revision)

    def _offer(self, verb: Verb, after: Revision) -> None:
        key = _key(after.object)
        before = self._known.pop(key, None)
        if verb != "DELETED":
            self._known[key] = after
        self._watcher.offer(Change(verb, after, before))


def _key(obj: View) -> Key:
    return namespace_of(obj), name_of(obj)


def _revision(obj: Object) -> Revision:
    return Revision(obj, int(obj["metadata"]["resourceVersion"]))
