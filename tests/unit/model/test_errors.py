"""Failures: errors of single items are raised at the end, after all items have been tried."""

from __future__ import annotations

import pytest

from nodesmith.errors import Conflict, Failures, Rejected, Transient


def tried(*outcomes: Exception | None) -> int:
    """Try each outcome, and return the number of tried ones."""
    met = 0
    with Failures() as failures:
        for number, error in enumerate(outcomes):
            with failures.of(f"claim {number}"):
                met += 1
                if error is not None:
                    raise error
    return met


def test_all_items_are_tried_before_failures_are_raised() -> None:
    with pytest.raises(Transient, match=r"^claim 0: 503; claim 2: no$"):
        tried(Transient("503"), None, Rejected("no"), None)


def test_without_failures_nothing_is_raised() -> None:
    assert tried(None, None) == 2


@pytest.mark.parametrize("error", [Conflict("moved on"), ValueError("a bug")], ids=repr)
def test_an_error_of_another_kind_is_raised_whatever_failed_before(error: Exception) -> None:
    with pytest.raises(type(error)):
        tried(Transient("503"), error)
