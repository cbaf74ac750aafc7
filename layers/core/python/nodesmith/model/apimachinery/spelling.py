"""Suggestions for misspelt words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_TYPO = 100
_NEAR = 0.75
"""the minimum similarity of a suggestion, as in difflib"""


def meant(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the words in `known` that are closest to `word`, at most `most` of them; empty if none is close."""
    if len(word) > _LONGEST_TYPO:
        return []
    alike = [each for each in sorted(known) if each.lower() == word.lower()]
    return alike[:most] or get_close_matches(word, sorted(known), most, _NEAR)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the closest word in `known`, empty if none is close."""
    return "".join(f", did you mean {each!r}?" for each in meant(word, known))
