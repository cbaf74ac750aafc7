"""Limits that all clusters of a region share: in dollars an hour, and in launches an hour."""

from __future__ import annotations

import pytest

from tests.e2e.capacity.limits.test_quotas import ON_DEMAND, PRICE, explained, until_only
from tests.e2e.conftest import Start
from tests.e2e.observed.observing import ONE_SIZE, claims_of, pool_of
from tests.e2e.systems.system import CLUSTER
from tests.objects.manifests import Manifest, deployment, nodeclass


@pytest.mark.slow  # without real controllers: tests/integration/capacity/test_quota_overruns.py
@pytest.mark.parametrize(
    ("limit", "said"),
    [({"usdPerHour": f"{2.4 * PRICE:.3f}"}, "USD an hour"), ({"launchesPerHour": 2}, "launches an hour")],
)
def test_a_limit_over_all_clusters_stops_the_third_node(start: Start, limit: Manifest, said: str) -> None:
    system = start(options={"spendingLimits": {"all": limit}})
    system.apply(nodeclass(CLUSTER), pool_of("bounded", ONE_SIZE, ON_DEMAND))
    system.until_nodepools_ready()
    system.apply(deployment("bounded", 4, cpu="3", nodeSelector={"team": "bounded"}))
    until_only(system, 2, "bounded")
    system.until(
        "`explain pod` names the limit",
        lambda: "SpendingLimit" in (why := explained(system, "bounded")) and said in why,
    )
    system.stays("the limit holds", lambda: len(claims_of(system, "bounded")) == 2, seconds=5)
