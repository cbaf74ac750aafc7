"""What the local system does with a cluster's objects, whichever API server holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nodesmith_cli.local.apiserver.history import Watcher
from nodesmith_cli.local.apiserver.kinds import Resource
from nodesmith_cli.local.apiserver.objects import View
from nodesmith_cli.local.apiserver.store import Write


class Kinds(Protocol):
    """The kinds that are served at this moment."""

    def __iter__(self) -> Iterator[Resource]:
        """Return all of them."""

    def of(self, obj: View) -> Resource:
        """Find a manifest's kind. Raises ApiError 400."""


class Objects(Protocol):
    """A cluster's objects. `resource` is a plural, with its group where that alone would be ambiguous.

    What the server refuses is raised as ApiError with its status code; LookupError says that it serves no such
    resource, Transient that it cannot be reached. `Store` is one of these, `ServerObjects` the other.
    """

    @property
    def registry(self) -> Kinds: ...

    def get(self, resource: str, name: str, namespace: str = "") -> View:
        """Return one object. Raises ApiError 404."""

    def find(self, resource: str, name: str, namespace: str = "") -> View | None:
        """Return one object, or None."""

    def list(
        self, resource: str, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[View]:
        """Return the objects that match the selectors, of all namespaces unless one is named."""

    def watch(self, resource: str, namespace: str = "") -> Watcher:
        """Follow a resource from now on, until the watcher is closed."""

    def create(self, resource: str, obj: View, write: Write | None = None) -> View:
        """Create an object, in the namespace `default` where it names none but needs one."""

    def apply(self, resource: str, obj: View, *, write: Write | None = None) -> Any:
        """Apply a manifest server-side."""

    def patch(
        self, resource: str, name: str, patch: Any, namespace: str = "", *, subresource: str = ""
    ) -> View:
        """Merge into an object (RFC 7396), or only into its status."""

    def delete(self, resource: str, name: str, namespace: str = "") -> Any:
        """Delete an object."""
