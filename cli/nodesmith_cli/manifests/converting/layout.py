"""Writing a converted object as YAML, with the style and the comments of its original fields.

An object is first turned into YAML nodes, which carry styles. The text serialized from them is parsed again to find the
line of each field, where the comments are inserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any

import yaml

from nodesmith.model.apimachinery.problems import at
from nodesmith.model.karpenter.conversion.drafts import Converted, Origin
from nodesmith_cli.manifests.converting.comments import Comment, Comments, comments_of
from nodesmith_formats.manifests.documents import node_at

_MAP, _SEQ = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"
_LAST_STEP = re.compile(r"^.*\.(?=[^\].]*$)|^.*\[(?=[^\]]*\]$)|\]$")
NodeAt = Callable[[Origin], yaml.Node | None]


class Remarks:
    """The comments of one original object. Each is written once, at the first field that its field was converted to."""

    def __init__(self, comments: Comments) -> None:
        self._left = {comment.field: comment for comment in comments.about}
        self._below = list(comments.below)

    def take(self, field: str) -> Comment | None:
        """Remove and return the comment on a field, or None."""
        return self._left.pop(field, None)

    def rest(self) -> list[str]:
        """Remove and return the remaining lines: comments on dropped fields, with their names, and those at the end."""
        lines: list[str] = []
        for comment in self._left.values():
            name = _LAST_STEP.sub("", comment.field)
            lines += [line for line in comment.above if line]
            lines += [f"# {name}: {comment.beside.lstrip('# ')}"] if comment.beside else []
        self._left.clear()
        below, self._below = self._below, []
        while below and not below[-1]:
            below.pop()
        return lines + below


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors and line breaks, with lists indented as in the original."""

    indents_lists = False

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless and not self.indents_lists)


class _Indenting(_Dumper):
    indents_lists = True


def write_yaml(
    converted: Converted, node_of: NodeAt, remarks: Mapping[int, Remarks], root: yaml.Node | None
) -> str:
    """Return an object as YAML. `root` is the original's node. `remarks` are by the number of the original."""
    node = _node(converted.manifest, "", converted, node_of)
    dumper = _Indenting if root is None or _indents_lists(root) else _Dumper
    text = yaml.serialize(node, Dumper=dumper, width=10**6, allow_unicode=True)
    return _with_comments(text, converted, remarks)


def _node(value: Any, field: str, converted: Converted, node_of: NodeAt) -> yaml.Node:
    origin = converted.origin(field) if field else Origin(converted.number, "")
    source = node_of(origin) if origin else None
    if isinstance(value, Mapping):
        pairs = [
            (_scalar(key, None), _node(inner, at(field, key), converted, node_of))
            for key, inner in value.items()
        ]
        flow = source.flow_style if isinstance(source, yaml.MappingNode) else not pairs
        return yaml.MappingNode(_MAP, pairs, flow_style=flow)
    if isinstance(value, list):
        nodes = [_node(inner, f"{field}[{n}]", converted, node_of) for n, inner in enumerate(value)]
        plain = all(isinstance(node, yaml.ScalarNode) for node in nodes)
        flow = source.flow_style if isinstance(source, yaml.SequenceNode) else plain
        return yaml.SequenceNode(_SEQ, nodes, flow_style=flow)
    return _scalar(value, source)


def _scalar(value: Any, source: yaml.Node | None) -> yaml.Node:
    """Return a scalar node, in the source's spelling if the value is the same."""
    plain = yaml.SafeDumper(StringIO()).represent_data(value)
    if (
        not isinstance(plain, yaml.ScalarNode)
        or not isinstance(source, yaml.ScalarNode)
        or source.tag != plain.tag
    ):
        return plain
    same = source.value == plain.value or plain.tag != "tag:yaml.org,2002:str"
    return yaml.ScalarNode(plain.tag, source.value if same else plain.value, style=source.style)


def _indents_lists(node: yaml.Node) -> bool:
    """Return whether the first block-style list is indented. Defaults to True without such a list."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(value, yaml.SequenceNode) and not value.flow_style and value.value:
                return bool(value.start_mark.column > key.start_mark.column)
        inner = [value for _, value in node.value if isinstance(value, yaml.MappingNode)]
        return all(_indents_lists(value) for value in inner)
    return True


def _with_comments(text: str, converted: Converted, remarks: Mapping[int, Remarks]) -> str:
    lines = text.rstrip("\n").split("\n")
    above: dict[int, list[str]] = {}
    for line, field in _lines_of_fields(yaml.compose(text, Loader=yaml.SafeLoader)):
        origin = converted.origin(field)
        document_remarks = remarks.get(origin.number) if origin else None
        comment = document_remarks.take(origin.field) if document_remarks and origin else None
        if comment is None:
            continue
        above.setdefault(line, []).extend(comment.above)
        if comment.beside:
            lines[line] += f" {comment.beside}"
    written: list[str] = []
    for number, text in enumerate(lines):
        indent = text[: len(text) - len(text.lstrip())]
        written += [f"{indent}{each}" if each else "" for each in above.get(number, ())]
        written.append(text)
    return "\n".join(written).lstrip("\n") + "\n"


def _lines_of_fields(node: yaml.Node | None, field: str = "") -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = at(field, key.value)
            lines += [(key.start_mark.line, inner), *_lines_of_fields(value, inner)]
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            inner = f"{field}[{index}]"
            lines += [(item.start_mark.line, inner), *_lines_of_fields(item, inner)]
    return lines


def remarks_of(text: str, node: yaml.Node | None) -> Remarks:
    """Return the comments of a document with one object."""
    return Remarks(comments_of(text, node))


def finder(roots: Mapping[int, yaml.Node | None]) -> NodeAt:
    """Return a function that finds the YAML node of an original field."""

    def find(origin: Origin) -> yaml.Node | None:
        root = roots.get(origin.number)
        return node_at(root, origin.field) if root is not None else None

    return find
