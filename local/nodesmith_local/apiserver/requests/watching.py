"""Watch streams: replay, selectors, bookmarks, time limits, and errors inside the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Empty
from threading import Lock
from time import monotonic

from nodesmith_formats.kubernetes.errors import ApiError, expired
from nodesmith_formats.kubernetes.objects import Object
from nodesmith_formats.kubernetes.selectors import Matcher
from nodesmith_local.apiserver.storage.history import Change, History, Revision, Watcher
from nodesmith_local.apiserver.tables.presentation import Presentation

IDLE_SECONDS = 5.0  # how often a quiet stream checks whether its reader is still there
BOOKMARK_SECONDS = 60.0
_BATCH = 500


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of a watch.

    `since` None starts with the objects that exist, and `initial_end` marks their end.
    """

    presentation: Presentation
    namespace: str
    tests: Sequence[Matcher]
    since: int | None
    bookmarks: bool
    initial_end: bool
    seconds: float


class Streams:
    """The open watches of one server."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._open: set[Watcher] = set()
        self._lock = Lock()

    def stream(self, options: WatchOptions) -> Iterator[bytes]:
        """Yield watch events, each ending in a newline; several ready events share a frame.

        Yield empty frames while nothing happens.
        """
        try:
            watcher, first, revision = _begin(self._history, options)
        except ApiError as error:
            yield _frame("ERROR", json.dumps(error.status()).encode())
            return
        with self._lock:
            self._open.add(watcher)
        try:
            if first or options.initial_end:
                yield _initial(options, first, revision)
            yield from _follow(self._history, options, watcher)
        finally:
            self._history.unwatch(watcher)
            with self._lock:
                self._open.discard(watcher)

    def hang_up(self) -> None:
        """End every open watch."""
        with self._lock:
            for watcher in self._open:
                watcher.close()


def _begin(history: History, options: WatchOptions) -> tuple[Watcher, list[Revision], int]:
    with history.lock:
        if options.since is not None and options.since > history.revision:
            # A real server stays silent until it reaches this revision. This server has restarted, so report it
            # instead.
            raise expired(
                f"too old resource version: {options.since} (from before this server, now {history.revision})"
            )
        watcher = history.watch(options.presentation.resource.name, options.namespace, options.since)
        first = (
            history.scan(options.presentation.resource.name, options.namespace)
            if options.since is None
            else []
        )
        return watcher, [revision for revision in first if _matches(options, revision)], history.revision


def _initial(options: WatchOptions, first: Sequence[Revision], revision: int) -> bytes:
    frames = [_frame("ADDED", options.presentation.one(initial)) for initial in first]
    if options.initial_end:
        frames.append(_bookmark(options.presentation, revision, {"k8s.io/initial-events-end": "true"}))
    return b"".join(frames)


def _follow(history: History, options: WatchOptions, watcher: Watcher) -> Iterator[bytes]:
    end = monotonic() + options.seconds
    marked = monotonic()
    interval = min(BOOKMARK_SECONDS, options.seconds / 3)
    headed = options.presentation.form != "table"
    while (seconds_left := end - monotonic()) > 0:
        frames: list[bytes] = []
        for change in _ready(watcher, min(seconds_left, IDLE_SECONDS, interval)):
            if change is None:
                yield b"".join(frames)
                return
            event = _event(options, change, headed=not headed)
            if event:
                frames.append(event)
                headed = True
        if options.bookmarks and monotonic() - marked > interval:
            marked = monotonic()
            frames.append(_safe_bookmark(history, options, watcher))
        yield b"".join(frames)


def _ready(watcher: Watcher, patience: float) -> Iterator[Change | None]:
    """Yield queued changes: wait for the first one, then take the others without waiting."""
    try:
        yield watcher.queue.get(timeout=patience)
        for _ in range(_BATCH):
            yield watcher.queue.get_nowait()
    except Empty:
        return


def _event(options: WatchOptions, change: Change, *, headed: bool) -> bytes:
    """Return the event as the selectors present it.

    An object that leaves the selection appears as DELETED, one that enters it as ADDED.
    """
    is_in = change.verb != "DELETED" and _matches(options, change.after)
    was_in = change.before is not None and _matches(options, change.before)
    if not is_in and not was_in:
        return b""
    verb = ("MODIFIED" if was_in else "ADDED") if is_in else "DELETED"
    if options.presentation.form == "table":
        return _frame(
            verb, json.dumps(options.presentation.shaped(change.after.object, headed=headed)).encode()
        )
    return _frame(verb, options.presentation.one(change.after))


def _matches(options: WatchOptions, revision: Revision) -> bool:
    return all(test(revision.object) for test in options.tests)


def _safe_bookmark(history: History, options: WatchOptions, watcher: Watcher) -> bytes:
    """Return a bookmark at the current revision, or nothing while the reader has changes to receive."""
    with history.lock:
        return _bookmark(options.presentation, history.revision) if watcher.queue.empty() else b""


def _bookmark(presentation: Presentation, revision: int, annotations: Object | None = None) -> bytes:
    metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    kind, version = presentation.resource.kind, presentation.resource.api_version(presentation.version)
    if presentation.form == "metadata":
        kind, version = "PartialObjectMetadata", "meta.k8s.io/v1"
    body: Object = {"kind": kind, "apiVersion": version, "metadata": metadata}
    if presentation.form == "table":
        body = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [],
            "rows": [],
        }
    return _frame("BOOKMARK", json.dumps(body, separators=(",", ":")).encode())


def _frame(verb: str, body: bytes) -> bytes:
    return b'{"type":"' + verb.encode() + b'","object":' + body + b"}\n"
