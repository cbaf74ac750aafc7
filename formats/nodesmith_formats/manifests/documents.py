"""YAML documents with the lines of their fields, parsed one by one so that a broken one does not affect the others.

Values and keys are read as kubectl reads them (sigs.k8s.io/yaml): `y` and `on` are true, no dates, no base-60 numbers,
and each key is a text. A duplicate key is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from math import isinf
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner


class PurePython(Reader, Scanner, Parser):
    """The parser events of a text, without libyaml."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


_SEPARATOR = re.compile(r"^---(?=\s|$).*$", re.MULTILINE)
_UNKNOWN = -1
MOST_NODES = 200_000
"""The most values in one document, with each alias counted at its full size."""
EVENTS: Any = import_module("yaml.cyaml").CParser if yaml.__with_libyaml__ else PurePython
"""The event parser that is available on this machine."""
_LARGE = 100_000
"""Characters from which JSON is parsed as JSON: a hundred times as fast, but without the lines of fields."""
_BOOLEAN = re.compile(r"[yYnN]$")
_NUMBERS_BEGIN = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0[bB][01]+|0[oO][0-7]+|0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)$", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?$", re.ASCII)
_FRACTION = re.compile(r"\.\d+(?:_\d+)*(?:[eE]|$)", re.ASCII)
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
_TAG = "tag:yaml.org,2002:"
_STR, _BOOL, _INT, _FLOATING, _NULL, _MERGE = (
    f"{_TAG}{name}" for name in ("str", "bool", "int", "float", "null", "merge")
)
_OTHERWISE = frozenset({f"{_TAG}timestamp", f"{_TAG}value", _INT, _FLOATING})
_KEYS = frozenset({_BOOL, _INT, _FLOATING, _NULL})
"""The tags of keys that are not texts."""
_LONGEST_INTEGER = 80
"""Digits of a number that may have 64 bits, in any base, with some zeros in front."""
_LONGEST_WHOLE = 1e21
"""From here on, Go writes whole numbers with an exponent."""


