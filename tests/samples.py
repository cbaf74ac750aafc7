"""Sizes of enumerations and simulations: a sample in `make test`, everything in `make test-exhaustive`."""

from __future__ import annotations

import os
from typing import TypeVar

VARIABLE = "NODESMITH_EXHAUSTIVE"
IS_EXHAUSTIVE = os.environ.get(VARIABLE) == "1"
T = TypeVar("T")


def sampled(sample: T, *, whole: T) -> T:
    """Return `whole` in an exhaustive run, and otherwise `sample`, which must always be the same.

    Tests whose size this decides have the marker `exhaustive`, by which `make test-exhaustive` selects them. It also
    selects all hypothesis tests.
    """
    return whole if IS_EXHAUSTIVE else sample
