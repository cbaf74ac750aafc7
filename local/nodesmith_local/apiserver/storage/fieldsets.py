"""Field sets of server-side apply, as metadata.managedFields holds them (format FieldsV1).

A path is a tuple of steps: `f:name` into an object, `k:{…}` to a list item by its keys, `v:…` to a member of a set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from nodesmith_formats.kubernetes.builtin import Schema
from nodesmith_formats.kubernetes.objects import Object

Path: TypeAlias = tuple[str, ...]

_DEFAULTED = {"protocol": "TCP"}  # list keys that may be omitted


@dataclass(frozen=True, slots=True)
class Place:
    """A position in an object, described by its schema."""

    schema: Schema

    def child(self, key: str) -> Place:
        """Return the place of the field `key`."""
        inner = (self.schema.get("properties") or {}).get(key, self.schema.get("additionalProperties"))
        return Place(inner if isinstance(inner, Mapping) else {})

    def item(self) -> Place:
        """Return the place of an item of this list."""
        items = self.schema.get("items")
        return Place(items if isinstance(items, Mapping) else {})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that identify the items of this list; empty for sets and for lists owned as a whole."""
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())

    @property
    def is_set(self) -> bool:
        """Whether this list is a set of scalars."""
        return self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic(self) -> bool:
        """Whether this object is owned as a whole."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"


def mark_of(item: Any, keys: tuple[str, ...]) -> str:
    """Return the step that leads to a list item."""
    fields = {key: item.get(key, _DEFAULTED.get(key)) for key in sorted(keys)}
    return "k:" + json.dumps(
        {key: value for key, value in fields.items() if value is not None}, separators=(",", ":")
    )


def paths_of(value: Any, place: Place) -> Iterator[Path]:
    """Yield the path of every leaf in `value`, and of every list item."""
    if isinstance(value, dict) and value and not place.is_atomic:
        for key, item in value.items():
            for inner in paths_of(item, place.child(key)):
                yield (f"f:{key}", *inner)
        return
    if isinstance(value, list) and place.keys:
        for item in value:
            mark = mark_of(item, place.keys)
            yield (mark,)
            for inner in paths_of(item, place.item()):
                yield (mark, *inner)
        return
    if isinstance(value, list) and place.is_set:
        yield from ((f"v:{json.dumps(item)}",) for item in value)
        return
    yield ()


def value_at(value: Any, path: Path, place: Place) -> Any:
    """Return the value at `path`, or None if there is none.

    For a path that ends at a list item, return the step to it instead of the item.
    """
    for index, step in enumerate(path):
        if step.startswith("f:"):
            value, place = (value.get(step[2:]) if isinstance(value, dict) else None), place.child(step[2:])
        elif step.startswith("v:"):
            member = json.loads(step[2:])
            return member if isinstance(value, list) and member in value else None
        else:
            keys = place.keys
            value = next((item for item in value or () if mark_of(item, keys) == step), None)
            if index == len(path) - 1:
                return None if value is None else step
            place = place.item()
        if value is None:
            return None
    return value


def without(value: Any, path: Path, place: Place) -> Any:
    """Return `value` without the part at `path`; objects and lists that become empty are removed too."""
    step, inner_path = path[0], path[1:]
    if step.startswith("f:") and isinstance(value, dict) and step[2:] in value:
        key = step[2:]
        inner = without(value[key], inner_path, place.child(key)) if inner_path else None
        remaining = {name: item for name, item in value.items() if name != key}
        return remaining if inner in (None, {}, []) else {**value, key: inner}
    if step.startswith("v:") and isinstance(value, list):
        return [item for item in value if item != json.loads(step[2:])]
    if step.startswith("k:") and isinstance(value, list):
        keys = place.keys
        changed = [(item, mark_of(item, keys) == step) for item in value]
        if not inner_path:
            return [item for item, is_affected in changed if not is_affected]
        return [
            without(item, inner_path, place.item()) if is_affected else item for item, is_affected in changed
        ]
    return value


def merged(live: Any, config: Any, place: Place) -> Any:
    """Return `config` merged over `live`: objects and keyed lists merge, sets unite, anything else is replaced."""
    if isinstance(config, dict) and isinstance(live, dict) and not place.is_atomic:
        laid = {key: merged(live.get(key), item, place.child(key)) for key, item in config.items()}
        return {**live, **laid}
    if isinstance(config, list) and isinstance(live, list) and place.keys:
        keys = place.keys
        items = {mark_of(item, keys): item for item in live}
        for item in config:
            mark = mark_of(item, keys)
            items[mark] = merged(items.get(mark), item, place.item())
        return list(items.values())
    if isinstance(config, list) and isinstance(live, list) and place.is_set:
        return [*live, *(item for item in config if item not in live)]
    return config


def encoded(paths: Iterable[Path]) -> Object:
    """Return a set of paths as FieldsV1."""
    tree: Object = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        if path and path[-1].startswith("k:"):
            node["."] = {}
    return tree


def decoded(tree: Mapping[str, Any]) -> frozenset[Path]:
    """Return the paths that FieldsV1 describes."""
    paths: set[Path] = set()

    def visit(node: Mapping[str, Any], path: Path) -> None:
        if not node or "." in node:
            paths.add(path)
        for step, inner in node.items():
            if step != ".":
                visit(inner, (*path, step))

    visit(tree, ())
    return frozenset(paths - {()})


def is_key(path: Path) -> bool:
    """Return whether a path leads to one of the keys that identify its list item.

    Those stay as long as the item does.
    """
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:])


def shown(path: Path) -> str:
    """Format a path as conflict messages show it: `.spec.containers[name="web"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = json.loads(step[2:])
            text += f"[{','.join(f'{key}={json.dumps(value)}' for key, value in keys.items())}]"
        else:
            text += f"[={step[2:]}]"
    return text
