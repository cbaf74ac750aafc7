"""What clusters share of limits: the ledger in memory and the one in DynamoDB, with the rights of the functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.dynamodb.regionitems import DynamoSharedLimits
from nodesmith.errors import Conflict
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.region import SHORT_FOR, CallBudget, Region, Scarcity
from nodesmith.model.ledger.spending import Share
from nodesmith.model.limits.spendinglimits import SpendingLimit, parse_spending_limit
from nodesmith.ports import Store
from tests import builders
from tests.awscalls.acting import ActingClient, Role
from tests.contract.aws.test_store import TABLE, dynamodb
from tests.fakes.store import FakeStore
from tests.fakes.table import FakeTable

__all__ = ["dynamodb"]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LIMIT = parse_spending_limit("all", json.dumps({"format": 1, "usdPerHour": "1"}))
CLUSTERS = ("east", "west")
Stores = Callable[[str], Store]


def pending(name: str, price: float = 0.4) -> NodeClaim:
    return builders.claim(name, phase=Phase.PENDING, price_hourly_usd=price, created_at=NOW)


@pytest.fixture(params=["memory", "table", "dynamodb"])
def stores(request: pytest.FixtureRequest) -> Stores:
    """Return a function that returns the store of a cluster. All share one region with a limit of a dollar an hour."""
    if request.param == "memory":
        shared, budget = [Region("", (LIMIT,), CLUSTERS)], [CallBudget()]
        return lambda name: FakeStore(name=name, region=shared, budget=budget, wall_clock=lambda: NOW)
    client: Any = FakeTable() if request.param == "table" else request.getfixturevalue("dynamodb")
    is_real = request.param == "dynamodb"

    def acting(concern: str, cluster: str) -> Any:
        return ActingClient(client, Role(concern, cluster, "us-east-1")) if is_real else client

    dispatch: Any = client
    assert DynamoSharedLimits(dispatch, TABLE).save([LIMIT], CLUSTERS)
    return lambda name: DynamoStore(acting("provisioning", name), TABLE, name, lambda: NOW, shares=True)


def ready(stores: Stores) -> tuple[Store, Store]:
    """Return the stores of both clusters, after each has told that it takes nothing."""
    east, west = stores("east"), stores("west")
    for store in (east, west):
        store.save_shares()
    for store in (east, west):
        store.load()
    return east, west


def share(store: Store, cluster: str) -> Share | None:
    region = store.load().spending.region
    assert region is not None
    return region.shares.get(LIMIT.key, {}).get(cluster)


def test_nothing_is_bought_until_each_cluster_has_told_what_it_takes(stores: Stores) -> None:
    east = stores("east")
    east.save_shares()
    version = east.load().version
    with pytest.raises(Conflict):
        east.commit(version, [pending("a")], "d")
    stores("west").save_shares()
    east.commit(east.load().version, [pending("a")], "d")
    assert [claim.name for claim in east.load().claims] == ["a"]


def test_a_commit_writes_what_its_cluster_then_takes(stores: Stores) -> None:
    east, west = ready(stores)
    east.commit(0, [pending("a"), pending("b")], "d")
    taken = share(west, "east")
    assert taken is not None
    assert (taken.micro_usd, taken.month) == (800_000, "2026-11")
    assert taken.monthly == 800_000 * 228 * 3600  # from noon on the 21st


def test_two_clusters_that_decided_at_once_do_not_exceed_the_limit_together(stores: Stores) -> None:
    east, west = ready(stores)
    east.commit(0, [pending("a"), pending("b")], "d")
    with pytest.raises(Conflict):
        west.commit(0, [pending("c")], "d")
    assert west.load().claims == ()
    west.commit(0, [pending("d", 0.2)], "d")
    assert [claim.name for claim in west.load().claims] == ["d"]


def test_commits_of_two_clusters_that_both_fit_do_not_disturb_each_other(stores: Stores) -> None:
    east, west = ready(stores)
    east.commit(0, [pending("a")], "d")
    west.commit(0, [pending("b")], "d")
    spending = east.load().spending
    assert spending.region is not None
    assert spending.region.launches.recent(NOW) == 2
    assert spending.launches.recent(NOW) == 1


def test_what_a_claim_took_is_released_once_it_has_failed(stores: Stores) -> None:
    east, west = ready(stores)
    east.commit(0, [pending("a"), pending("b")], "d")
    for claim in east.load().claims:
        east.save(claim.given_up("InsufficientCapacity", "none", NOW))
    east.save_shares()
    taken = share(west, "east")
    assert taken is not None
    assert taken.micro_usd == 0
    west.load()
    west.commit(0, [pending("c"), pending("d")], "d")


def test_launches_of_an_hour_are_limited_in_the_commit(stores: Stores) -> None:
    east, _ = ready(stores)
    for number in range(5):
        east.load()
        east.commit(number, [pending(f"a-{number}-{n}", 0) for n in range(90)], "d")
    assert east.load().spending.launches_left(NOW) == 50
    with pytest.raises(Conflict):
        east.commit(5, [pending(f"b-{n}", 0) for n in range(51)], "d")
    east.load()
    east.commit(5, [pending(f"b-{n}", 0) for n in range(50)], "d")
    assert east.load().spending.launches_left(NOW) == 0


def with_a_node(stores: Stores) -> tuple[Store, NodeClaim]:
    """Return a cluster's store, and its claim of a node that has run for three hours."""
    east, _ = ready(stores)
    running = replace(
        pending("a"), phase=Phase.LAUNCHED, instance_id="i-1", created_at=NOW - timedelta(hours=3)
    )
    east.commit(0, [running], "d")
    (claim,) = east.load().claims
    return east, claim


