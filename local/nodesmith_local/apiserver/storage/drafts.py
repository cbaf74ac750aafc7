"""How an object is decoded, defaulted, split by subresource and checked on its way into the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodesmith_formats.kubernetes import defaults, schemas, validation
from nodesmith_formats.kubernetes.builtin import Schema, object_schema
from nodesmith_formats.kubernetes.errors import Undecodable, bad_request, conflict, invalid, modified
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Clock, Object, View, name_of
from nodesmith_local.apiserver.storage import crds
from nodesmith_local.apiserver.storage.apply import noted
from nodesmith_local.apiserver.storage.celrules import rule_problems

KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_NOT_SPEC = ("metadata", "status", "apiVersion", "kind")


@dataclass(frozen=True, slots=True)
class Write:
    """The options of a write: manager, dry run, force, and strictness about unknown fields.

    `field_validation` is Ignore, Warn or Strict. Warnings for the caller are appended to `warnings`.
    """

    manager: str = ""
    dry_run: bool = False
    force: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


def decoded(served: Resource, schema: Schema, obj: Object, write: Write) -> Object:
    """Return the object as a typed decoder reads it, without unknown fields.

    Raises Undecodable for wrong types in built-in kinds and in metadata, and for unknown fields if `write` asks for
    Strict.
    """
    dropped: list[str] = []
    pruned: Object = schemas.prune(schema, obj, dropped)
    # Built-in kinds are decoded whole. For custom kinds only the metadata is; their schema checks the rest.
    typed: Schema = {"type": "object", "properties": object_schema()} if served.custom else schema
    for misfit in schemas.misfits(typed, pruned):
        raise Undecodable(served.kind, served.versions[0], misfit)
    unknown = [f'unknown field "{path}"' for path in dropped]
    if unknown and write.field_validation == "Strict":
        detail = f"strict decoding error: {', '.join(unknown)}"
        raise Undecodable(served.kind, served.versions[0], detail, dropped)
    if write.field_validation == "Warn":
        write.warnings.extend(warning for warning in unknown if warning not in write.warnings)
    return pruned


def completed(served: Resource, obj: Object, write: Write, now: Clock) -> Object:
    """Return the object with apiVersion and kind, without unknown fields, with defaults. Raises ApiError 400."""
    version = str(obj.get("apiVersion") or "").rpartition("/")[2]
    schema = crds.schema_of(served, version)
    obj = decoded(served, schema, obj, write)
    obj = schemas.with_defaults(schema, obj) if served.custom else defaults.with_defaults(served.kind, obj)
    if served.name == crds.PLURAL and not any(crds.problems_of(obj)):
        obj = crds.established(obj, now)
    return {**obj, "apiVersion": served.api_version(), "kind": served.kind}


def changed(
    served: Resource, old: View, new: Object, subresource: str, write: Write, now: Clock, *, tracked: bool
) -> Object:
    """Return the object to store when `new` updates `old`. Raises ApiError 400, 409 or 422.

    The subresource `status` changes only the status, and an empty subresource leaves the status alone. Any other
    (binding, resize, scale) takes `new` as it is. `tracked` means that managedFields are already up to date.
    """
    _must_be_the_same(served, old, new)
    new = _separated(served, old, new, subresource)
    new["metadata"] = _kept_metadata(served, old, new["metadata"])
    new = completed(served, new, write, now)
    if served.generation and subresource != "binding" and _spec_part(new) != _spec_part(old):
        new["metadata"]["generation"] = int(old["metadata"].get("generation", 0)) + 1
    if not tracked:
        new = noted(served, old, new, write.manager, subresource, now)
    check(served, old if subresource in ("", "status") else None, new)
    return new


def check(served: Resource, old: View | None, new: View) -> None:
    """Check an object against the rules of its kind and against `old`. Raises ApiError 422 with every problem."""
    problems = list(validation.problems_of(served, new))
    if served.name == crds.PLURAL:
        problems += crds.problems_of(new)
    if served.custom:
        schema = crds.schema_of(served)
        problems += schemas.problems_of(schema, new)
        problems += rule_problems(schema, new, old, problems)
    if old is not None:
        problems += validation.change_problems(served, old, new)
    if problems:
        raise invalid(served.qualified_kind, name_of(new), problems)


def _must_be_the_same(served: Resource, old: View, new: Object) -> None:
    metadata, current = new.get("metadata"), old["metadata"]
    if not isinstance(metadata, dict):
        raise bad_request(f"{served.kind}: metadata is missing or not an object")
    version, uid, name = (metadata.get(key) for key in ("resourceVersion", "uid", "name"))
    if version and version != current["resourceVersion"]:
        raise modified(served.name, current["name"])
    if uid and uid != current["uid"]:
        detail = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
        raise conflict(served.name, current["name"], detail)
    if name != current["name"]:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({current['name']})"
        )


def _separated(served: Resource, old: View, new: Object, subresource: str) -> Object:
    if subresource == "status":
        metadata = old["metadata"] if served.custom else new["metadata"]
        return {**old, "metadata": dict(metadata), "status": new.get("status") or {}}
    if subresource or not served.status:
        return {**new, "metadata": dict(new["metadata"])}
    separated = {key: value for key, value in new.items() if key != "status"}
    if "status" in old:
        separated["status"] = old["status"]
    return {**separated, "metadata": dict(new["metadata"])}


def _kept_metadata(served: Resource, old: View, metadata: Object) -> Object:
    current = old["metadata"]
    for name in KEPT:
        metadata.pop(name, None)
    metadata |= {name: current[name] for name in KEPT if name in current}
    metadata["resourceVersion"] = current["resourceVersion"]
    if served.namespaced:
        metadata["namespace"] = current["namespace"]
    return metadata


def _spec_part(obj: View) -> Object:
    return {key: value for key, value in obj.items() if key not in _NOT_SPEC}
