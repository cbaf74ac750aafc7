"""Deletion: grace periods, finalizers, preconditions, and garbage collection of dependents.

A real cluster's garbage collector lags by about a second; here dependents follow in the same step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from nodesmith_formats.kubernetes.errors import conflict, not_found
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import (
    Clock,
    Object,
    View,
    dig,
    name_of,
    namespace_of,
    parse_timestamp,
    replaced,
    timestamp,
)
from nodesmith_local.apiserver.storage import crds
from nodesmith_local.apiserver.storage.history import History, Key, Revision
from nodesmith_local.apiserver.storage.registry import Registry

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]

FOREGROUND = "foregroundDeletion"
CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a delete request.

    `grace_seconds` None means the pod's own grace period. `uid` and `resource_version` are preconditions.
    """

    grace_seconds: int | None = None
    propagation: Propagation = "Background"
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class Deletions:
    """Removes objects; nothing else takes an object out of the history."""

    def __init__(self, history: History, registry: Registry, now: Clock) -> None:
        self._history = history
        self._registry = registry
        self._now = now

    def delete(self, resource: Resource, key: Key, options: DeleteOptions) -> tuple[View, bool]:
        """Delete one object and return its last state and whether it is gone now. Raises ApiError 404 or 409."""
        with self._history.lock:
            revision = self._history.find(resource.name, key)
            if revision is None:
                raise not_found(resource.name, key[1])
            check_preconditions(resource, revision.object, options)
            doomed = self._terminating(resource, revision.object, options)
            if options.dry_run:
                return doomed, not _held(resource, doomed)
            if options.propagation == "Orphan":
                self._orphan(str(doomed["metadata"]["uid"]))
            return self.settle(resource, revision, doomed)

    def settle(self, resource: Resource, old: Revision, new: Object) -> tuple[View, bool]:
        """Store `new` over `old`, or remove the object if nothing holds it any more.

        Return the object's state and whether it is gone.
        """
        if _held(resource, new):
            after = old if new == old.object else self._history.put(resource.name, new)
            self._start(resource, after.object)
            gone = self._history.find(resource.name, (namespace_of(new), name_of(new))) is None
            return after.object, gone
        return self._drop(resource, new), True

    def adopt(self, resource: Resource, new: View) -> None:
        """Delete a new object if all of its owners are already gone."""
        owners = dig(new, "metadata", "ownerReferences") or ()
        if owners and not any(self._history.by_uid(str(owner.get("uid"))) for owner in owners):
            self.delete(resource, (namespace_of(new), name_of(new)), DeleteOptions())

    def _terminating(self, resource: Resource, obj: View, options: DeleteOptions) -> Object:
        metadata: Object = dict(obj["metadata"])
        grace = _grace_seconds(resource, obj, options.grace_seconds)
        seconds_left = metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" not in metadata or (seconds_left is not None and grace < seconds_left):
            metadata["deletionTimestamp"] = timestamp(self._began(metadata) + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
            if resource.generation and "generation" in metadata:
                metadata["generation"] += 1
        finalizers = list(metadata.get("finalizers") or ())
        if options.propagation == "Foreground" and self._history.children(metadata["uid"]):
            metadata["finalizers"] = [
                *(finalizer for finalizer in finalizers if finalizer != FOREGROUND),
                FOREGROUND,
            ]
        doomed: Object = {**obj, "metadata": metadata}
        return (
            replaced(doomed, ("status", "phase"), "Terminating") if resource.name == "namespaces" else doomed
        )

    def _began(self, metadata: View) -> datetime:
        """Return when the deletion began. A grace period that is shortened later counts from the same moment."""
        end = parse_timestamp(metadata.get("deletionTimestamp"))
        return (
            end - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0) if end else self._now()
        )

    def _start(self, resource: Resource, obj: View) -> None:
        """Delete the objects that a pending deletion waits for: dependents, a namespace's contents, a CRD's objects."""
        if "deletionTimestamp" not in obj["metadata"]:
            return
        if FOREGROUND in (obj["metadata"].get("finalizers") or ()):
            for child in self._history.children(obj["metadata"]["uid"]):
                self._delete_child(child, obj["metadata"]["uid"], "Foreground")
            self._finish_foreground(obj["metadata"]["uid"])
        if resource.name == "namespaces":
            self._delete_all(served for served in self._registry if served.namespaced)
            self._finish_namespace(name_of(obj))
        if resource.name == crds.PLURAL and CRD_CLEANUP in (obj["metadata"].get("finalizers") or ()):
            defined = [served for served in self._registry if served.name == name_of(obj)]
            for served in defined:
                for revision in self._history.scan(served.name):
                    self.delete(served, _key(revision.object), DeleteOptions())
            self._finish_crd(name_of(obj))

    def _delete_all(self, resources: Iterable[Resource]) -> None:
        closing = {
            name_of(namespace_revision.object)
            for namespace_revision in self._history.scan("namespaces")
            if "deletionTimestamp" in namespace_revision.object["metadata"]
        }
        for resource in resources:
            for revision in self._history.scan(resource.name):
                doomed = namespace_of(revision.object) in closing
                if doomed and self._history.find(resource.name, _key(revision.object)):
                    self.delete(resource, _key(revision.object), DeleteOptions())

    def _drop(self, resource: Resource, last: Object) -> View:
        removed = self._history.drop(resource.name, last)
        if removed is None:
            raise not_found(resource.name, name_of(last))
        obj = removed.object
        for child in self._history.children(obj["metadata"]["uid"]):
            self._delete_child(child, obj["metadata"]["uid"], "Background")
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._finish_foreground(str(owner.get("uid")))
        if resource.namespaced:
            self._finish_namespace(namespace_of(obj))
        if resource.custom:
            self._finish_crd(resource.name)
        if resource.name == crds.PLURAL:
            self._registry.remove(name_of(obj))
        return obj

    def _delete_child(self, child: tuple[str, Key], owner_uid: str, propagation: Propagation) -> None:
        name, key = child
        revision = self._history.find(name, key)
        if revision is None:
            return
        owners = revision.object["metadata"].get("ownerReferences") or ()
        other_owners = [owner for owner in owners if owner.get("uid") != owner_uid]
        if any(self._history.by_uid(str(owner.get("uid"))) for owner in other_owners):
            self._disown(name, revision, owner_uid)
        elif "deletionTimestamp" not in revision.object["metadata"]:
            self.delete(self._registry.named(name), key, DeleteOptions(propagation=propagation))

    def _orphan(self, owner_uid: str) -> None:
        for name, key in self._history.children(owner_uid):
            revision = self._history.find(name, key)
            if revision is not None:
                self._disown(name, revision, owner_uid)

    def _disown(self, name: str, revision: Revision, owner_uid: str) -> None:
        owners = revision.object["metadata"].get("ownerReferences") or ()
        remaining = [owner for owner in owners if owner.get("uid") != owner_uid]
        self._history.put(name, replaced(revision.object, ("metadata", "ownerReferences"), remaining))

    def _finish_foreground(self, owner_uid: str) -> None:
        owner = self._history.by_uid(owner_uid)
        revision = owner and self._history.find(*owner)
        if not owner or not revision or "deletionTimestamp" not in revision.object["metadata"]:
            return
        if FOREGROUND in (revision.object["metadata"].get("finalizers") or ()) and not any(
            self._blocks(child, owner_uid) for child in self._history.children(owner_uid)
        ):
            self._unfinalize(owner[0], revision, FOREGROUND)

    def _blocks(self, child: tuple[str, Key], owner_uid: str) -> bool:
        revision = self._history.find(*child)
        owners = revision.object["metadata"].get("ownerReferences") or () if revision else ()
        return any(owner.get("uid") == owner_uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _finish_namespace(self, namespace: str) -> None:
        revision = self._history.find("namespaces", ("", namespace))
        if revision is None or "deletionTimestamp" not in revision.object["metadata"]:
            return
        if not any(
            self._history.scan(resource.name, namespace) for resource in self._registry if resource.namespaced
        ):
            emptied = replaced(revision.object, ("spec", "finalizers"), [])
            self.settle(self._registry.named("namespaces"), revision, emptied)

    def _finish_crd(self, name: str) -> None:
        revision = self._history.find(crds.PLURAL, ("", name))
        if revision is None or "deletionTimestamp" not in revision.object["metadata"]:
            return
        if not self._history.scan(name) and CRD_CLEANUP in (
            revision.object["metadata"].get("finalizers") or ()
        ):
            self._unfinalize(crds.PLURAL, revision, CRD_CLEANUP)

    def _unfinalize(self, name: str, revision: Revision, finalizer: str) -> None:
        remaining = [other for other in revision.object["metadata"]["finalizers"] if other != finalizer]
        self.settle(
            self._registry.named(name),
            revision,
            replaced(revision.object, ("metadata", "finalizers"), remaining),
        )


def check_preconditions(resource: Resource, obj: View, options: DeleteOptions) -> None:
    """Raise ApiError 409 if the object does not match the uid or resource version in `options`."""
    for field, expected in (("uid", options.uid), ("resourceVersion", options.resource_version)):
        actual = obj["metadata"][field]
        if expected and expected != actual:
            label = "UID" if field == "uid" else "ResourceVersion"
            reason = "deleted and then recreated" if field == "uid" else "modified"
            detail = (
                f"the {label} in the precondition ({expected}) does not match the {label} in record ({actual}). "
                f"The object might have been {reason}"
            )
            raise conflict(resource.qualified_kind, name_of(obj), detail)


def _key(obj: View) -> Key:
    return namespace_of(obj), name_of(obj)


def _grace_seconds(resource: Resource, pod: View, requested: int | None) -> int:
    """Return the grace period in seconds; 0 except for pods that are assigned to a node and still running."""
    if resource.name != "pods" or not dig(pod, "spec", "nodeName"):
        return 0
    if dig(pod, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    own = dig(pod, "spec", "terminationGracePeriodSeconds")
    return max(0, int(30 if own is None else own) if requested is None else requested)


def _held(resource: Resource, obj: View) -> bool:
    """Return whether the object stays for now: it is not being deleted, or has finalizers or a grace period left."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return True
    if resource.name == "namespaces":
        return bool(dig(obj, "spec", "finalizers"))
    return bool(metadata.get("deletionGracePeriodSeconds"))