class BadDocument(ValueError):
    """A document that cannot be parsed; `line` counts from 1 in the document's own text."""

    def __init__(self, message: str, line: int, field: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.field = field


class _Loader(Composer, EVENTS, SafeConstructor, Resolver):  # type: ignore[misc]  # one of two
    """SafeLoader with kubectl's values and keys, and with a limit on the number of values.

    libyaml produces the events where available, ten times as fast. Python composes them, since libyaml cannot cope with
    deep nesting.
    """

    bool_values = {**SafeConstructor.bool_values, "y": True, "n": False}  # noqa: RUF012 - the name of yaml's own
    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and the kind of yaml's own
        first: [(tag, regexp) for tag, regexp in resolvers if tag not in _OTHERWISE]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, most_nodes: int = MOST_NODES) -> None:
        EVENTS.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._left = self._most = most_nodes

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node. Numbers may have underscores anywhere but in front."""
        tag = str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        if kind is yaml.ScalarNode and tag == _STR and implicit[0] and value[:1] in _NUMBERS_BEGIN:
            return _tag_of(value)
        return tag

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node and count it. Raises BadDocument beyond the limit."""
        self._left -= 1
        if self._left < 0:
            raise BadDocument(f"more than {self._most} values in one document: write it as JSON", 1)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping whose keys are texts: `on` becomes `true`, and `0x1F` becomes `31`."""
        node = super().compose_mapping_node(anchor)
        if any(key.tag in _KEYS for key, _ in node.value):
            node.value = [(self._as_text(key), value) for key, value in node.value]
        return node

    def _as_text(self, key: yaml.Node) -> yaml.Node:
        if key.tag == _NULL:
            reason = "has a key that is null: quote it if it is a text"
            raise BadDocument(reason, key.start_mark.line + 1)
        if key.tag not in _KEYS:
            return key
        value = self.construct_object(key)
        text = f"{value:g}" if isinstance(value, float) else str(value).lower()
        return yaml.ScalarNode(_STR, text, key.start_mark, key.end_mark)

    def integer(self, node: yaml.ScalarNode) -> int | float | str:
        """Return an integer, or the number that Go reads if it has more than 64 bits."""
        text = str(node.value)
        digits = text.replace("_", "").lower().lstrip("+-")
        if len(digits) > _LONGEST_INTEGER:
            return self.floating(node)
        number = int(digits, 8 if digits.isdigit() and digits[0] == "0" else 0)
        number = -number if text[0] == "-" else number
        return number if -(2**63) <= number < 2**64 else self.floating(node)

    def floating(self, node: yaml.ScalarNode) -> int | float | str:
        """Return a number, or its text if it is too large. Raises BadDocument for one that JSON lacks, such as NaN.

        A whole number becomes an integer, because JSON does not distinguish them.
        """
        text = str(node.value)
        if _NOT_FINITE.match(text):
            remedy = "is not a number that Kubernetes accepts: quote it if it is a text"
            raise BadDocument(f"{text} {remedy}", node.start_mark.line + 1)
        number = float(text.replace("_", ""))
        if isinf(number):
            return text
        return int(number) if number.is_integer() and abs(number) < _LONGEST_WHOLE else number


def _tag_of(text: str) -> str:
    """Return the tag of a plain scalar that begins like a number."""
    plain = text.replace("_", "")
    if _INTEGER.match(plain):
        return _INT
    is_float = _FLOAT.match(plain) and (text[0] != "." or _FRACTION.match(text))
    return _FLOATING if is_float or _NOT_FINITE.match(text) else _STR


_Loader.add_implicit_resolver(_BOOL, _BOOLEAN, list("yYnN"))
_Loader.add_constructor(_INT, _Loader.integer)
_Loader.add_constructor(_FLOATING, _Loader.floating)
_Loader.add_constructor(_MERGE, lambda _, node: node.value)


def split_documents(text: str) -> Iterator[tuple[int, str]]:
    """Split a file at its `---` lines; yield each part with content, with the number of its first line."""
    start, line = 0, 1
    for separator in chain(_SEPARATOR.finditer(text), (None,)):
        part = text[start : separator.start() if separator else len(text)]
        if any(content.strip() and not content.lstrip().startswith("#") for content in part.splitlines()):
            yield line, part
        if separator:
            remainder = separator.group().removeprefix("---").strip()
            end = separator.start() + 3 if remainder and not remainder.startswith("#") else separator.end()
            line += text.count("\n", start, end)
            start = end


def parse_document(text: str, most_nodes: int = MOST_NODES) -> tuple[yaml.Node | None, Any]:
    """Parse one document; return its root node, which knows the lines, and its value. Raises BadDocument.

    The node is None for a large JSON document.
    """
    if len(text) >= _LARGE and text.lstrip()[:1] in {"{", "["}:
        return None, _json(text)
    loader: _Loader | None = None
    try:
        loader = _Loader(text, most_nodes)
        node = loader.get_single_node()
        if node is None:
            return None, None
        _refuse_duplicates(node, "", {}, most_nodes)
        return node, loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        column = f", column {mark.column + 1}" if mark else ""
        raise BadDocument(f"not YAML: {error.problem}{column}", mark.line + 1 if mark else 1) from None
    except yaml.YAMLError as error:
        raise BadDocument(f"not YAML: {str(error).splitlines()[0]}", 1) from None
    except RecursionError:
        raise BadDocument("nested too deeply", 1) from None
    except BadDocument:
        raise
    except ValueError as error:
        raise BadDocument(f"not YAML: {error}", 1) from None
    finally:
        if loader is not None:
            loader.dispose()


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise BadDocument(f"not JSON: {error.msg}, column {error.colno}", error.lineno) from None
    except RecursionError:
        raise BadDocument("nested too deeply", 1) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise BadDocument("is given twice", 1, next(key for key in mapping if keys.count(key) > 1))
    return mapping


def line_of(node: yaml.Node | None, field: str, first_line: int = 1) -> int:
    """Return the line of a field such as `spec.taints[0].key`, or of its nearest existing parent."""
    line = node.start_mark.line + 1 if node else 1
    while node is not None:
        node, field, key_line = _step(node, field)
        line = key_line or line
    return first_line - 1 + line


def node_at(node: yaml.Node | None, field: str) -> yaml.Node | None:
    """Return the node of a field such as `spec.taints[0].key`, or None."""
    while node is not None and field:
        node, field, _ = _step(node, field)
    return node


def _step(node: yaml.Node, field: str) -> tuple[yaml.Node | None, str, int]:
    """Follow the first part of the path; return the child, the rest of the path, and the line of the child's key."""
    field = field.lstrip(".")
    if isinstance(node, yaml.SequenceNode):
        match = re.match(r"\[(\d+)\]|(\d+)(?=\.|$)", field)
        index = int(match.group(1) or match.group(2)) if match else len(node.value)
        if match and index < len(node.value):
            return node.value[index], field[match.end() :], node.value[index].start_mark.line + 1
    elif isinstance(node, yaml.MappingNode) and field:
        for key, value in sorted(node.value, key=lambda pair: -len(str(pair[0].value))):
            for spelling in (f"[{key.value}]", str(key.value)):
                inner_path = field[len(spelling) :]
                if field.startswith(spelling) and inner_path[:1] in {
                    "",
                    ".",
                    "[",
                    " ",
                }:  # a remark follows the field
                    return value, inner_path, key.start_mark.line + 1
    return None, field, 0


def _refuse_duplicates(node: yaml.Node, path: str, sizes: dict[int, int], maximum: int) -> int:
    """Return the number of values in a node, with each alias counted as often as it is used.

    Raises BadDocument for a duplicate key, since one of the values would be lost silently; for an alias inside its own
    anchor; and for aliases that expand to more than `maximum` values.
    """
    known_size = sizes.get(id(node))
    if known_size is not None:
        if known_size == _UNKNOWN:
            raise BadDocument("is an alias inside its own anchor", node.start_mark.line + 1, path)
        return known_size
    sizes[id(node)] = _UNKNOWN
    size = 1
    keys: set[str] = set()
    for key, inner, inner_path in _children(node, path):
        if key is not None:
            if key.value in keys and key.tag != "tag:yaml.org,2002:merge":
                raise BadDocument("is given twice", key.start_mark.line + 1, inner_path)
            keys.add(str(key.value))
        size += _refuse_duplicates(inner, inner_path, sizes, maximum)
        if size > maximum:
            line = inner.start_mark.line + 1
            raise BadDocument(
                f"aliases expand to more than {maximum} values: write the values out", line, inner_path
            )
    sizes[id(node)] = size
    return size


def _children(node: yaml.Node, path: str) -> Iterator[tuple[yaml.Node | None, yaml.Node, str]]:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield None, item, f"{path}[{index}]"
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                reason = "has a key that is not text; if this is a template, render it first"
                raise BadDocument(reason, key.start_mark.line + 1, path)
            yield key, value, f"{path}.{key.value}".lstrip(".")
