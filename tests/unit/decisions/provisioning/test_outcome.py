"""When a run of provisioning counts as busy, so that its cluster is looked at again soon."""

from __future__ import annotations

import pytest

from nodesmith.controllers.provisioning import Outcome


def test_a_run_that_finds_nothing_to_do_is_not_busy() -> None:
    assert not Outcome().is_busy


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(launched=["default-x1"]),
        Outcome(given_up=["default-x1"]),
        Outcome(deferred=["default-x1"]),
        Outcome(postponed=["default-x1"]),
        Outcome(is_throttled=True),
        Outcome(is_cut=True),
        Outcome(unread=True),
    ],
)
def test_a_run_is_busy_after_any_single_thing_that_it_did_or_must_repeat(outcome: Outcome) -> None:
    assert outcome.is_busy
