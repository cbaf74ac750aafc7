"""Words that were spelt nearly right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_TYPO = 100
_NEAR = 0.75
"""the share of letters that agree, from which on somebody may have meant it"""


def meant(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return those of `known` that are nearest to a word, none where none is near."""
    if len(word) > _LONGEST_TYPO:
        return []
    alike = [each for each in sorted(known) if each.lower() == word.lower()]
    return alike[:most] or get_close_matches(word, sorted(known), most, _NEAR)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the closest of `known`, or nothing."""
    return "".join(f", did you mean {each!r}?" for each in meant(word, known))
