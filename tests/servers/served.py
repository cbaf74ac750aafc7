"""Puts made-up objects into the in-memory API server, as their controllers would."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_local.apiserver import Store

CRDS = tuple(custom_resource_definitions())
"""The same as in forwarder/crds. Parsing them takes half a second, and many tests need them."""
_GIVEN_BY_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def created(store: Store, plural: str, manifest: dict[str, Any]) -> None:
    """Create an object with its status, and its namespace if necessary. Omit owners, because none of them exists."""
    metadata = {n: value for n, value in manifest["metadata"].items() if n not in _GIVEN_BY_THE_SERVER}
    metadata.pop("ownerReferences", None)
    namespace = str(metadata.get("namespace") or "")
    if namespace and store.find("namespaces", namespace) is None:
        store.create("namespaces", {"metadata": {"name": namespace}})
    store.create(plural, {**manifest, "metadata": metadata})
    if "status" in manifest:
        status = {"status": manifest["status"]}
        store.patch(plural, metadata["name"], status, namespace=namespace, subresource="status")
