"""Listing one kind and then watching it, through expired versions, API server restarts and missing CRDs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from threading import Event
from typing import Any, Protocol

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Expired, NotServed, failure, read_json
from nodesmith.adapters.kubernetes.cluster import is_ungranted
from nodesmith.errors import NodesmithError, Transient
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.mirror import WatchedKind, key_of
from nodesmith_forwarder.clock import Clock, SystemClock, jittered, wait_seconds

LOG = logging.getLogger(__name__)
SILENCE_SECONDS = 90.0  # API servers send a bookmark every minute: longer silence means a dead connection
PAUSE_SECONDS = 0.5
"""The pause after a watch that ended normally, and the first pause after one that failed."""
ABSENT, ABSENT_SECONDS = "is not installed", 10.0
_REFUSALS_BEFORE_ABSENT = 6
_WATCH_SECONDS = 300.0
_GLANCE_SECONDS = 1.0
_FAILURES_PER_WARNING = 10
_FAILURES_BEFORE_LISTING = (
    3  # a version may also become invalid, for example after etcd was restored from a backup
)


class Watcher(Protocol):
    """The target that a Watch keeps up to date, such as a World. Its methods are called from several threads."""

    def put(self, kind: WatchedKind, manifests: Iterable[Manifest]) -> None:
        """Store the newest states of objects."""

    def drop(self, kind: WatchedKind, manifest: Manifest) -> None:
        """Remove an object that is gone."""

    def keep_only(self, kind: WatchedKind, keys: Collection[str]) -> None:
        """Remove the objects that a full list did not hold."""

    def needs(self, kind: WatchedKind) -> bool:
        """Return whether the kind is read now."""

    def mark(self, kind: WatchedKind, *, current: bool, resting: bool = False) -> bool:
        """Record whether a kind is up to date; return True if that has changed."""


class Pauses:
    """The waits of all watches of an API server. Once one watch succeeds again, the others retry as well.

    Otherwise the last of thirty watches would return half a minute after an outage, and until then nothing is reported.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers = 0

    def answered(self) -> None:
        """Note that the API server has answered a watch that had failed."""
        self._answers += 1

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait, at most until stopped."""
        stop.wait(self._clock.wall_seconds(seconds))

    def wait_to_retry(self, seconds: float, stop: Event) -> None:
        """Wait, at most until stopped or until the API server answers another watch."""
        answers, seconds_left = self._answers, self._clock.wall_seconds(seconds)
        while (
            seconds_left > 0
            and self._answers == answers
            and not stop.wait(min(seconds_left, _GLANCE_SECONDS))
        ):
            seconds_left -= _GLANCE_SECONDS


class Watch:
    """Keeps one kind of a Watcher up to date. `run` needs a thread of its own. Watches may share `pauses`."""

    def __init__(
        self, kind: WatchedKind, server: ApiServer, world: Watcher, pauses: Pauses | None = None
    ) -> None:
        self._kind = kind
        self._server = server
        self._world = world
        self._pauses = pauses or Pauses(SystemClock())
        self._path = kind.path
        self._unserved = 0
        """How many versions of the kind, one after another, the API server does not serve."""
        self._refusals = 0
        """How often in a row the API server has refused to let the kind be read."""
        self._has_been_read = False
        """Whether the kind has been listed since it last counted as absent."""
        self._version = ""
        self._failures = 0

    def run(self, stop: Event) -> None:
        """Follow the kind until stopped. An open connection then ends with its next event."""
        while not stop.is_set():
            if not self._world.needs(self._kind):
                self._pause_unneeded(stop)
                continue
            try:
                self._follow(stop)
            except Expired as error:
                LOG.info("%s: listing again: %s", self._kind.kind, error)
                self._version = ""
                self._fail(stop)
            except NodesmithError as error:
                if isinstance(error, NotServed) and self._kind.custom:
                    self._try_another(stop)
                elif is_ungranted(self._kind, error) and self._is_refused_for_long():
                    self._treat_as_absent(
                        stop, f"may not be read until this release's roles are applied ({error})"
                    )
                else:
                    self._report_failure(error, stop)

    def _follow(self, stop: Event) -> None:
        if not self._version:
            self._version = self._list()
        query = "&".join(filter(None, [self._kind.selector, _query(self._version)]))
        lines = self._server.stream(self._path, query, read_seconds=SILENCE_SECONDS)
        if self._failures:
            self._pauses.answered()
        if self._world.mark(self._kind, current=True):
            LOG.info("%s: watching from version %s", self._kind.kind, self._version)
        for event in _events(lines):
            self._apply(event)
            self._failures = 0
            if stop.is_set() or not self._world.needs(self._kind):
                return
        self._pauses.wait(jittered(PAUSE_SECONDS, 0.5), stop)

    def _list(self) -> str:
        keys: set[str] = set()
        version = ""
        for page in self._server.pages(self._path, self._kind.selector):
            self._world.mark(self._kind, current=False)  # a partial list must not pass for the cluster
            items = page.get("items") or []
            self._world.put(self._kind, items)
            keys.update(map(key_of, items))
            version = str(page["metadata"]["resourceVersion"])
        self._unserved = self._refusals = 0
        self._has_been_read = True
        self._world.keep_only(self._kind, keys)
        return version

    def _apply(self, event: dict[str, Any]) -> None:
        manifest = event.get("object") or {}
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                self._world.put(self._kind, [manifest])
            case "DELETED":
                self._world.drop(self._kind, manifest)
            case "BOOKMARK":
                pass
            case _:
                raise failure(int(manifest.get("code") or 500), manifest, f"watching {self._path}")
        self._version = str(manifest["metadata"]["resourceVersion"])

    def _try_another(self, stop: Event) -> None:
        """Read another version of a kind; after all versions, treat it as one without objects for a while.

        A CRD that is replaced may serve a newer version only. Its objects are then still there.
        """
        self._version, paths = "", self._kind.paths
        self._unserved += 1
        self._path = paths[(paths.index(self._path) + 1) % len(paths)]
        if self._unserved >= len(paths):
            self._unserved, self._path = 0, paths[0]
            self._treat_as_absent(stop)

    def _is_refused_for_long(self) -> bool:
        """Return whether a kind that may not be read now was never read, or is refused for about half a minute.

        Roles that are replaced are missing for a moment. Objects that exist must not seem to be gone meanwhile.
        """
        self._refusals += 1
        return not self._has_been_read or self._refusals > _REFUSALS_BEFORE_ABSENT

    def _treat_as_absent(self, stop: Event, reason: str = ABSENT) -> None:
        """Treat a kind that cannot be read as one without objects for a while.

        A kind that nodesmith does not install may be missing silently.
        """
        self._version, self._has_been_read = "", False
        self._world.keep_only(self._kind, ())
        if self._world.mark(self._kind, current=True):
            level = logging.INFO if self._kind.older else logging.WARNING
            LOG.log(level, "%s %s, looking again every %.0f s", self._kind.kind, reason, ABSENT_SECONDS)
        self._pauses.wait(jittered(ABSENT_SECONDS, 0.2), stop)

    def _pause_unneeded(self, stop: Event) -> None:
        """Forget the objects of a kind that nothing refers to. The kind is watched again once something does."""
        self._version = ""
        self._world.keep_only(self._kind, ())
        self._world.mark(self._kind, current=True, resting=True)
        self._pauses.wait(jittered(PAUSE_SECONDS, 0.5), stop)

    def _report_failure(self, error: NodesmithError, stop: Event) -> None:
        was_current = self._world.mark(self._kind, current=False)
        if (was_current or self._failures % _FAILURES_PER_WARNING == 0) and not stop.is_set():
            LOG.warning("%s: cannot be watched: %s", self._kind.kind, error)
        self._fail(stop)

    def _fail(self, stop: Event) -> None:
        self._failures += 1
        if self._failures >= _FAILURES_BEFORE_LISTING:
            self._version = ""
        self._pauses.wait_to_retry(wait_seconds(self._failures, PAUSE_SECONDS), stop)


def _query(version: str) -> str:
    seconds = round(
        jittered(_WATCH_SECONDS, 0.2)
    )  # spread, so that watches do not all end at the same moment
    return f"watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"


def _events(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield read_json(line)
        except ValueError as error:
            raise Transient(f"the watch ended in the middle of an event: {error}") from error
