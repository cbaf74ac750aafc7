"""Sets of fields, as server-side apply keeps them in metadata.managedFields (format FieldsV1).

A path is a tuple of steps: `f:name` into an object, `k:{…}` to a list item by its keys, `v:…` to a member of a set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from nodesmith_cli.local.apiserver.builtin import Schema
from nodesmith_cli.local.apiserver.objects import Object

Path: TypeAlias = tuple[str, ...]

_DEFAULTED = {"protocol": "TCP"}  # list keys that may be left out


@dataclass(frozen=True, slots=True)
class Place:
    """Where in an object we are, by its schema."""

    schema: Schema

    def child(self, key: str) -> Place:
        """Go into the field `key`."""
        inner = (self.schema.get("properties") or {}).get(key, self.schema.get("additionalProperties"))
        return Place(inner if isinstance(inner, Mapping) else {})

    def item(self) -> Place:
        """Go into an item of the list."""
        items = self.schema.get("items")
        return Place(items if isinstance(items, Mapping) else {})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that tell the items of this list apart; empty for sets and for lists owned as a whole."""
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
    """Return the step to a list item."""
    found = {key: item.get(key, _DEFAULTED.get(key)) for key in sorted(keys)}
    return "k:" + json.dumps(
        {key: value for key, value in found.items() if value is not None}, separators=(",", ":")
    )


def paths_of(value: Any, place: Place) -> Iterator[Path]:
    """Yield the path of every leaf in `value`, and of every list item."""
    if isinstance(value, dict) and value and not place.is_atomic:
        for key, item in value.items():
            for rest in paths_of(item, place.child(key)):
                yield (f"f:{key}", *rest)
        return
    if isinstance(value, list) and place.keys:
        for item in value:
            mark = mark_of(item, place.keys)
            yield (mark,)
            for rest in paths_of(item, place.item()):
                yield (mark, *rest)
        return
    if isinstance(value, list) and place.is_set:
        yield from ((f"v:{json.dumps(item)}",) for item in value)
        return
    yield ()


def value_at(value: Any, path: Path, place: Place) -> Any:
    """Return what stands at `path`; None where there is nothing. A list item stands for itself by its mark alone."""
    for at, step in enumerate(path):
        if step.startswith("f:"):
            value, place = (value.get(step[2:]) if isinstance(value, dict) else None), place.child(step[2:])
        elif step.startswith("v:"):
            member = json.loads(step[2:])
            return member if isinstance(value, list) and member in value else None
        else:
            keys = place.keys
            value = next((each for each in value or () if mark_of(each, keys) == step), None)
            if at == len(path) - 1:
                return None if value is None else step
            place = place.item()
        if value is None:
            return None
    return value


def without(value: Any, path: Path, place: Place) -> Any:
    """Return `value` without what stands at `path`; objects and lists that this empties go too."""
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(value, dict) and step[2:] in value:
        key = step[2:]
        inner = without(value[key], rest, place.child(key)) if rest else None
        kept = {name: item for name, item in value.items() if name != key}
        return kept if inner in (None, {}, []) else {**value, key: inner}
    if step.startswith("v:") and isinstance(value, list):
        return [item for item in value if item != json.loads(step[2:])]
    if step.startswith("k:") and isinstance(value, list):
        keys = place.keys
        changed = [(item, mark_of(item, keys) == step) for item in value]
        if not rest:
            return [item for item, hit in changed if not hit]
        return [without(item, rest, place.item()) if hit else item for item, hit in changed]
    return value


def merged(live: Any, config: Any, place: Place) -> Any:
    """Lay `config` over `live`: objects and keyed lists are merged, sets united, all else replaced."""
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
    """Write a set of paths as FieldsV1."""
    tree: Object = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        if path and path[-1].startswith("k:"):
            node["."] = {}
    return tree


def decoded(tree: Mapping[str, Any]) -> frozenset[Path]:
    """Read FieldsV1."""
    found: set[Path] = set()

    def visit(node: Mapping[str, Any], path: Path) -> None:
        if not node or "." in node:
            found.add(path)
        for step, inner in node.items():
            if step != ".":
                visit(inner, (*path, step))

    visit(tree, ())
    return frozenset(found - {()})


def is_key(path: Path) -> bool:
    """Return whether a path leads to one of the keys by which its list item is known.

    Those stay while the item does.
    """
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:])


def shown(path: Path) -> str:
    """Write a path as conflict messages show it: `.spec.containers[name="web"].image`."""
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
