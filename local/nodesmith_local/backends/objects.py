"""The interface to a cluster's objects that the local system uses with any API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import View
from nodesmith_local.apiserver.storage.history import Watcher
from nodesmith_local.apiserver.storage.store import Write


class Kinds(Protocol):
    """The kinds that are currently served."""

    def __iter__(self) -> Iterator[Resource]:
        """Iterate over all kinds."""

    def of(self, obj: View) -> Resource:
        """Return a manifest's kind. Raises ApiError 400."""


class Objects(Protocol):
    """A cluster's objects. `resource` is a plural, with its group where the plural is ambiguous.

    A refusal raises ApiError with the server's status code, an unknown resource LookupError, an unreachable server
    Transient. `Store` and `ServerObjects` implement it.
    """

    @property
    def registry(self) -> Kinds: ...

    def get(self, resource: str, name: str, namespace: str = "") -> View:
        """Return one object. Raises ApiError 404."""

    def find(self, resource: str, name: str, namespace: str = "") -> View | None:
        """Return one object, or None where there is none."""

    def list(
        self, resource: str, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[View]:
        """Return the objects that match the selectors, by default in all namespaces."""

    def watch(self, resource: str, namespace: str = "") -> Watcher:
        """Watch a resource from now on, until the watcher is closed."""

    def create(self, resource: str, obj: View, write: Write | None = None) -> View:
        """Create an object; a namespaced one without a namespace goes to `default`."""

    def apply(self, resource: str, obj: View, *, write: Write | None = None) -> Any:
        """Apply a manifest server-side."""

    def patch(
        self, resource: str, name: str, patch: Any, namespace: str = "", *, subresource: str = ""
    ) -> View:
        """Apply a merge patch (RFC 7396) to an object, or only to its status."""

    def delete(self, resource: str, name: str, namespace: str = "") -> Any:
        """Delete an object."""
