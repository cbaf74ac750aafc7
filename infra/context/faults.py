"""Faults in values of cdk.json: where each is, what was found and what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

Faults = Iterator[str]


def did_you_mean(word: str, known_words: Sequence[str]) -> str:
    """Return a question that suggests the closest known word, or a list of all known words if none is close."""
    matches = get_close_matches(word, known_words, n=1, cutoff=0.5)
    return f"did you mean {matches[0]}?" if matches else f"known are {', '.join(known_words) or 'none'}"


def unknown_key_faults(path: str, entry: Mapping[str, Any], known_keys: Sequence[str]) -> Faults:
    """Yield a fault for each key of an object that is not known."""
    for key in sorted(set(entry) - set(known_keys)):
        yield f"{path}.{key}: unknown; {did_you_mean(key, known_keys)}"


def text_faults(path: str, value: Any, pattern: re.Pattern[str], expected: str) -> Faults:
    """Yield a fault unless the value is a string that matches the whole pattern."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        yield f"{path}: expected {expected}, found {value!r}"


def list_faults(path: str, values: Any, pattern: re.Pattern[str], expected: str, least: int = 0) -> Faults:
    """Yield the faults of a list of strings that must have at least `least` items."""
    if not isinstance(values, list) or len(values) < least:
        yield f"{path}: expected a list of {expected}, found {values!r}"
        return
    for index, value in enumerate(values):
        yield from text_faults(f"{path}[{index}]", value, pattern, expected)


def flag_faults(path: str, value: Any) -> Faults:
    """Yield a fault unless the value is true or false."""
    if not isinstance(value, bool):
        yield f"{path}: expected true or false, found {value!r}"


def number_faults(path: str, value: Any, least: int, most: int) -> Faults:
    """Yield a fault unless the value is an integer from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        yield f"{path}: expected a number from {least} to {most}, found {value!r}"
