"""The API's verbs on objects: validation, the fields that the server adds, and refusals.

Works in process as well as behind HTTP. Returned objects are shared; do not change them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, assert_never

from nodesmith_formats.kubernetes import pods
from nodesmith_formats.kubernetes.errors import (
    ApiError,
    Undecodable,
    already_exists,
    bad_request,
    internal,
    invalid,
    invalid_value,
    not_found,
)
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Clock, Object, View, clone, dig, name_of, namespace_of
from nodesmith_formats.kubernetes.selectors import field_matcher, label_matcher
from nodesmith_local.apiserver.storage import crds
from nodesmith_local.apiserver.storage.apply import applied
from nodesmith_local.apiserver.storage.creation import created_object
from nodesmith_local.apiserver.storage.deletion import DeleteOptions, Deletions
from nodesmith_local.apiserver.storage.drafts import Write, changed, check, decoded
from nodesmith_local.apiserver.storage.history import History, Key, Revision, Watcher
from nodesmith_local.apiserver.storage.patches import (
    check_object,
    json_patch,
    merge_patch,
    printed,
    strategic_merge,
)
from nodesmith_local.apiserver.storage.registry import Registry

PatchKind: TypeAlias = Literal["merge", "strategic", "json"]


class Store:
    """The cluster's objects, under the rules of the API server. Thread-safe."""

    def __init__(self, now: Clock, definitions: Iterable[Object] = ()) -> None:
        """Create the namespaces and priority classes of every cluster, and the CRDs in `definitions`."""
        self.now = now
        self.history = History()
        self.registry = Registry()
        self._deletions = Deletions(self.history, self.registry, now)
        for namespace in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create("namespaces", {"metadata": {"name": namespace}})
        for name, value in pods.SYSTEM_PRIORITIES.items():
            self.create("priorityclasses", {"metadata": {"name": name}, "value": value})
        for definition in definitions:
            self.create(crds.PLURAL, definition)

    # Reading

    def get(self, resource: str | Resource, name: str, namespace: str = "") -> View:
        """Return one object. Raises ApiError 404."""
        return self.revision(self.resource(resource), name, namespace).object

    def find(self, resource: str | Resource, name: str, namespace: str = "") -> View | None:
        """Return one object, or None where there is none."""
        served = self.resource(resource)
        revision = self.history.find(served.name, (namespace if served.namespaced else "", name))
        return revision.object if revision else None

    def list(
        self, resource: str | Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[View]:
        """Return the objects that match the selectors, sorted by namespace and name."""
        return [
            revision.object for revision in self.revisions(self.resource(resource), namespace, labels, fields)
        ]

    def revision(self, resource: Resource, name: str, namespace: str = "") -> Revision:
        """Return one object with its cached JSON. Raises ApiError 404."""
        current = self.history.find(resource.name, (namespace if resource.namespaced else "", name))
        if current is None:
            raise not_found(resource.name, name)
        return current

    def revisions(
        self, resource: Resource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Revision]:
        """Return the matching objects with their cached JSON."""
        tests = [test for test in (label_matcher(labels), field_matcher(resource, fields)) if test]
        candidates = self.history.scan(resource.name, namespace)
        return (
            [revision for revision in candidates if all(test(revision.object) for test in tests)]
            if tests
            else candidates
        )

    def watch(self, resource: str | Resource, namespace: str = "", since: int | None = None) -> Watcher:
        """Watch a resource from now on, or after a revision. Raises ApiError 410."""
        return self.history.watch(self.resource(resource).name, namespace, since)

    def resource(self, resource: str | Resource) -> Resource:
        """Return a resource by its plural. Raises LookupError."""
        return resource if isinstance(resource, Resource) else self.registry.named(resource)

    # Writing

    def create(self, resource: str | Resource, obj: View, write: Write | None = None) -> View:
        """Create an object. Raises ApiError 400, 403, 404 (namespace), 409 or 422."""
        served, write = self.resource(resource), write or Write()
        with self.history.lock:
            new = created_object(self.history, served, clone(dict(obj)), write, self.now)
            key = (namespace_of(new), name_of(new))
            if self.history.find(served.name, key):
                raise already_exists(served.name, key[1])
            check(served, None, new)
            if write.dry_run:
                return new
            stored = self.history.put(served.name, new).object
            if served.name == crds.PLURAL:
                self.registry.add(crds.resource_of(stored))
            self._deletions.adopt(served, stored)
            return stored

    def update(
        self, resource: str | Resource, obj: View, *, subresource: str = "", write: Write | None = None
    ) -> View:
        """Replace an object, or only its status, and return the result. Raises ApiError 404, 409 or 422."""
        served = self.resource(resource)
        with self.history.lock:
            old = self.revision(served, name_of(obj), namespace_of(obj))
            return self.replace(served, old, clone(dict(obj)), subresource, write or Write())

    def patch(
        self,
        resource: str | Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        kind: PatchKind = "merge",
        write: Write | None = None,
    ) -> View:
        """Patch an object, or only its status, and return the result. Raises ApiError 400, 404, 409, 415 or 422."""
        served = self.resource(resource)
        if served.custom and kind == "strategic":
            accepted = (
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            )
            message = (
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
            raise ApiError(415, "UnsupportedMediaType", message)
        with self.history.lock:
            old = self.revision(served, name, namespace)
            new = _patched(served, kind, old.object, patch)
            if not isinstance(new, dict):
                raise bad_request("the patched document is not an object")
            _check_uid(served, old.object, new)
            try:
                return self.replace(served, old, new, subresource, write or Write())
            except Undecodable as error:
                printed_patch = (
                    printed(patch) if kind == "strategic" else json.dumps(new, separators=(",", ":"))
                )
                raise invalid(
                    "", "", [invalid_value("patch", printed_patch, error.decoder_message)]
                ) from error

    def apply(
        self, resource: str | Resource, obj: View, *, subresource: str = "", write: Write | None = None
    ) -> tuple[View, bool]:
        """Apply a manifest server-side; return the object and whether it is new. Raises ApiError, 409 for conflicts."""
        served, write = self.resource(resource), write or Write()
        with self.history.lock:
            namespace = (namespace_of(obj) or "default") if served.namespaced else ""
            old = self.history.find(served.name, (namespace, name_of(obj)))
            if old is None and subresource:
                raise not_found(served.name, name_of(obj))
            config = _declared(served, clone(dict(obj)))
            new = applied(served, old.object if old else None, config, write.manager, write.force, self.now)
            if old is None:
                return self.create(served, new, write), True
            return self.replace(served, old, new, subresource, write, tracked=True), False

    def delete(
        self,
        resource: str | Resource,
        name: str,
        namespace: str = "",
        options: DeleteOptions = DeleteOptions(),  # noqa: B008 frozen
    ) -> tuple[View, bool]:
        """Delete an object; return its last state and whether it is gone now. Raises ApiError 404 or 409."""
        served = self.resource(resource)
        return self._deletions.delete(served, (namespace if served.namespaced else "", name), options)

    def replace(
        self,
        served: Resource,
        old: Revision,
        new: Object,
        subresource: str = "",
        write: Write | None = None,
        *,
        tracked: bool = False,
    ) -> View:
        """Replace `old` by `new` under all rules of an update. The caller holds the history's lock.

        `drafts.changed` documents what each subresource accepts.
        """
        write = write or Write()
        new = changed(served, old.object, new, subresource, write, self.now, tracked=tracked)
        if write.dry_run or new == old.object:
            return new
        stored, is_gone = self._deletions.settle(served, old, new)
        if served.name == crds.PLURAL and not is_gone:
            self.registry.add(crds.resource_of(stored))
        return stored


def _declared(served: Resource, config: Object) -> Object:
    """Decode an applied configuration. Unknown fields are an error here, not a warning."""
    try:
        return decoded(served, crds.schema_of(served), config, Write(field_validation="Strict"))
    except Undecodable as error:
        place = f"{namespace_of(config)}/{name_of(config)}"
        kind_name = f"{served.group}/{served.versions[0]}, Kind={served.kind}"
        detail = (
            f".{error.unknown[0]}: field not declared in schema" if error.unknown else error.decoder_message
        )
        raise internal(f"failed to create typed patch object ({place}; {kind_name}): {detail}") from error


def _check_uid(served: Resource, old: View, new: View) -> None:
    uid = dig(new, "metadata", "uid")
    if uid and uid != old["metadata"]["uid"]:
        problem = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid(served.qualified_kind, name_of(old), [problem])


def _patched(served: Resource, kind: PatchKind, obj: View, patch: Any) -> Any:
    if kind != "json":
        check_object(patch)
    match kind:
        case "merge":
            return merge_patch(obj, patch)
        case "strategic":
            return strategic_merge(obj, patch, crds.schema_of(served))
        case "json":
            return json_patch(obj, patch)
        case _:
            assert_never(kind)


__all__ = ["DeleteOptions", "Key", "PatchKind", "Store", "Write"]
