"""The comments of a YAML text, each with its field: the one on the same line, or else the next one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

from nodesmith.model.apimachinery.problems import at

_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*")


class Comment(NamedTuple):
    """The comments on a field: the lines above it, and the end of its own line. `line` counts from 0."""

    field: str
    line: int
    above: tuple[str, ...] = ()
    beside: str = ""


class Comments(NamedTuple):
    """All comments of a text, in order. `below` are the lines after the last field."""

    about: tuple[Comment, ...] = ()
    below: tuple[str, ...] = ()


def comments_of(text: str, node: yaml.Node | None) -> Comments:
    """Return the comments of one document. `node` is its root, with line marks."""
    if node is None or "#" not in text:
        return Comments()
    lines = text.split("\n")
    beside, alone = _comment_lines(text, lines)
    fields = _fields_by_line(node)
    comments: list[Comment] = []
    above: list[str] = []
    for number, line in enumerate(lines):
        if number in fields:
            if any(above) or number in beside:
                comments.append(Comment(fields[number], number, tuple(above), beside.get(number, "")))
            above = []
        elif number in alone or not line.strip():
            above.append(line.strip())
        elif number in beside:
            above.append(beside[number])
    return Comments(tuple(comments), tuple(above) if any(above) else ())


def _fields_by_line(node: yaml.Node) -> dict[int, str]:
    """Return the outermost field that starts on each line."""
    fields: dict[int, str] = {}
    for line, field in _starts(node, "", set()):
        fields.setdefault(line, field)
    return fields


def _starts(node: yaml.Node, field: str, seen: set[int]) -> Iterator[tuple[int, str]]:
    if id(node) in seen:  # an alias: its comments belong to the anchor
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = at(field, key.value) if isinstance(key, yaml.ScalarNode) else field
            yield key.start_mark.line, inner
            yield from _starts(value, inner, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield item.start_mark.line, f"{field}[{index}]"
            yield from _starts(item, f"{field}[{index}]", seen)


def _comment_lines(text: str, lines: list[str]) -> tuple[dict[int, str], set[int]]:
    """Return the comments at the end of lines, by line, and the lines that only consist of a comment.

    Uses the YAML scanner, since a # inside a scalar does not start a comment.
    """
    ends: dict[int, int] = {}
    inside: set[int] = set()
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        start, end = token.start_mark, token.end_mark
        if isinstance(token, yaml.ScalarToken) and token.style in {"|", ">"}:
            header = _BLOCK_HEADER.match(lines[start.line], start.column)
            ends[start.line] = header.end() if header else len(lines[start.line])
            inside.update(range(start.line + 1, end.line + (end.column > 0)))
        elif end.line < len(lines) and end.index > start.index:
            ends[end.line] = max(end.column, ends.get(end.line, 0))
            inside.update(range(start.line, end.line))
    beside: dict[int, str] = {}
    for number, end_column in ends.items():
        rest = lines[number][end_column:].strip()
        if rest.startswith("#"):
            beside[number] = rest
    empty = set(range(len(lines))) - inside - ends.keys()
    return beside, {number for number in empty if lines[number].lstrip().startswith("#")}
