"""The syntax of CEL, as far as device selectors use it: from text to nested tuples; and of the patterns in it.

An expression is written by anyone who may create a ResourceClaim, so its length and its nesting are bounded, and what a
search for a pattern takes. CEL's own engine takes time proportional to the text, Python's backtracks. The steps that a
search may take are therefore estimated from the pattern beforehand: each repeated part may end at any character, and
each optional part or alternative doubles the ways to match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

LONGEST = 10 * 1024
"""The API server's limit for the length of a selector."""
_DEEPEST = 40
_DEEPEST_TREE = 100
"""Evaluation takes up to four frames a level, of the thousand that Python allows."""
_CHAINS = frozenset({"||", "&&"})
_SHOWN = 64
_INT64 = 2**63
Node = tuple[Any, ...]
"""What kind of part it is, then its parts or values."""


class SelectorError(ValueError):
    """An expression that cannot be read or evaluated; the message says where and why."""


_TOKEN = re.compile(
    r"""[ \t\r\n]+|//[^\n]*
    |(?P<string>[rR]?(?:'''(?s:.*?)'''|\"\"\"(?s:.*?)\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    |(?P<number>0[xX][0-9a-fA-F]{1,16}[uU]?|\d{1,20}\.\d{1,20}(?:[eE][+-]?\d{1,3})?|\d{1,20}[eE][+-]?\d{1,3}|\d{1,20}[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<sign>\|\||&&|[<>=!]=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}
_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"<", "<=", ">", ">=", "==", "!=", "in"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
_SURROGATES = range(0xD800, 0xE000)
"""Halves of characters, which no text can be encoded with."""
_CONSTANTS = {"true": True, "false": False, "null": None}


class _Parser:
    """Reads one expression by recursive descent, in the order of CEL's precedences."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise SelectorError(f"it is longer than {LONGEST} characters")
        self._tokens, self._at, self._depth = list(_tokens(text)), 0, 0

    def whole(self) -> Node:
        node = self._choice()
        if self._tokens[self._at] != ("end", ""):
            raise SelectorError(f"unexpected {self._tokens[self._at][1][:_SHOWN]!r}")
        _check_depth(node)
        return node

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise SelectorError(f"it is nested deeper than {_DEEPEST} levels")
        node = self._binary(0)
        if self._took("?"):
            yes = self._choice()
            self._expect(":")
            node = ("if", node, yes, self._choice())
        self._depth -= 1
        return node

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        chain = [node]
        while (sign := self._tokens[self._at][1]) in _LEVELS[level] and self._tokens[self._at][0] != "string":
            self._at += 1
            operand = self._binary(level + 1)
            if sign in _CHAINS:
                chain.append(operand)
            else:
                node = ("op", sign, node, operand)
        return node if len(chain) == 1 else _balanced(min(_LEVELS[level]), chain)

    def _unary(self) -> Node:
        signs = []
        while self._tokens[self._at] in (("sign", "!"), ("sign", "-")):
            signs.append(self._tokens[self._at][1])
            self._at += 1
        node = self._member()
        for sign in reversed(signs):
            node = ("not", node) if sign == "!" else ("minus", node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._took(".?"):
                node = ("pick", node, ("value", self._name()), True)
            elif self._took("."):
                name = self._name()
                node = ("call", name, node, self._list(")")) if self._took("(") else ("select", node, name)
            elif self._took("[?"):
                node = ("pick", node, self._closed("]"), True)
            elif self._took("["):
                node = ("pick", node, self._closed("]"), False)
            else:
                return node

    def _primary(self) -> Node:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "string":
            return ("value", _string(text))
        if kind == "number":
            return ("value", _number(text))
        if kind == "name":
            if text in _CONSTANTS:
                return ("value", _CONSTANTS[text])
            return ("call", text, None, self._list(")")) if self._took("(") else ("name", text)
        if text == "(":
            return self._closed(")")
        if text == "[":
            return ("list", self._list("]"))
        if text == "{":
            return ("map", self._pairs())
        raise SelectorError(f"unexpected {text[:_SHOWN]!r}" if text else "it ends too early")

    def _list(self, end: str) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while not self._took(end):
            nodes.append(self._choice())
            if not self._took(","):
                self._expect(end)
                break
        return tuple(nodes)

    def _pairs(self) -> tuple[tuple[Node, Node], ...]:
        pairs: list[tuple[Node, Node]] = []
        while not self._took("}"):
            key = self._choice()
            self._expect(":")
            pairs.append((key, self._choice()))
            if not self._took(","):
                self._expect("}")
                break
        return tuple(pairs)

    def _closed(self, end: str) -> Node:
        node = self._choice()
        self._expect(end)
        return node

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            raise SelectorError(f"expected a field name, found {text[:_SHOWN]!r}")
        self._at += 1
        return text

    def _took(self, sign: str) -> bool:
        took = self._tokens[self._at] == ("sign", sign)
        self._at += took
        return took

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            actual = self._tokens[self._at][1] or "the end"
            raise SelectorError(f"expected {sign!r}, found {actual[:_SHOWN]!r}")


def _balanced(sign: str, operands: list[Node]) -> Node:
    """Return a chain of one operator as a tree of little depth, as CEL does. `&&` and `||` allow any grouping."""
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    return ("op", sign, _balanced(sign, operands[:middle]), _balanced(sign, operands[middle:]))


def _check_depth(tree: Node) -> None:
    """Raises SelectorError for an expression that is nested too deeply to be evaluated."""
    level: list[Node] = [tree]
    for _ in range(_DEEPEST_TREE):
        level = [inner for node in level for inner in _inner(node)]
    if level:
        raise SelectorError(f"it is nested deeper than {_DEEPEST_TREE} levels")


def _inner(node: Node) -> Iterator[Node]:
    """Yield the parts of a part."""
    if node[0] == "value":
        return
    for child in node[1:]:
        if not isinstance(child, tuple):
            continue
        if child and isinstance(child[0], tuple):
            pairs = node[0] == "map"
            yield from (part for pair in child for part in pair) if pairs else child
        elif child:
            yield child


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SelectorError(f"unexpected {text[at : at + 10]!r}")
        if match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
        at = match.end()
    return [*tokens, ("end", "")]


def _string(text: str) -> str:
    raw, text = text[0] in "rR", text.lstrip("rR")
    width = 3 if text[:3] in ("'''", '"""') else 1
    inner = text[width:-width]
    return inner if raw else _ESCAPE.sub(_unescaped, inner)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] == "u" and len(escape) > 1:
        code = int(escape[1:], 16)
        if code in _SURROGATES:
            raise SelectorError(f"unknown escape \\{escape}")
        return chr(code)
    if escape not in _ESCAPED:
        raise SelectorError(f"unknown escape \\{escape}")
    return _ESCAPED[escape]


def _number(text: str) -> int | float:
    plain = text.rstrip("uU")
    if plain[:2] in ("0x", "0X"):
        return in_range(int(plain, 16))
    return in_range(int(plain)) if plain.isdigit() else float(plain)


def in_range(number: int) -> int:
    """Return a number that CEL can hold. Raises SelectorError for others."""
    if not -_INT64 <= number < 2 * _INT64:
        raise SelectorError("a number is out of range")
    return number


def parsed(expression: str) -> Node:
    """Read an expression. Raises SelectorError."""
    result = _read(expression)
    if isinstance(result, str):
        raise SelectorError(result)
    return result


@lru_cache(maxsize=128)  # each may take half a megabyte
def _read(expression: str) -> Node | str:
    """Return an expression, or why it cannot be read."""
    try:
        return _Parser(expression).whole()
    except SelectorError as error:
        return str(error)


_MOST_REPEATS, _LONGEST_PATTERN = 2, 256
_MOST_WORK = 8_000_000
"""Characters that a search may compare, which takes about 50 ms."""
_WORK_OF_STEP = 500
_STEPS_OF_CHARACTER = 4
"""Of a pattern, for its compilation."""
_UNSAFE = re.compile(r"\)[*+{]|\\[1-9uUN]|\(\?(?!:|i\))")
_BRANCH = re.compile(r"\\.|\(\?|([*+{?|])", re.DOTALL)


def steps_of(text: str, pattern: str) -> int:
    """Return how many steps of an evaluation a search takes at most. Raises SelectorError if it may take too long."""
    quoted = repr(pattern[:_SHOWN])
    if len(pattern) > _LONGEST_PATTERN or not pattern.isascii() or _UNSAFE.search(pattern):
        raise SelectorError(f"the pattern {quoted} is too complex: avoid repeated groups")
    branches = [sign for sign in _BRANCH.findall(pattern) if sign]
    repeats = sum(sign in "*+{" for sign in branches)
    if repeats > _MOST_REPEATS:
        raise SelectorError(f"the pattern {quoted} repeats more than {_MOST_REPEATS} parts")
    is_anchored = pattern.startswith("^") and "|" not in branches
    ways: int = (len(text) + 2) ** repeats * 2 ** (len(branches) - repeats)
    work = (1 if is_anchored else len(text) + 1) * ways * (len(pattern) + 1)
    if work > _MOST_WORK:
        raise SelectorError(f"the pattern {quoted} is too complex for a text of {len(text)} characters")
    return work // _WORK_OF_STEP + len(pattern) * _STEPS_OF_CHARACTER


def matches(text: str, pattern: str) -> bool:
    """Return whether a pattern whose steps were counted is found in a text. Raises SelectorError."""
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError) as error:
        raise SelectorError(f"matches: {error}") from None
