"""Server-side apply: field ownership, conflicts, and removal of fields that no manager wants any more.

An object's first server-side apply starts its ownership records; before that, managedFields stay empty. Fields that
exist by then belong to `before-first-apply`, or to kubectl where its last-applied annotation lists them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodesmith_formats.kubernetes.errors import ApiError, FieldProblem, bad_request, invalid
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Clock, Object, View, dig, timestamp
from nodesmith_local.apiserver.storage.crds import schema_of
from nodesmith_local.apiserver.storage.fieldsets import (
    Path,
    Place,
    decoded,
    encoded,
    is_key,
    merged,
    paths_of,
    shown,
    value_at,
    without,
)

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_OWNED = frozenset(
    "name namespace uid creationTimestamp generation resourceVersion managedFields selfLink deletionTimestamp "
    "deletionGracePeriodSeconds".split()
)


@dataclass(frozen=True, slots=True)
class Owner:
    """One entry of managedFields."""

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    paths: frozenset[Path]

    @property
    def identity(self) -> tuple[str, str, str]:
        """The key by which two entries belong to the same manager."""
        return self.manager, self.operation, self.subresource


def applied(
    resource: Resource, old: View | None, config: Object, manager: str, force: bool, now: Clock
) -> Object:
    """Return the object after `manager` applied `config`. Raises ApiError 422 without a manager, 409 for conflicts."""
    if not manager:
        missing = FieldProblem(
            "fieldManager", "FieldValueRequired", "Required value: is required for apply patch"
        )
        raise invalid("PatchOptions.meta.k8s.io", "", [missing])
    if "managedFields" in (config.get("metadata") or {}):
        raise bad_request("metadata.managedFields must be nil")
    place = _place(resource)
    applied_paths = frozenset(paths_of(_owned_part(config), place))
    mine = Owner(manager, "Apply", "", resource.api_version(), timestamp(now()), applied_paths)
    if old is None:
        return _with_owners(config, [mine])
    owners = _owners(old) or list(_first_owners(resource, old, manager))
    other_owners = [owner for owner in owners if owner.identity != mine.identity]
    previous_paths = next((owner.paths for owner in owners if owner.identity == mine.identity), frozenset())
    conflicts = [(owner, path) for owner in other_owners for path in sorted(owner.paths & applied_paths)
                 if value_at(old, path, place) != value_at(config, path, place)]  # fmt: skip
    if conflicts and not force:
        raise _conflict(conflicts)
    forced_paths = {path for _, path in conflicts}
    other_owners = [replace(owner, paths=owner.paths - forced_paths) for owner in other_owners]
    new: Object = dict(old)
    for path in _unwanted(previous_paths, applied_paths, other_owners):
        new = without(new, path, place)
    new = merged(new, config, place)
    unchanged = next(
        (owner for owner in owners if owner.identity == mine.identity and owner.paths == applied_paths), None
    )
    if unchanged and {**new, "metadata": {**new["metadata"], "managedFields": None}} == {
        **old,
        "metadata": {**old["metadata"], "managedFields": None},
    }:
        mine = unchanged
    return _with_owners(new, [*other_owners, mine])


def noted(resource: Resource, old: View, new: Object, manager: str, subresource: str, now: Clock) -> Object:
    """Return `new` with the fields that an ordinary update changed assigned to `manager`.

    Nothing is recorded unless `old` already has ownership records.
    """
    if not dig(old, "metadata", "managedFields"):
        if not any(dig(new, "metadata", "managedFields") or ()):
            new["metadata"].pop("managedFields", None)
        return new
    managed_fields = new["metadata"].get("managedFields")
    if managed_fields is not None and managed_fields != old["metadata"]["managedFields"]:
        return (
            new
            if any(managed_fields)
            else {**new, "metadata": {k: v for k, v in new["metadata"].items() if k != "managedFields"}}
        )
    place, owners = _place(resource), _owners(old)
    before, after = (frozenset(paths_of(_owned_part(state), place)) for state in (old, new))
    changed = frozenset(path for path in after if value_at(old, path, place) != value_at(new, path, place))
    removed_paths = before - after
    if not changed and not removed_paths:
        return _with_owners(new, owners)
    identity = (manager or "unknown", "Update", subresource)
    updated_owners = [
        _after_loss(owner, removed_paths if owner.identity == identity else removed_paths | changed)
        for owner in owners
    ]
    mine = next((owner for owner in updated_owners if owner.identity == identity), None)
    paths = (mine.paths if mine else frozenset()) | changed
    updated = Owner(*identity, resource.api_version(), timestamp(now()), paths)
    return _with_owners(new, [*(owner for owner in updated_owners if owner is not mine), updated])


def _after_loss(owner: Owner, lost_paths: frozenset[Path]) -> Owner:
    return replace(owner, paths=owner.paths - lost_paths)


def _place(resource: Resource) -> Place:
    return Place(schema_of(resource))


def _owned_part(obj: View) -> Object:
    content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _NOT_OWNED}
    return {**content, "metadata": metadata} if metadata else content


def _unwanted(
    before: frozenset[Path], applied_paths: frozenset[Path], other_owners: Iterable[Owner]
) -> Iterator[Path]:
    """Yield the paths that this manager applied before, does not apply now, and no other manager owns.

    A path comes before the paths inside it, and those are left out.
    """
    owned = applied_paths.union(*(owner.paths for owner in other_owners))
    removed: list[Path] = []
    for path in sorted(before - owned, key=len):
        contains_owned = any(other[: len(path)] == path for other in owned)
        is_below_applied = any(
            path[: len(other)] == other and not other[-1].startswith("k:") for other in applied_paths
        )
        is_below_removed = any(path[: len(other)] == other for other in removed)
        if not contains_owned and not is_below_applied and not is_below_removed and not is_key(path):
            removed.append(path)
            yield path


def _owners(obj: View) -> list[Owner]:
    entries = dig(obj, "metadata", "managedFields") or ()
    return [
        Owner(
            manager=entry.get("manager", ""),
            operation=entry.get("operation", "Update"),
            subresource=entry.get("subresource", ""),
            api_version=entry.get("apiVersion", ""),
            time=entry.get("time", ""),
            paths=decoded(entry.get("fieldsV1") or {}),
        )
        for entry in entries
        if entry
    ]


def _first_owners(resource: Resource, old: View, manager: str) -> Iterator[Owner]:
    place, since = _place(resource), old["metadata"]["creationTimestamp"]
    all_paths = frozenset(paths_of(_owned_part(old), place))
    annotation = f"f:{_LAST_APPLIED}"
    text = dig(old, "metadata", "annotations", _LAST_APPLIED)
    own_paths: frozenset[Path] = frozenset()
    if text and manager == "kubectl":
        last: Mapping[str, Any] = json.loads(text)
        own_paths = frozenset(paths_of(_owned_part(last), place)) & all_paths
        yield Owner("kubectl", "Apply", "", resource.api_version(), since, own_paths)
    remaining = frozenset(path for path in all_paths - own_paths if annotation not in path)
    yield Owner("before-first-apply", "Update", "", resource.api_version(), since, remaining)


def _with_owners(obj: Object, owners: Iterable[Owner]) -> Object:
    entries = []
    for owner in sorted((each for each in owners if each.paths), key=lambda each: each.identity):
        entry: Object = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
        }
        entry |= {"time": owner.time, "fieldsType": "FieldsV1", "fieldsV1": encoded(owner.paths)}
        entries.append({**entry, "subresource": owner.subresource} if owner.subresource else entry)
    metadata = {**obj["metadata"], "managedFields": entries}
    return {**obj, "metadata": metadata}


def _conflict(conflicts: list[tuple[Owner, Path]]) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_named(owner)}", "field": shown(path)}
        for owner, path in conflicts
    ]
    if len(conflicts) == 1:
        summary = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        fields: dict[str, list[str]] = {}
        for owner, path in conflicts:
            fields.setdefault(_named(owner), []).append(f"\n- {shown(path)}")
        summary = f"{len(conflicts)} conflicts: "
        summary += "\n".join(f"conflicts with {name}:{''.join(fields[name])}" for name in sorted(fields))
    return ApiError(409, "Conflict", f"Apply failed with {summary}", {"causes": causes})


def _named(owner: Owner) -> str:
    """Return a manager's name as conflict messages show it.

    For a manager that did not apply, the name includes the version and the subresource that it wrote to.
    """
    if owner.operation == "Apply":
        return json.dumps(owner.manager)
    through = f" with subresource {json.dumps(owner.subresource)}" if owner.subresource else ""
    return f"{json.dumps(owner.manager)}{through} using {owner.api_version}"
