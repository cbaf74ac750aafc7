"""JSON from an API server, which lets people nest ten times deeper than the parser of Python 3.13 and before follows.

Only free-form fields (`spec.kubelet` of an EC2NodeClass) can be that deep, and none that means anything is. One such
object must not hide all the others in its list or watch.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST_LEVEL = 100
"""What is nested deeper than this, in a text that is too deep to be read whole, is read as null."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def read_json(text: bytes) -> Any:
    """Read a text. Raises ValueError where it is not JSON."""
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
