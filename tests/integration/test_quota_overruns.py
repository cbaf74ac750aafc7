"""No quota is ever exceeded, however many functions buy at once and wherever they die."""

from __future__ import annotations

import pytest

from tests.quotaoverruns import NODES, at_once, crashed, undisturbed
from tests.samples import sampled

WRITERS = 50


def test_without_disturbance_quotas_are_used_and_not_exceeded() -> None:
    world = undisturbed()
    assert world.overshoots == []
    assert world.most == NODES


@pytest.mark.exhaustive
def test_a_crash_before_or_after_any_call_exceeds_no_quota_and_leaves_none_unused() -> None:
    found = {
        moment: (world.overshoots, len(world.cloud.alive())) for moment, world in crashed(sampled(8, whole=0))
    }
    assert found
    assert {moment: outcome for moment, outcome in found.items() if outcome != ([], NODES)} == {}


@pytest.mark.parametrize("dying", [False, True], ids=["none dies", "some die"])
def test_fifty_functions_that_decide_before_any_of_them_commits_exceed_no_quota(dying: bool) -> None:
    world = at_once(WRITERS, dying=dying)
    assert world.decided == WRITERS - 1
    assert world.overshoots == []
    assert len(world.cloud.alive()) == NODES
