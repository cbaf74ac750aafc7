"""Paged lists: the server keeps the rest of a list, unchanged, until its continue token arrives."""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from nodesmith_formats.kubernetes.errors import bad_request, expired
from nodesmith_formats.kubernetes.objects import Object
from nodesmith_local.apiserver.storage.history import Revision

_KEPT = 256  # unfinished lists; the oldest expires first


class Pages:
    """The unfinished lists of all clients. Revisions never change, so a page is kept as references."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, tuple[int, Sequence[Revision]]] = OrderedDict()
        self._lock = Lock()

    def page(
        self, revisions: Sequence[Revision], revision: int, limit: int | None
    ) -> tuple[Sequence[Revision], Object]:
        """Return the first `limit` items, and the list's metadata with a token for the rest."""
        metadata: Object = {"resourceVersion": str(revision)}
        if not limit or len(revisions) <= limit:
            return revisions, metadata
        token = _token(revision)
        with self._lock:
            self._waiting[token] = (revision, revisions[limit:])
            while len(self._waiting) > _KEPT:
                self._waiting.popitem(last=False)
        return revisions[:limit], {
            **metadata,
            "continue": token,
            "remainingItemCount": len(revisions) - limit,
        }

    def next(self, token: str, oldest: int) -> tuple[int, Sequence[Revision]]:
        """Return a token's revision and the rest of its list. Raises ApiError 400, and 410 before `oldest`."""
        _check(token)
        with self._lock:
            waiting = self._waiting.get(token)
        if waiting is None or waiting[0] < oldest:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new "
                "list without the continue parameter."
            )
        return waiting


def _token(revision: int) -> str:
    """Return a token that looks like a real server's; its `start` is random and not an object key."""
    place = {"v": "meta.k8s.io/v1", "rv": revision, "start": secrets.token_urlsafe(12)}
    return urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _check(token: str) -> None:
    try:
        json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
