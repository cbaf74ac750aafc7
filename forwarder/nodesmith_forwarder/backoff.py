"""How long to wait before trying again."""

from __future__ import annotations

from random import uniform


def wait_seconds(failures: int, first_seconds: float, longest_seconds: float = 30.0) -> float:
    """Return a wait that doubles with every failure in a row, less up to half of it by chance.

    The chance keeps forwarders that failed together from coming back together.
    """
    doubled = first_seconds * 2.0 ** min(max(0, failures - 1), 10)
    return jittered(min(longest_seconds, doubled), 0.5)


def jittered(seconds: float, share: float) -> float:
    """Return `seconds`, less up to `share` of them by chance."""
    return seconds * uniform(1.0 - share, 1.0)  # noqa: S311 nothing secret depends on it
