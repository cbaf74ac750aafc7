"""Server-side apply, and a dry run of it. Only the fields that nodesmith sets are changed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer, NotServed

MANAGER = "nodesmith"
_APPLY = "application/apply-patch+yaml"
_PLURALS = {"NetworkPolicy": "networkpolicies", "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}
_NAMESPACED = frozenset({"ConfigMap", "Deployment", "NetworkPolicy", "ServiceAccount"})
_EVER_NEW = ("resourceVersion", "generation", "managedFields")


class State(StrEnum):
    """How an object compares with its manifest."""

    PRESENT = "present"
    MISSING = "missing"
    DIFFERENT = "different"
    UNKNOWN_KIND = "unknown kind"
    """The API server does not serve this kind, such as admission policies before Kubernetes 1.30."""


class Applier(ApiServer):
    """An API server that supports server-side apply."""

    def state(self, manifest: Mapping[str, Any]) -> State:
        """Compare an object with the result of a dry-run apply. Raises Transient, Rejected."""
        there = self.get(path_of(manifest))
        if there is None:
            return State.MISSING if self._is_served(manifest) else State.UNKNOWN_KIND
        after = self._apply(manifest, "&dryRun=All")
        return State.PRESENT if _lasting(after) == _lasting(there) else State.DIFFERENT

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Create an object, or change the fields that differ. Raises Transient, Rejected, Conflict, NotServed."""
        self._apply(manifest)

    def _apply(self, manifest: Mapping[str, Any], query: str = "") -> dict[str, Any]:
        path = f"{path_of(manifest)}?fieldManager={MANAGER}&force=true{query}"
        applied = self._call("PATCH", path, manifest, _APPLY)
        if applied is None:
            raise NotServed(f"PATCH {path_of(manifest)}: the API server does not serve this kind", "NotFound")
        return applied

    def _is_served(self, manifest: Mapping[str, Any]) -> bool:
        listed = self.get(f"{_collection(manifest, all_namespaces=True)}?limit=1")
        return listed is not None


def path_of(manifest: Mapping[str, Any]) -> str:
    """Return the API path of an object."""
    return f"{_collection(manifest)}/{quote(manifest['metadata']['name'], safe='')}"


def reference(manifest: Mapping[str, Any]) -> str:
    """Return `Kind/name`."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _collection(manifest: Mapping[str, Any], *, all_namespaces: bool = False) -> str:
    version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    if kind not in _NAMESPACED or all_namespaces:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{quote(manifest['metadata']['namespace'], safe='')}/{plural}"


def _lasting(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the manifest without the metadata that every write changes."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in _EVER_NEW}
    return {**manifest, "metadata": metadata}
