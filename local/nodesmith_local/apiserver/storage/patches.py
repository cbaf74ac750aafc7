"""The three patch formats: JSON patch (RFC 6902), merge patch (RFC 7386), and strategic merge."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodesmith_formats.kubernetes.builtin import Schema
from nodesmith_formats.kubernetes.errors import ApiError, bad_request
from nodesmith_formats.kubernetes.objects import clone


def merge_patch(value: Any, patch: Any) -> Any:
    """Return `value` after a merge patch; parts that the patch does not name are shared with `value`."""
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
    """Return `value` after the operations, applied in order.

    Raises ApiError 400 for a malformed patch, 422 for one that does not fit the document.
    """
    if not isinstance(operations, list):
        raise _no_patch(operations, "[]handlers.jsonPatchOp")
    document = clone(value)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request(f"a JSON patch operation needs op and path, found {operation!r}")
        document = _operate(document, operation)
    return document


def strategic_merge(value: Any, patch: Any, schema: Schema) -> Any:
    """Return `value` after a strategic merge patch; `schema` defines which lists merge, and by which key.

    Supports the directives $patch, $retainKeys, $deleteFromPrimitiveList and $setElementOrder.
    """
    if isinstance(patch, dict):
        return _merge_object(value, patch, schema)
    if isinstance(patch, list):
        return _merge_list(value if isinstance(value, list) else [], patch, schema)
    return patch


def _merge_object(value: Any, patch: Mapping[str, Any], schema: Schema) -> Any:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    merged = dict(value) if isinstance(value, Mapping) and directive != "replace" else {}
    if "$retainKeys" in patch:
        merged = {key: item for key, item in merged.items() if key in patch["$retainKeys"]}
    for key, change in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name) or () if item not in change]
        elif change is None:
            merged.pop(key, None)
        elif not key.startswith("$"):
            merged[key] = strategic_merge(merged.get(key), change, _inside(schema, key))
    return _reordered(merged, patch, schema)


def _reordered(merged: dict[str, Any], patch: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    for key, order in patch.items():
        name = key.partition("/")[2]
        if key.startswith("$setElementOrder/") and isinstance(merged.get(name), list):
            mark = _mark(_inside(schema, name))
            places = {mark(entry): index for index, entry in enumerate(order)}
            merged[name] = sorted(merged[name], key=lambda item: places.get(mark(item), len(places)))
    return merged


def _merge_list(value: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    plain = [clone(item) for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    replaces = any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch)
    if replaces or "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        return plain
    key = schema.get("x-kubernetes-patch-merge-key")
    if key is None:
        return [*value, *(item for item in patch if item not in value)]
    items = schema.get("items") or {}
    merged = list(value)
    for change in patch:
        if not isinstance(change, dict) or key not in change:
            raise bad_request(f"map: {change!r} does not contain declared merge key: {key}")
        index = next((index for index, item in enumerate(merged) if item.get(key) == change[key]), None)
        if change.get("$patch") == "delete":
            merged = [item for item in merged if item.get(key) != change[key]]
        elif index is None:
            merged.append(_merge_object(None, change, items))
        else:
            merged[index] = _merge_object(merged[index], change, items)
    return merged


def _inside(schema: Schema, key: str) -> Schema:
    inner = (schema.get("properties") or {}).get(key, schema.get("additionalProperties"))
    return inner if isinstance(inner, Mapping) else {}


def _mark(schema: Schema) -> Callable[[Any], Any]:
    """Return the function that identifies the items of a list."""
    key = schema.get("x-kubernetes-patch-merge-key")
    return lambda item: item.get(key) if isinstance(item, Mapping) and key else item


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
            moved_value = clone(_resolve(document, source))
            return _insert(_without(document, source) if op == "move" else document, path, moved_value)
        case "test":
            if _written(_found(document, path)) != _written(operation["value"]):
                raise _unfit(f"testing value {operation['path']} failed")
            return document
        case _:
            raise _unfit(f"unknown operation {op!r}: add, remove, replace, move, copy or test")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise bad_request(f"JSON pointer {text!r} must start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _resolve(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and (index := _index(step, len(document))) is not None:
            document = document[index]
        else:
            raise _unfit(f"the path /{'/'.join(path)} does not exist")
    return document


def _found(document: Any, path: Sequence[str]) -> Any:
    """Return the value to test. A missing field of an existing object equals null."""
    if path:
        parent = _resolve(document, path[:-1])
        if isinstance(parent, dict) and path[-1] not in parent:
            return None
    return _resolve(document, path)


def _insert(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent, step = _resolve(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if step == "-" else _index(step, len(parent) + 1)
        if index is None:
            raise _unfit(f"the index {step!r} does not fit a list of {len(parent)}")
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[step] = value
    else:
        raise _unfit(f"the path /{'/'.join(path)} leads into a value that is not an object")
    return document


def _without(document: Any, path: Sequence[str]) -> Any:
    _resolve(document, path)
    if not path:
        return None
    parent = _resolve(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document


def _index(step: str, length: int) -> int | None:
    """Return the place of a list that a step names, or None if it has none. A negative step counts from the end."""
    if not step.removeprefix("-").isdecimal():
        return None
    index = int(step)
    index += length if index < 0 else 0
    return index if 0 <= index < length else None


def _written(value: Any) -> str:
    """Return a value as JSON, since Python takes 1, 1.0 and true for equal."""
    return json.dumps(value, sort_keys=True)


def check_object(patch: object) -> None:
    """Raise ApiError 400 if a merge patch or a strategic merge patch is not an object."""
    if not isinstance(patch, Mapping):
        raise _no_patch(patch, "map[string]interface {}")


def _no_patch(patch: object, expected: str) -> ApiError:
    names = ((dict, "object"), (list, "array"), (str, "string"), (bool, "bool"))
    type_name = next((name for kind, name in names if isinstance(patch, kind)), "number")
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {type_name} into Go value of type {expected}"
    )


def printed(value: Any) -> str:
    """Format a value as Go prints maps, as messages about refused strategic merges show it."""
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{printed(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(printed, value))}]"
    return "<nil>" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _unfit(message: str) -> ApiError:
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}"
    )
