"""How long to wait before a retry."""

from __future__ import annotations

from random import uniform


def wait_seconds(failures: int, first_seconds: float, longest_seconds: float = 30.0) -> float:
    """Return a wait that doubles with every failure in a row, less a random share of up to half of it.

    The random share keeps forwarders that failed together from retrying together.
    """
    doubled = first_seconds * 2.0 ** min(max(0, failures - 1), 10)
    return jittered(min(longest_seconds, doubled), 0.5)


def jittered(seconds: float, share: float) -> float:
    """Return `seconds`, less a random share of at most `share`."""
    return seconds * uniform(1.0 - share, 1.0)  # noqa: S311 nothing secret depends on it
