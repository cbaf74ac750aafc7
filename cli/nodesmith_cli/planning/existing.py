"""What a cluster holds already: which objects control which, and every name that is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nodesmith_cli.local.manifests import Document

Manifest = Mapping[str, Any]
_OVER = frozenset({"Failed", "Succeeded"})


class Key(NamedTuple):
    """What tells objects apart; `namespace` is empty for one that has none."""

    kind: str
    namespace: str
    name: str


class Existing:
    """What exists: pods and what controls them, and every name that is taken."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.owned: dict[Key, list[Manifest]] = {}
        self.names: set[Key] = set()
        self.wanted: dict[Key, int] = {}
        """pods that a ReplicaSet has or will have"""
        for document in documents:
            self.add(document.manifest)

    def add(self, manifest: Manifest) -> None:
        """Take note of one object more."""
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
        """Return an owner's pods that neither have ended nor are on their way out."""
        return [pod for pod in self.of(owner, "Pod") if is_active(pod)]


def is_active(pod: Manifest) -> bool:
    """Return whether a controller counts a pod among those it has."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _OVER and not pod["metadata"].get("deletionTimestamp")


def controller(metadata: Manifest) -> Manifest:
    """Return the reference to what controls an object, empty where nothing does."""
    references = metadata.get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), {})


def key_of(manifest: Manifest) -> Key:
    """Return the key of an object."""
    metadata = manifest["metadata"]
    return Key(str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))
