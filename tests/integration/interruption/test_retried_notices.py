"""Notices whose first three attempts fail: the replacement is launched in time, without ticks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.ec2.notices import WARNING
from tests.scenarios.retries import Attempt, RetriedWorld


@pytest.mark.parametrize("attempt", ["raises", "is throttled"])
def test_after_failed_attempts_the_replacement_is_launched_within_half_a_minute(attempt: Attempt) -> None:
    assert RetriedWorld(attempt).replaced_after() <= timedelta(seconds=30)


@pytest.mark.parametrize("attempt", ["dies", "dies in CreateFleet"])
def test_after_crashes_the_replacement_is_launched_before_ec2_reclaims_the_instance(
    attempt: Attempt,
) -> None:
    assert RetriedWorld(attempt).replaced_after() < WARNING