def test_a_forgotten_node_leaves_what_it_has_cost_this_month_once(stores: Stores) -> None:
    east, claim = with_a_node(stores)
    east.forget(claim)
    east.forget(claim)
    (spent,) = east.load().spending.spent
    assert (spent.month, spent.amount) == ("2026-11", 400_000 * 3 * 3600)


def test_a_claim_that_has_changed_is_neither_forgotten_nor_counted(stores: Stores) -> None:
    east, claim = with_a_node(stores)
    east.save(claim)
    with pytest.raises(Conflict):
        east.forget(claim)
    ledger = east.load()
    assert (len(ledger.claims), ledger.spending.spent) == (1, ())


def test_a_node_of_an_earlier_month_counts_from_the_month_on(stores: Stores) -> None:
    east, _ = ready(stores)
    running = replace(
        pending("a"), phase=Phase.LAUNCHED, instance_id="i-1", created_at=NOW - timedelta(days=90)
    )
    east.commit(0, [running], "d")
    east.forget(east.load().claims[0])
    assert [spent.amount for spent in east.load().spending.spent] == [400_000 * (20 * 24 + 12) * 3600]


def test_limits_are_written_only_if_they_or_the_clusters_have_changed() -> None:
    shared = DynamoSharedLimits(FakeTable(), TABLE)
    assert shared.save([LIMIT], CLUSTERS)
    assert not shared.save([LIMIT], CLUSTERS)
    assert shared.save([LIMIT], ("east",))
    assert shared.region().limits == (LIMIT,)
    assert isinstance(shared.region().limits[0], SpendingLimit)


def test_all_clusters_read_with_their_ledger_that_ec2_has_throttled_a_call(stores: Stores) -> None:
    east, west = stores("east"), stores("west")
    assert not west.load().spending.is_short_of_calls(NOW)
    east.record_scarcity(Scarcity(is_throttled=True), NOW)
    assert west.load().spending.is_short_of_calls(NOW)
    assert not west.load().spending.is_short_of_calls(NOW + SHORT_FOR)


def test_all_clusters_read_with_their_ledger_in_which_zones_one_has_found_nothing_left(
    stores: Stores,
) -> None:
    east, west = stores("east"), stores("west")
    until = NOW + timedelta(minutes=3)
    east.record_scarcity(Scarcity(lost={("spot", "us-east-1a"): until}), NOW)
    east.record_scarcity(Scarcity(lost={("on-demand", "us-east-1a"): until}), NOW)
    west.take_calls(1, NOW)
    ledger = west.load()
    assert ledger.lost_zones(NOW) == {("spot", "us-east-1a"), ("on-demand", "us-east-1a")}
    assert ledger.lost_zones(until) == frozenset()


def test_a_zone_is_not_lost_for_longer_than_a_back_off_may_last_whatever_the_shared_item_says(
    stores: Stores,
) -> None:
    east, west = stores("east"), stores("west")
    east.record_scarcity(Scarcity(lost={("spot", "us-east-1a"): NOW + timedelta(days=1)}), NOW)
    assert west.load().lost_zones(NOW) == frozenset()
