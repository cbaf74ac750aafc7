"""PowerShell, parsed with a grammar of its own: what a script would call, and with which arguments."""

from __future__ import annotations

from collections.abc import Iterator

import tree_sitter_pwsh
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_pwsh.language()))


def script_of(user_data: str) -> str:
    """Return the script that EC2Launch runs. Fails unless there is exactly one."""
    first, last = "<powershell>", "</powershell>"
    assert user_data.count(first) == user_data.count(last) == 1
    return user_data.partition(first)[2].partition(last)[0]


def calls(script: str) -> list[dict[str, str]]:
    """Return the verbatim parameters of each command that has some. Fails if the script is not PowerShell."""
    root = _PARSER.parse(script.encode()).root_node
    assert not root.has_error, f"not PowerShell: {script}"
    return [found for command in _nodes(root, "command") if (found := dict(_parameters(command)))]


def _parameters(command: Node) -> Iterator[tuple[str, str]]:
    name = ""
    for node in _nodes(command):
        if node.type == "command_parameter":
            name = _text(node).removeprefix("-")
        elif node.type == "verbatim_string_characters" and name:
            yield name, _text(node)[1:-1].replace("''", "'")
            name = ""


def _nodes(node: Node, kind: str = "") -> Iterator[Node]:
    if not kind or node.type == kind:
        yield node
    for child in node.children:
        yield from _nodes(child, kind)


def _text(node: Node) -> str:
    return (node.text or b"").decode()
