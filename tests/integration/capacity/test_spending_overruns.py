"""No limit in dollars or of launches is exceeded, however many functions of two clusters buy and wherever they die."""

from __future__ import annotations

import pytest

from nodesmith.model.functions import Concern
from tests.experiments.spendingoverruns import MONEY, MONTH, Limits, Pair, at_once, crashed, undisturbed
from tests.samples import sampled

WRITERS = sampled(20, whole=50)
BOTH = pytest.mark.parametrize("limits", [MONEY, MONTH], ids=["money", "month and launches"])


@BOTH
def test_limits_are_used_and_what_gone_nodes_have_cost_still_counts(limits: Limits) -> None:
    pair = undisturbed(limits)
    first, second = (sum(count for _, count in world.requested) for world in pair.worlds)
    assert pair.overshoots == []
    assert first > second >= 4
    assert pair.worlds[0].store.spent
    assert not pair.worlds[1].store.spent


def test_the_limit_in_the_way_is_named_with_its_value_and_what_is_used() -> None:
    pair = undisturbed(MONTH)
    reported = {each.message for world in pair.worlds for each in world.cluster.events if each.kind == "Pod"}
    events = {(e.kind, e.reason) for world in pair.worlds for e in world.cluster.events}
    assert any(
        "the limit of 110 USD a month of SpendingLimit all is reached (108.53 USD a month used since" in each
        and "raise usdPerMonth of SSM parameter /nodesmith/limits/all to at least" in each
        for each in reported
    )
    assert {("NodePool", "LimitReached"), ("NodePool", "LimitNearlyReached")} <= events


@BOTH
@pytest.mark.exhaustive
def test_a_crash_before_or_after_any_call_exceeds_no_limit(limits: Limits) -> None:
    found = {moment: pair.overshoots for moment, pair in crashed(limits, sampled(2, whole=0))}
    assert found
    assert {moment: overshoots for moment, overshoots in found.items() if overshoots} == {}


@BOTH
@pytest.mark.exhaustive
def test_many_functions_of_two_clusters_that_decide_before_any_commits_exceed_no_limit(
    limits: Limits,
) -> None:
    pair = at_once(limits, WRITERS, dying=True)
    assert pair.decided == WRITERS - 1
    assert pair.overshoots == []


def test_what_a_failed_launch_took_is_released_once_readiness_has_looked() -> None:
    pair = Pair(MONEY)
    east, west = pair.worlds
    east.observe()
    east.cloud.raise_before = _dies
    with pytest.raises(ConnectionError):
        east.visit(Concern.PROVISIONING)
    key = pair.region[0].limits[0].key
    assert pair.region[0].shares[key]["east"].micro_usd > 0
    for name, claim in list(east.store.claims.items()):
        east.store.claims[name] = claim.given_up("LaunchTimeout", "no instance", east.now)
    east.store.save_shares()
    assert pair.region[0].shares[key]["east"].micro_usd == 0
    assert west.store.load().spending.region is not None


def _dies(_: object) -> None:
    raise ConnectionError
