"""Arguments of PowerShell commands. No library writes PowerShell, so everything that varies is quoted here."""

from __future__ import annotations

import re
from collections.abc import Mapping

_QUOTES = re.compile("['\u2018\u2019\u201a\u201b]")
"""The characters that end a verbatim string: PowerShell takes typographic quotes for straight ones."""


def quoted(text: str) -> str:
    """Return a verbatim string: nothing in it is expanded, and a quote in it is doubled."""
    return f"'{_QUOTES.sub(lambda found: found[0] * 2, text)}'"


def parameters(named: Mapping[str, str]) -> str:
    """Return the parameters of a command, each with its quoted value."""
    return " ".join(f"-{name} {quoted(value)}" for name, value in named.items())
