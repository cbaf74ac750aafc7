"""The existing objects of a cluster: which objects control which, and all names in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nodesmith_formats.manifests.manifests import Document

Manifest = Mapping[str, Any]
_OVER = frozenset({"Failed", "Succeeded"})


class Key(NamedTuple):
    """The identity of an object. `namespace` is empty for a cluster-scoped object."""

    kind: str
    namespace: str
    name: str


class Existing:
    """The existing objects: pods by controller, and all names in use."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.owned: dict[Key, list[Manifest]] = {}
        self.names: set[Key] = set()
        self.wanted: dict[Key, int] = {}
        """The number of pods that each ReplicaSet has or will have."""
        for document in documents:
            self.add(document.manifest)

    def add(self, manifest: Manifest) -> None:
        """Record one more object."""
        metadata = manifest["metadata"]
        namespace = str(metadata.get("namespace") or "")
        self.names.add(Key(str(manifest["kind"]), namespace, str(metadata["name"])))
        owner = controller(metadata)
        if owner:
            key = Key(str(owner.get("kind")), namespace, str(owner.get("name")))
            self.owned.setdefault(key, []).append(manifest)

    def of(self, owner: Document, kind: str) -> list[Manifest]:
        """Return the objects of a kind that an owner controls."""
        return [m for m in self.owned.get(key_of(owner.manifest), ()) if m["kind"] == kind]

    def active(self, owner: Document) -> list[Manifest]:
        """Return an owner's pods that are neither finished nor being deleted."""
        return [pod for pod in self.of(owner, "Pod") if is_active(pod)]


def is_active(pod: Manifest) -> bool:
    """Return whether a controller counts a pod as a replica."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _OVER and not pod["metadata"].get("deletionTimestamp")


def controller(metadata: Manifest) -> Manifest:
    """Return the owner reference of an object's controller, or an empty mapping."""
    references = metadata.get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), {})


def key_of(manifest: Manifest) -> Key:
    """Return the key of an object."""
    metadata = manifest["metadata"]
    return Key(str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))
