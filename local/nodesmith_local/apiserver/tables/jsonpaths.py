"""The subset of kubectl's JSONPath that printer columns use.

`.spec.a`, `.metadata.labels.with\\.dots/and-slash`, `['key']`, `[0]`, `[*]` and `[?(@.type=="Ready")]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

Step: TypeAlias = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\\])+)"""
    r"""|\[(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]"""
    r"""|\[(?P<index>-?\d+)\]"""
    r"""|\[(?P<all>\*)\]"""
    r"""|\[\?\(\s*@(?P<field>(?:\.(?:\\.|[^.\[\\=!\s])+)+)\s*(?P<op>==|!=)\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\s*\)\]"""
)


def values_at(obj: Any, path: str) -> list[Any]:
    """Return all values that `path` finds in `obj`; empty for a path outside this subset."""
    values = [obj]
    for step in _steps(path):
        values = [inner for value in values for inner in step(value)]
    return values


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[Step, ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    text = text if text.startswith((".", "[")) else f".{text}"
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return (lambda _: (),)
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["index"] is not None:
        index = int(match["index"])
        return lambda value: value[index : index + 1 or None] if isinstance(value, list) else ()
    if match["all"]:
        return _inner
    if match["field"]:
        field, expected, equal = match["field"], match["value"], match["op"] == "=="
        return lambda value: (
            item
            for item in _inner(value)
            if (str(next(iter(values_at(item, field)), "")) == expected) == equal
        )
    key = match["single"] or match["double"] or re.sub(r"\\(.)", r"\1", match["name"] or "")
    return lambda value: (value[key],) if isinstance(value, Mapping) and key in value else ()


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, Mapping):
        yield from value.values()
