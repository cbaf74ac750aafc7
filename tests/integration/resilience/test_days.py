"""A day of some nodes with a week's faults: in the evening, nothing is leaked and no node is missing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.functions import Concern
from tests import builders
from tests.samples import sampled
from tests.scenarios.weeks import DAY, MINUTE, Fleet

NODES, DAILY_FAULTS = sampled((20, 0.35), whole=(50, 0.14))

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def evening() -> Fleet:
    """Return the fleet an hour after the last fault."""
    fleet = Fleet(NODES)
    fleet.plan(1, DAILY_FAULTS)
    fleet.observe()
    fleet.live(DAY + timedelta(hours=1))
    return fleet


def test_nothing_leaks_and_nothing_hangs(evening: Fleet) -> None:
    assert evening.unsettled() == []
    assert len(evening.cloud.alive()) == NODES == len(evening.cluster.nodes)


def test_no_pod_loses_its_grace_and_no_budget_is_violated(evening: Fleet) -> None:
    assert [*evening.harm, *evening.cluster.violations] == []


def test_every_kind_of_fault_has_happened(evening: Fleet) -> None:
    assert len(evening.faults) == 9
    assert evening.meter.deaths > 1
    assert len(evening.cloud.instances) >= NODES + 8


def test_notices_are_kept_until_interruption_has_handled_them(evening: Fleet) -> None:
    ended = len(evening.cloud.instances) - len(evening.cloud.alive())
    assert evening.usage.routed > evening.usage.calls["FakeNotices.keep"] >= ended
    assert evening.notices.kept[builders.CLUSTER] == {}


def test_skipped_ticks_are_counted_as_runs(evening: Fleet) -> None:
    assert evening.usage.runs[Concern.LIFECYCLE] >= evening.ticks[Concern.LIFECYCLE] - 10
    assert evening.runs < evening.usage.runs.total()


def test_most_minutes_have_no_tick(evening: Fleet) -> None:
    assert evening.ticks[Concern.LIFECYCLE] < DAY / MINUTE / 2
