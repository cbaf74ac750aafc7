"""Get, list and watch."""

from __future__ import annotations

from random import uniform

from nodesmith_formats.kubernetes.selectors import field_matcher, label_matcher
from nodesmith_local.apiserver.requests.messages import Reply, Request, Stream
from nodesmith_local.apiserver.requests.options import check_list, check_watch, expect_revision
from nodesmith_local.apiserver.requests.paging import Pages
from nodesmith_local.apiserver.requests.targets import Target
from nodesmith_local.apiserver.requests.watching import Streams, WatchOptions
from nodesmith_local.apiserver.storage.store import Store


class Reading:
    """Answers read requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = Pages()
        self._streams = Streams(store.history)

    def hang_up(self) -> None:
        """End every watch."""
        self._streams.hang_up()

    def get(self, target: Target, request: Request) -> Reply:
        """Answer with one object. Raises ApiError 404."""
        revision = self._store.revision(target.resource, target.name, target.namespace)
        return Reply(target.presentation(request, self._store.now).one(revision))

    def list(self, target: Target, request: Request) -> Reply:
        """Answer with the matching objects, or with a page of them. Raises ApiError 400, 410, 422 or 504."""
        limit, token = request.number("limit"), request.query.get("continue", "")
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        oldest = check_list(request)
        if token:
            revision, revisions = self._pages.next(token, self._store.history.compacted)
        else:
            with self._store.history.lock:
                revision = self._store.history.revision
                expect_revision(oldest, revision)
                revisions = self._store.revisions(target.resource, target.namespace, labels, fields)
        page, metadata = self._pages.page(revisions, revision, limit)
        if labels or fields:
            metadata.pop("remainingItemCount", None)
        return Reply(target.presentation(request, self._store.now).many(page, metadata))

    def watch(self, target: Target, request: Request) -> Stream:
        """Answer with a stream of changes. Raises ApiError 400, 422 or 500."""
        since = check_watch(request)
        tests = (
            label_matcher(request.query.get("labelSelector", "")),
            field_matcher(target.resource, request.query.get("fieldSelector", "")),
        )
        initial_events, bookmarks = (
            request.query.get("sendInitialEvents"),
            request.flag("allowWatchBookmarks"),
        )
        if initial_events is not None and not request.flag("sendInitialEvents") and since is None:
            since = self._store.history.revision
        options = WatchOptions(
            presentation=target.presentation(request, self._store.now),
            namespace=target.namespace,
            tests=[test for test in tests if test],
            since=since,
            bookmarks=bookmarks,
            initial_end=bookmarks and since is None,
            seconds=float(request.number("timeoutSeconds") or uniform(1800, 3600)),  # noqa: S311 spreads reconnects
        )
        return Stream(self._streams.stream(options))
