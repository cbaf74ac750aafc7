"""How commands write for people: numbers of things, names, lengths of time, and what other people wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal

from nodesmith.model.apimachinery.times import parse_time


def counted(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Iterable[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    found = list(names)
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more:,} more" if more > 0 else "")


def span(seconds: int) -> str:
    """Return how long something is, in one unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def moment(at: str) -> str:
    """Write a time (RFC 3339) to the second, in UTC."""
    return f"{parse_time(at):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: str, seconds: int) -> str:
    """Write a time (RFC 3339), and how long ago that is."""
    return f"{moment(at)}, {span(seconds)} ago"


def printable(line: str) -> str:
    """Spell out control characters: reasons quote what people wrote into their pods, and a terminal would obey it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def print_told(told: object, lines: Iterable[str], output: Literal["table", "json"]) -> None:
    """Print what is told as JSON, or the lines that say it to people."""
    print(json.dumps(told, indent=2) if output == "json" else "\n".join(map(printable, lines)))
