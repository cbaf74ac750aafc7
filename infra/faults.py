"""What is wrong with a value of cdk.json: where it is, what was found, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

Faults = Iterator[str]


def did_you_mean(found: str, known: Sequence[str]) -> str:
    """Return the nearest of what is known, as a question, or all of it."""
    close = get_close_matches(found, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known) or 'none'}"


def unknown(where: str, found: Mapping[str, Any], known: Sequence[str]) -> Faults:
    """Name the keys of an object that nobody reads."""
    for key in sorted(set(found) - set(known)):
        yield f"{where}.{key}: unknown; {did_you_mean(key, known)}"


def text(where: str, value: Any, pattern: re.Pattern[str], expected: str) -> Faults:
    """Ask for a text that matches a pattern as a whole."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        yield f"{where}: expected {expected}, found {value!r}"


def texts(where: str, values: Any, pattern: re.Pattern[str], expected: str, least: int = 0) -> Faults:
    """Ask for a list of texts, of at least so many."""
    if not isinstance(values, list) or len(values) < least:
        yield f"{where}: expected a list of {expected}, found {values!r}"
        return
    for at, value in enumerate(values):
        yield from text(f"{where}[{at}]", value, pattern, expected)


def flag(where: str, value: Any) -> Faults:
    """Ask for true or false."""
    if not isinstance(value, bool):
        yield f"{where}: expected true or false, found {value!r}"


def number(where: str, value: Any, least: int, most: int) -> Faults:
    """Ask for a whole number."""
    if type(value) is not int or not least <= value <= most:
        yield f"{where}: expected a number from {least} to {most}, found {value!r}"
