"""Faults in values of cdk.json: where each is, what was found and what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

Faults = Iterator[str]


def did_you_mean(found: str, known: Sequence[str]) -> str:
    """Return a question that suggests the closest known word, or a list of all known words if none is close."""
    close = get_close_matches(found, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known) or 'none'}"


def unknown(where: str, found: Mapping[str, Any], known: Sequence[str]) -> Faults:
    """Yield a fault for each key of an object that is not known."""
    for key in sorted(set(found) - set(known)):
        yield f"{where}.{key}: unknown; {did_you_mean(key, known)}"


def text(where: str, value: Any, pattern: re.Pattern[str], expected: str) -> Faults:
    """Yield a fault unless the value is a string that matches the whole pattern."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        yield f"{where}: expected {expected}, found {value!r}"


def texts(where: str, values: Any, pattern: re.Pattern[str], expected: str, least: int = 0) -> Faults:
    """Yield the faults of a list of strings that must have at least `least` items."""
    if not isinstance(values, list) or len(values) < least:
        yield f"{where}: expected a list of {expected}, found {values!r}"
        return
    for at, value in enumerate(values):
        yield from text(f"{where}[{at}]", value, pattern, expected)


def flag(where: str, value: Any) -> Faults:
    """Yield a fault unless the value is true or false."""
    if not isinstance(value, bool):
        yield f"{where}: expected true or false, found {value!r}"


def number(where: str, value: Any, least: int, most: int) -> Faults:
    """Yield a fault unless the value is an integer from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        yield f"{where}: expected a number from {least} to {most}, found {value!r}"
