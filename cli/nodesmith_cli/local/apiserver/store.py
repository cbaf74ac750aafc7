"""The verbs of the API on objects: what a write may do, what the server adds, and what it refuses.

Everything here works in process as well as behind HTTP. Objects given out are shared: read them, do not change them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, assert_never
from uuid import uuid4

import yaml

from nodesmith_cli.local.apiserver import crds, defaults, pods, schemas, validation
from nodesmith_cli.local.apiserver.apply import applied, noted
from nodesmith_cli.local.apiserver.builtin import Schema, object_schema
from nodesmith_cli.local.apiserver.deletion import CRD_CLEANUP, DeleteOptions, Deletions
from nodesmith_cli.local.apiserver.errors import (
    ApiError,
    FieldProblem,
    already_exists,
    bad_request,
    conflict,
    invalid,
    modified,
    not_found,
)
from nodesmith_cli.local.apiserver.history import History, Key, Revision, Watcher
from nodesmith_cli.local.apiserver.kinds import Resource
from nodesmith_cli.local.apiserver.objects import (
    Clock,
    Object,
    View,
    clone,
    name_of,
    namespace_of,
    timestamp,
)
from nodesmith_cli.local.apiserver.patches import json_patch, merge_patch, strategic_merge
from nodesmith_cli.local.apiserver.registry import Registry
from nodesmith_cli.local.apiserver.selectors import field_matcher, label_matcher

PatchKind: TypeAlias = Literal["merge", "strategic", "json"]

_SUFFIX = (
    "bcdfghjklmnpqrstvwxz2456789"  # no vowels and nothing to mistake: the server's own alphabet for names
)
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


@dataclass(frozen=True, slots=True)
class Write:
    """How a write is to be done: who does it, for show only or not, and how strict about unknown fields.

    Warnings for the caller are added to `warnings`.
    """

    manager: str = ""
    dry_run: bool = False
    force: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


class Store:
    """The cluster's objects, with the rules of the API server. Thread-safe."""

    def __init__(self, now: Clock, definitions: Iterable[Path | Object] = ()) -> None:
        """Begin with the namespaces and priority classes of every cluster, and the CRDs given (files or objects)."""
        self.now = now
        self.history = History()
        self.registry = Registry()
        self._deletions = Deletions(self.history, self.registry, now)
        for namespace in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create("namespaces", {"metadata": {"name": namespace}})
        for name, value in pods.SYSTEM_PRIORITIES.items():
            self.create("priorityclasses", {"metadata": {"name": name}, "value": value})
        for definition in definitions:
            for crd in _documents(definition):
                self.create(crds.PLURAL, crd)

    # Reading

    def get(self, resource: str | Resource, name: str, namespace: str = "") -> View:
        """Give one object. Raises ApiError 404."""
        return self.revision(self.resource(resource), name, namespace).object

    def find(self, resource: str | Resource, name: str, namespace: str = "") -> View | None:
        """Give one object, or None."""
        served = self.resource(resource)
        found = self.history.find(served.name, (namespace if served.namespaced else "", name))
        return found.object if found else None

    def list(
        self, resource: str | Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[View]:
        """Give the objects that match the selectors, by namespace and name."""
        return [each.object for each in self.revisions(self.resource(resource), namespace, labels, fields)]

    def revision(self, resource: Resource, name: str, namespace: str = "") -> Revision:
        """Give one object with its JSON. Raises ApiError 404."""
        found = self.history.find(resource.name, (namespace if resource.namespaced else "", name))
        if found is None:
            raise not_found(resource.name, name)
        return found

    def revisions(
        self, resource: Resource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Sequence[Revision]:
        """Give the matching objects with their JSON."""
        tests = [test for test in (label_matcher(labels), field_matcher(resource, fields)) if test]
        found = self.history.scan(resource.name, namespace)
        return [each for each in found if all(test(each.object) for test in tests)] if tests else found

    def watch(self, resource: str | Resource, namespace: str = "", since: int | None = None) -> Watcher:
        """Follow a resource from now on, or from after a revision. Raises ApiError 410."""
        return self.history.watch(self.resource(resource).name, namespace, since)

    def resource(self, resource: str | Resource) -> Resource:
        """Find a resource by its plural. Raises LookupError."""
        return resource if isinstance(resource, Resource) else self.registry.named(resource)

    # Writing

    def create(self, resource: str | Resource, obj: View, write: Write | None = None) -> View:
        """Create an object. Raises ApiError 400, 403, 404 (namespace), 409 or 422."""
        served, write = self.resource(resource), write or Write()
        with self.history.lock:
            new = self._new(served, clone(dict(obj)), write)
            key = (namespace_of(new), name_of(new))
            if self.history.find(served.name, key):
                raise already_exists(served.name, key[1])
            self._check(served, None, new)
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
        """Replace an object, or only its status. Raises ApiError 404, 409 or 422."""
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
        """Patch an object, or only its status. Raises ApiError 400, 404, 409, 415 or 422."""
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
                raise bad_request("the patch leaves no object behind")
            return self.replace(served, old, new, subresource, write or Write())

    def apply(
        self, resource: str | Resource, obj: View, *, subresource: str = "", write: Write | None = None
    ) -> tuple[View, bool]:
        """Apply a manifest server-side; gives the object and whether it is new. Raises ApiError, 409 for conflicts."""
        served, write = self.resource(resource), write or Write()
        with self.history.lock:
            namespace = (namespace_of(obj) or "default") if served.namespaced else ""
            old = self.history.find(served.name, (namespace, name_of(obj)))
            if old is None and subresource:
                raise not_found(served.name, name_of(obj))
            config = self._decoded(served, crds.schema_of(served), clone(dict(obj)), write)
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
        """Delete an object; gives its last state and whether it is gone already. Raises ApiError 404 or 409."""
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
        """Put `new` in the place of `old` with all the rules of an update; hold the history's lock.

        Subresource `status` takes only the status; an empty one leaves it alone; any other name (binding, resize,
        scale) takes `new` as it is.
        """
        write = write or Write()
        self._same_object(served, old, new)
        new = _separated(served, old.object, new, subresource)
        new["metadata"] = _kept_metadata(served, old.object, new["metadata"])
        new = self._completed(served, new, write)
        if served.generation and subresource != "binding" and _spec_part(new) != _spec_part(old.object):
            new["metadata"]["generation"] = int(old.object["metadata"].get("generation", 0)) + 1
        if not tracked:
            new = noted(served, old.object, new, write.manager, subresource, self.now)
        self._check(served, old.object if subresource in ("", "status") else None, new)
        if write.dry_run or new == old.object:
            return new
        stored, gone = self._deletions.settle(served, old, new)
        if served.name == crds.PLURAL and not gone:
            self.registry.add(crds.resource_of(stored))
        return stored

    def _new(self, served: Resource, obj: Object, write: Write) -> Object:
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            raise bad_request(f"{served.kind}: metadata is missing or no object, give it at least a name")
        if served.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
            self._check_namespace(served, metadata)
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generated(served, metadata)
        if not metadata.get("name"):
            problem = FieldProblem(
                "metadata.name", "FieldValueRequired", "Required value: name or generateName is required"
            )
            raise invalid(served.qualified_kind, "", [problem])
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        for name in _KEPT:
            metadata.pop(name, None)
        metadata |= {"uid": str(uuid4()), "creationTimestamp": timestamp(self.now())}
        if served.generation:
            metadata["generation"] = 1
        if served.status and served.kind != "Node":
            obj.pop("status", None)
        if served.name == crds.PLURAL:
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CRD_CLEANUP]
        obj = self._completed(served, obj, write)
        return obj if served.custom else self._born(served, obj)

    def _born(self, served: Resource, obj: Object) -> Object:
        if served.kind == "Pod" and isinstance(obj.get("spec"), dict):
            classes = {name_of(each): each for each in self.list("priorityclasses")}
            return pods.admitted(obj, classes)
        return defaults.at_birth(served.kind, obj)

    def _completed(self, served: Resource, obj: Object, write: Write) -> Object:
        """Give the object with its kind on it, without unknown fields, with defaults. Raises ApiError 400."""
        version = str(obj.get("apiVersion") or "").rpartition("/")[2]
        schema = crds.schema_of(served, version)
        obj = self._decoded(served, schema, obj, write)
        obj = (
            schemas.with_defaults(schema, obj) if served.custom else defaults.with_defaults(served.kind, obj)
        )
        if served.name == crds.PLURAL and not any(crds.problems_of(obj)):
            obj = crds.established(obj, self.now)
        return {**obj, "apiVersion": served.api_version(), "kind": served.kind}

    def _decoded(self, served: Resource, schema: Schema, obj: Object, write: Write) -> Object:
        """Give the object as a typed decoder would: unknown fields are dropped, wrong types of core kinds refused."""
        dropped: list[str] = []
        kept: Object = schemas.prune(schema, obj, dropped)
        refused = f'{served.kind} in version "{served.versions[0]}" cannot be handled as a {served.kind}: '
        for misfit in schemas.misfits(_decodable_part(served, schema), kept):
            raise bad_request(refused + misfit)
        told = [f'unknown field "{path}"' for path in dropped]
        if told and write.field_validation == "Strict":
            raise bad_request(f"{refused}strict decoding error: {', '.join(told)}")
        if write.field_validation == "Warn":
            write.warnings.extend(each for each in told if each not in write.warnings)
        return kept

    def _check(self, served: Resource, old: View | None, new: View) -> None:
        problems = list(validation.problems_of(served, new))
        if served.name == crds.PLURAL:
            problems += crds.problems_of(new)
        if served.custom:
            problems += schemas.problems_of(crds.schema_of(served), new)
        if old is not None:
            problems += validation.change_problems(served, old, new)
        if problems:
            raise invalid(served.qualified_kind, name_of(new), problems)

    def _check_namespace(self, served: Resource, metadata: View) -> None:
        namespace = self.find("namespaces", metadata["namespace"])
        if namespace is None:
            raise not_found("namespaces", metadata["namespace"])
        if "deletionTimestamp" in namespace["metadata"]:
            where = metadata["namespace"]
            why = f"unable to create new content in namespace {where} because it is being terminated"
            raise ApiError(
                403, "Forbidden", f'{served.name} "{metadata.get("name", "")}" is forbidden: {why}'
            )

    def _generated(self, served: Resource, metadata: View) -> str:
        while True:
            name = str(metadata["generateName"])[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
            if not self.history.find(served.name, (metadata.get("namespace") or "", name)):
                return name

    def _same_object(self, served: Resource, old: Revision, new: Object) -> None:
        metadata, current = new.get("metadata"), old.object["metadata"]
        if not isinstance(metadata, dict):
            raise bad_request(f"{served.kind}: metadata is missing or no object")
        given = metadata.get("resourceVersion")
        if given and given != current["resourceVersion"]:
            raise modified(served.name, current["name"])
        if metadata.get("uid") and metadata["uid"] != current["uid"]:
            given, found = metadata["uid"], current["uid"]
            detail = f"Precondition failed: UID in precondition: {given}, UID in object meta: {found}"
            raise conflict(served.name, current["name"], detail)
        if metadata.get("name") != current["name"]:
            given, found = metadata.get("name"), current["name"]
            raise bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({found})"
            )


def _patched(served: Resource, kind: PatchKind, obj: View, patch: Any) -> Any:
    match kind:
        case "merge":
            return merge_patch(obj, patch)
        case "strategic":
            return strategic_merge(obj, patch, crds.schema_of(served))
        case "json":
            return json_patch(obj, patch)
        case _:
            assert_never(kind)


def _decodable_part(served: Resource, schema: Schema) -> Schema:
    """Core kinds are decoded whole; of custom ones only the metadata, the rest is their schema's affair."""
    return {"type": "object", "properties": object_schema()} if served.custom else schema


def _separated(served: Resource, old: View, new: Object, subresource: str) -> Object:
    if subresource == "status":
        metadata = old["metadata"] if served.custom else new["metadata"]
        return {**old, "metadata": dict(metadata), "status": new.get("status") or {}}
    if subresource or not served.status:
        return {**new, "metadata": dict(new["metadata"])}
    kept = {key: value for key, value in new.items() if key != "status"}
    if "status" in old:
        kept["status"] = old["status"]
    return {**kept, "metadata": dict(new["metadata"])}


def _kept_metadata(served: Resource, old: View, metadata: Object) -> Object:
    current = old["metadata"]
    for name in _KEPT:
        metadata.pop(name, None)
    metadata |= {name: current[name] for name in _KEPT if name in current}
    metadata["resourceVersion"] = current["resourceVersion"]
    if served.namespaced:
        metadata["namespace"] = current["namespace"]
    return metadata


def _spec_part(obj: View) -> Object:
    return {
        key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")
    }


def _documents(definition: Path | Object) -> list[Object]:
    if isinstance(definition, Path):
        loaded = yaml.safe_load_all(definition.read_text())
        return [each for each in loaded if each and each.get("kind") == "CustomResourceDefinition"]
    return [definition]


__all__ = ["DeleteOptions", "Key", "PatchKind", "Store", "Write"]
