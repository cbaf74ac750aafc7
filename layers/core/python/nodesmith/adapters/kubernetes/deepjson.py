"""Parsing JSON that is nested too deeply for Python.

API servers accept objects nested ten times deeper than the parser of Python 3.13 and earlier supports. Only free-form
fields (`spec.kubelet` of an EC2NodeClass) can be that deep, and no meaningful value is. One such object must not hide
the other objects in its list or watch.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST_LEVEL = 100
"""In a text that is too deep to parse, values nested deeper than this become null."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text, with values that are too deep as null. Raises ValueError if it is not JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text))


def _cut(text: bytes) -> bytes:
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == DEEPEST_LEVEL + 1:
                    kept += [text[start : token.start()], b"null"]
            case b"]" | b"}":
                if depth == DEEPEST_LEVEL + 1:
                    start = token.end()
                depth -= 1
    return b"".join([*kept, text[start:]])
