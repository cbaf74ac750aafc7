"""Regular expressions in device selectors, searched within bounds.

CEL's own engine takes time proportional to the text, Python's backtracks. What a search may take is therefore estimated
from the pattern beforehand: each repeated part may end at any character, and each optional part or alternative doubles
the ways to match.
"""

from __future__ import annotations

import re

from nodesmith.model.kubernetes.selectorsyntax import SelectorError

_MOST_REPEATS, _LONGEST_PATTERN, _SHOWN = 2, 256, 64
_MOST_WORK = 8_000_000
"""Characters that a search may compare, which takes about 50 ms."""
_WORK_OF_STEP = 500
_STEPS_OF_CHARACTER = 4
"""Of a pattern, for its compilation."""
_UNSAFE = re.compile(r"\)[*+{]|\\[1-9uUN]|\(\?(?!:|i\))")
_BRANCH = re.compile(r"\\.|\(\?|([*+{?|])", re.DOTALL)


def steps_of(text: str, pattern: str) -> int:
    """Return how many steps of an evaluation a search takes at most. Raises SelectorError if it may take too long."""
    shown = repr(pattern[:_SHOWN])
    if len(pattern) > _LONGEST_PATTERN or not pattern.isascii() or _UNSAFE.search(pattern):
        raise SelectorError(f"the pattern {shown} is too complex: avoid repeated groups")
    branches = [sign for sign in _BRANCH.findall(pattern) if sign]
    repeats = sum(sign in "*+{" for sign in branches)
    if repeats > _MOST_REPEATS:
        raise SelectorError(f"the pattern {shown} repeats more than {_MOST_REPEATS} parts")
    is_anchored = pattern.startswith("^") and "|" not in branches
    ways: int = (len(text) + 2) ** repeats * 2 ** (len(branches) - repeats)
    work = (1 if is_anchored else len(text) + 1) * ways * (len(pattern) + 1)
    if work > _MOST_WORK:
        raise SelectorError(f"the pattern {shown} is too complex for a text of {len(text)} characters")
    return work // _WORK_OF_STEP + len(pattern) * _STEPS_OF_CHARACTER


def is_found(text: str, pattern: str) -> bool:
    """Return whether a pattern whose steps were counted is found in a text. Raises SelectorError."""
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError) as error:
        raise SelectorError(f"matches: {error}") from None
