"""The output of a command, as JSON or as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal

from nodesmith_formats.wording import printable


def print_told(told: object, lines: Iterable[str], output: Literal["table", "json"]) -> None:
    """Print `told` as JSON, or `lines` as a human-readable table."""
    print(json.dumps(told, indent=2) if output == "json" else "\n".join(map(printable, lines)))
