"""Words for people: counts, lists of names, durations, times, and text from users."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.model.apimachinery.times import parse_time

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of a cell that a spreadsheet runs as a formula."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural, such as `2 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Iterable[str], most: int = 4) -> str:
    """Return the first `most` names, and how many more there are."""
    all_names = list(names)
    remaining = len(all_names) - most
    return ", ".join(all_names[:most]) + (f" and {remaining:,} more" if remaining > 0 else "")


def saves(saving: float, amount: str) -> str:
    """Return what a change saves, or what it costs more if `saving` is negative. `amount` is without a sign."""
    return f"saves {amount}" if saving >= 0 else f"costs {amount} more"


def span(seconds: int) -> str:
    """Return a duration in a single unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def moment(at: str) -> str:
    """Format an RFC 3339 time in UTC, to the second."""
    return f"{parse_time(at):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: str, seconds: int) -> str:
    """Format an RFC 3339 time, followed by how long ago it was."""
    return f"{moment(at)}, {span(seconds)} ago"


def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet runs as a formula. Users of a cluster could write one into a name."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def printable(line: str) -> str:
    """Escape control characters. Messages quote text from pods, which a terminal would otherwise interpret."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def printable_text(text: str) -> str:
    """Escape control characters as `printable` does, but not the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))
