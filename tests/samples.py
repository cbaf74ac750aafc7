"""Sizes of enumerations and simulations: a sample in `make test`, everything in `make test-exhaustive`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

VARIABLE = "NODESMITH_EXHAUSTIVE"
IS_EXHAUSTIVE = os.environ.get(VARIABLE) == "1"
T = TypeVar("T")


def sampled(sample: T, *, whole: T) -> T:
    """Return `whole` in an exhaustive run, and otherwise `sample`, which must always be the same.

    Tests whose size this decides have the marker `exhaustive`, by which `make test-exhaustive` selects them. It also
    selects all hypothesis tests.
    """
    return whole if IS_EXHAUSTIVE else sample


def spread(items: Sequence[T], count: int, name: str) -> Sequence[T]:
    """Return `count` items at equal distances, all of them for 0. The name decides which is the first."""
    if not count:
        return items
    distance = max(1, len(items) // count)
    return items[crc32(name.encode()) % distance :: distance][:count]
