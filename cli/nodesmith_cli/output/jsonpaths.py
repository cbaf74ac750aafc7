"""JSONPath templates in kubectl's dialect, evaluated by jsonpath-ng.

A template is text with expressions in braces: `{.nodes[*].name}`, literals `{"\\n"}`, and `{range …}…{end}`. Within an
expression, the leading `$` may be omitted, `\\.` is a dot in a name, and filters are `[?(@.zone=="a")]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nodesmith.errors import Rejected

_TOKEN = re.compile(r"\{((?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^{}\"'])*)\}")
_ESCAPED_NAME = re.compile(r"\.((?:[^.\[\]\\'\"]|\\.)*\\\.(?:[^.\[\]\\'\"]|\\.)*)")
_LONGEST, _DEEPEST = 2_000, 5


def selected(template: str, data: Any) -> str:
    """Return what a template selects from JSON data. Raises Rejected, naming the expression, if it cannot be read."""
    if len(template) > _LONGEST:
        raise Rejected(f"-o jsonpath: the template has {len(template):,} characters, of {_LONGEST:,} allowed")
    shown = template if "{" in template else f"{{{template}}}"
    parts = list(_parts(shown))
    text, rest = _filled(parts, json.loads(json.dumps(data)), 0)
    if rest:
        raise Rejected("-o jsonpath: {end} without {range}")
    return text


_Part = tuple[str, str]
"""What it is (text, range, end or path), and its content."""


def _parts(template: str) -> Iterator[_Part]:
    at = 0
    for token in _TOKEN.finditer(template):
        yield from _plain(template[at : token.start()])
        at = token.end()
        yield _expression(token[1].strip())
    yield from _plain(template[at:])


def _plain(shown: str) -> Iterator[_Part]:
    if "{" in shown or "}" in shown:
        raise Rejected(f"-o jsonpath: braces are not balanced near {shown[:40]!r}")
    if shown:
        yield "text", shown


def _expression(shown: str) -> _Part:
    if shown[:1] in {'"', "'"}:
        return "text", _literal(shown)
    word, _, rest = shown.partition(" ")
    if word == "range":
        return "range", rest.strip()
    return ("end", "") if shown == "end" else ("path", shown)


def _literal(shown: str) -> str:
    """Return a quoted text with its escapes, which are those of JSON; single quotes stand for double ones."""
    inner = shown[1:-1] if len(shown) >= 2 and shown[-1] == shown[0] else None
    if inner is not None:
        try:
            return str(json.loads('"' + (inner if shown[0] == '"' else inner.replace('"', '\\"')) + '"'))
        except ValueError:
            pass
    raise Rejected(f"-o jsonpath: {{{shown}}} is no quoted text")


def _filled(parts: Sequence[_Part], data: Any, depth: int) -> tuple[str, Sequence[_Part]]:
    """Return the text of the parts up to their {end}, and the parts from there on."""
    texts: list[str] = []
    while parts:
        (kind, content), parts = parts[0], parts[1:]
        if kind == "end":
            return "".join(texts), [("end", ""), *parts]
        if kind == "text":
            texts.append(content)
        elif kind == "path":
            texts.append(" ".join(map(_shown, _found(content, data))))
        else:
            found, parts = _ranged(content, parts, data, depth)
            texts.append(found)
    return "".join(texts), ()


def _ranged(content: str, parts: Sequence[_Part], data: Any, depth: int) -> tuple[str, Sequence[_Part]]:
    if depth >= _DEEPEST:
        raise Rejected(f"-o jsonpath: more than {_DEEPEST} {{range}} within each other")
    each = _found(content, data)
    texts: list[str] = []
    remaining: Sequence[_Part] = ()
    for item in each or [None]:
        text, remaining = _filled(parts, item, depth + 1)
        texts += [text] if each else []
    if not remaining:
        raise Rejected(f"-o jsonpath: {{range {content}}} has no {{end}}")
    return "".join(texts), remaining[1:]


def _found(expression: str, data: Any) -> list[Any]:
    from jsonpath_ng.exceptions import JSONPathError
    from jsonpath_ng.ext.parser import parse

    try:
        return [match.value for match in parse(_translated(expression)).find(data)]
    except (JSONPathError, AttributeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or ["it cannot be read"])[0]
        raise Rejected(
            f"-o jsonpath: {{{expression}}}: {reason}; an example: {{.nodes[*].name}}; supported are names, [n], "
            "[a:b], [*], .., ['a','b'], filters [?(@.a==\"b\")], {range}, {end} and quoted text"
        ) from None


def _translated(expression: str) -> str:
    """Return kubectl's dialect as the library reads it."""
    path = (
        expression
        if expression[:1] in {"$", "@"}
        else f"${'' if expression[:1] in '.[' else '.'}{expression}"
    )
    path = "$" + path[1:] if path.startswith("@") else path
    path = "$" if path == "$." else path
    return _ESCAPED_NAME.sub(lambda found: "['" + re.sub(r"\\(.)", r"\1", found[1]) + "']", path)


def _shown(value: Any) -> str:
    """Return a value as kubectl prints it: text as it is, objects and lists as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"))
