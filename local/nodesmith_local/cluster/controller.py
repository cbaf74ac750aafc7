"""The base of stand-in controllers: changed keys, a reconciliation for each, and scheduled ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.objects import View
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.mirrors import Mirrors

_CONFLICTS = (404, 409)  # someone else was faster; the change arrives as an event


class Controller(ABC):
    """Reconciles objects that have changed, and those that are due."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        self.store = store
        self.mirrors = mirrors
        self._dirty: dict[Key, None] = {}
        self._later: dict[Key, datetime] = {}

    @abstractmethod
    def reconcile(self, key: Key) -> bool:
        """Reconcile one object and return whether anything was written."""

    def touch(self, key: Key | None) -> None:
        """Schedule a reconciliation of `key`."""
        if key is not None:
            self._dirty[key] = None

    def touch_object(self, _before: View | None, after: View | None) -> None:
        """Schedule a reconciliation of a changed object."""
        if after is not None:
            self.touch((after["metadata"].get("namespace", ""), after["metadata"]["name"]))

    def look_again(self, key: Key, time: datetime) -> None:
        """Schedule a reconciliation of `key` for the time `time`."""
        self._later[key] = min(time, self._later.get(key, time))

    def due(self) -> datetime | None:
        """Return the time of the next scheduled reconciliation, or None."""
        return min(self._later.values(), default=None)

    def step(self) -> bool:
        """Reconcile all changed and due objects; return whether anything was written."""
        now = self.store.now()
        for key in [key for key, due_at in self._later.items() if due_at <= now]:
            del self._later[key]
            self.touch(key)
        keys, self._dirty = tuple(self._dirty), {}
        return sum(self._look(key) for key in keys) > 0

    def _look(self, key: Key) -> bool:
        try:
            return self.reconcile(key)
        except ApiError as error:
            if error.code not in _CONFLICTS:
                raise
            return False
