"""The three classic patches: JSON (RFC 6902), merge (RFC 7386) and Kubernetes' strategic merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith_cli.local.apiserver.errors import ApiError, bad_request
from nodesmith_cli.local.apiserver.objects import clone

# Lists that a strategic merge merges by a key: the field's name → the key of its items. Where one name means
# different lists (`ports`), the first key that the items carry decides.
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_MERGED_SETS = frozenset({"finalizers", "podCIDRs"})


def merge_patch(value: Any, patch: Any) -> Any:
    """Apply a merge patch; parts that the patch does not name are shared with `value`."""
    if not isinstance(patch, dict):
        return clone(patch)
    merged = dict(value) if isinstance(value, Mapping) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), change)
    return merged


def json_patch(value: Any, operations: object) -> Any:
    """Apply the operations in order. Raises ApiError 400 for a bad one, 422 for one that does not fit."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    document = clone(value)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request(f"a JSON patch operation needs op and path, found {operation!r}")
        document = _operate(document, operation)
    return document


def strategic_merge(value: Any, patch: Any, field: str = "") -> Any:
    """Apply a strategic merge patch with the directives $patch, $deleteFromPrimitiveList, $setElementOrder, $retainKeys."""
    if isinstance(patch, dict):
        return _merge_object(value, patch)
    if isinstance(patch, list):
        return _merge_list(value if isinstance(value, list) else [], patch, field)
    return patch


def list_key(field: str, *lists: Sequence[Any]) -> str | None:
    """Give the merge key of the list `field`; None for a list that is replaced as a whole."""
    items = [item for each in lists for item in each if isinstance(item, dict)]
    for key in MERGE_KEYS.get(field, ()):
        if items and all(key in item for item in items):
            return key
    return None


def _merge_object(value: Any, patch: Mapping[str, Any]) -> Any:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: clone(item) for key, item in patch.items() if key != "$patch"}
    merged = dict(value) if isinstance(value, Mapping) else {}
    if directive == "delete":
        return {}
    if "$retainKeys" in patch:
        merged = {key: item for key, item in merged.items() if key in patch["$retainKeys"]}
    for key, change in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name) or () if item not in change]
        elif key.startswith("$"):
            continue
        elif change is None:
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge(merged.get(key), change, key)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.partition("/")[2]
            if isinstance(merged.get(name), list):
                merged[name] = _ordered(merged[name], order, name)
    return merged


def _merge_list(value: list[Any], patch: list[Any], field: str) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [clone(item) for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    if field in _MERGED_SETS:
        return [*value, *(item for item in patch if item not in value)]
    key = list_key(field, value, patch)
    if key is None:
        return [clone(item) for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    merged = {item[key]: item for item in value}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = _merge_object(merged.get(item[key]), item)
    return list(merged.values())


def _ordered(items: list[Any], order: list[Any], field: str) -> list[Any]:
    key = list_key(field, items)
    wanted = [entry.get(key) if isinstance(entry, dict) and key else entry for entry in order]
    places = {mark: at for at, mark in enumerate(wanted)}

    def place(item: Any) -> int:
        mark = item.get(key) if isinstance(item, dict) and key else item
        return places.get(mark, len(places))

    return sorted(items, key=place)


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise bad_request(f"JSON patch operation {op} needs a value")
    match op:
        case "add":
            return _insert(document, path, clone(operation["value"]))
        case "remove":
            return _without(document, path)
        case "replace":
            _resolve(document, path)
            return (
                _insert(_without(document, path), path, clone(operation["value"]))
                if path
                else operation["value"]
            )
        case "move" | "copy":
            source = _pointer(str(operation.get("from", "")))
            moved = clone(_resolve(document, source))
            return _insert(_without(document, source) if op == "move" else document, path, moved)
        case "test":
            if _resolve(document, path) != operation["value"]:
                raise _unfit(f"testing value {operation['path']} failed")
            return document
        case _:
            raise bad_request(
                f"unknown JSON patch operation {op!r}: add, remove, replace, move, copy or test"
            )


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise bad_request(f"JSON pointer {text!r} must start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _resolve(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            raise _unfit(f"the path /{'/'.join(path)} does not exist")
    return document


def _insert(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent, step = _resolve(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        if step != "-" and not (step.isdecimal() and int(step) <= len(parent)):
            raise _unfit(f"the index {step!r} does not fit a list of {len(parent)}")
        parent.insert(len(parent) if step == "-" else int(step), value)
    elif isinstance(parent, dict):
        parent[step] = value
    else:
        raise _unfit(f"the path /{'/'.join(path)} leads into a value that is no object")
    return document


def _without(document: Any, path: Sequence[str]) -> Any:
    _resolve(document, path)
    if not path:
        return None
    parent = _resolve(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document


def _unfit(message: str) -> ApiError:
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}"
    )
