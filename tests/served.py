"""Putting made-up objects into the API server in memory, as their controllers would."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nodesmith.model.schema.crds import custom_resource_definitions
from nodesmith_cli.local.apiserver import Store

CRDS = tuple(custom_resource_definitions())
"""The same as in forwarder/crds: to read those takes half a second, and many tests begin with it."""
_GIVEN_BY_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def created(store: Store, plural: str, manifest: dict[str, Any]) -> None:
    """Create an object with its status and, if need be, its namespace. Owners are left out: none of them exists."""
    metadata = {n: value for n, value in manifest["metadata"].items() if n not in _GIVEN_BY_THE_SERVER}
    metadata.pop("ownerReferences", None)
    namespace = str(metadata.get("namespace") or "")
    if namespace and store.find("namespaces", namespace) is None:
        store.create("namespaces", {"metadata": {"name": namespace}})
    store.create(plural, {**manifest, "metadata": metadata})
    if "status" in manifest:
        status = {"status": manifest["status"]}
        store.patch(plural, metadata["name"], status, namespace=namespace, subresource="status")
