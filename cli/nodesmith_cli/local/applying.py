"""Manifests into the API server, object by object: what it refuses is a fault, and the others go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nodesmith_cli.local.apiserver.errors import ApiError
from nodesmith_cli.local.apiserver.store import Store, Write
from nodesmith_cli.local.manifests import Document, Fault

WORKLOADS = frozenset({"Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"})
_FIRST = frozenset({"Namespace", "CustomResourceDefinition"})
_MANAGER = "nodesmith"


def surroundings_first(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """Give what pods live in, namespaces ahead, and the workloads, each in the order of the files."""
    ordered = sorted(documents, key=lambda document: document.manifest["kind"] not in _FIRST)
    workloads = [document for document in ordered if document.manifest["kind"] in WORKLOADS]
    return [document for document in ordered if document not in workloads], workloads


def apply_documents(store: Store, documents: Sequence[Document]) -> list[Fault]:
    """Apply each object as `kubectl apply --server-side --force-conflicts` does; gives what is wrong with them.

    A field that no schema knows is a fault too, although the object is applied without it.
    """
    faults: list[Fault] = []
    for document in documents:
        write = Write(manager=_MANAGER, force=True)
        try:
            _apply(store, dict(document.manifest), write)
        except ApiError as error:
            faults += _faults(document, error)
        faults += [_warning(document, warning) for warning in write.warnings]
    return faults


def _apply(store: Store, manifest: dict[str, Any], write: Write) -> None:
    resource = store.registry.of(manifest)
    if manifest["metadata"].get("name"):
        store.apply(resource, manifest, write=write)
    else:
        store.create(resource, manifest, write)


def _faults(document: Document, error: ApiError) -> list[Fault]:
    causes = error.details.get("causes") or ()
    if not causes:
        return [document.fault(error.message)]
    return [document.fault(str(c["message"]), str(c["field"])) for c in causes]


def _warning(document: Document, warning: str) -> Fault:
    """Read the server's words for a dropped field: `unknown field "spec.tempalte"`."""
    words, quote, path = warning.partition('"')
    field = path.rstrip('"') if quote else ""
    return document.fault(f"{words.strip()}, it is left out" if field else warning, field)
