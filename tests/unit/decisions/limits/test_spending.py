"""Limits of a month, of launches and over several clusters: how they are read, what counts, and what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.dispatch import limit_findings
from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.readiness.launchconditions import NEAR_LIMIT, limit_condition
from nodesmith.decisions.reporting.notifications import of_spending
from nodesmith.decisions.scheduling.offerings.quotas import on_nodepool, usages
from nodesmith.errors import Conflict
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_MONTH, parse_nodepool
from nodesmith.model.ledger.items import ledger_item, read_ledger
from nodesmith.model.ledger.region import Region, Spending
from nodesmith.model.ledger.spending import (
    Launches,
    Share,
    Spent,
    month_end,
    month_of,
    seconds_left,
    spent_by,
)
from nodesmith.model.limits.quotas import amount_in_words, parse_quota
from nodesmith.model.limits.spendinglimits import SpendingLimit, parse_spending_limit, read_spending_limit
from nodesmith.model.policies import MONTHLY, USD_PER_MONTH, NodeSettings, parse_cluster_limits
from nodesmith.settings import read_settings
from tests.builders import NOW, claim, inputs, ledger, nodepool_manifest, pods, shape, snapshot
from tests.objects.quotas import quota_manifest

PENDING = pods(shape("3"))
TEAM = {"key": "team", "operator": "In", "values": ["red"]}
HOURS_LEFT = 228
"""From noon on the 21st of November."""


def limit(name: str = "all", **spec: Any) -> SpendingLimit:
    found, faults = read_spending_limit(name, {"format": 1, **spec})
    assert not faults
    return found


def pool_with(**annotations: str) -> dict[str, Any]:
    manifest = nodepool_manifest()
    manifest["metadata"]["annotations"] = {
        f"nodesmith.dev/{k.replace('_', '-')}": v for k, v in annotations.items()
    }
    return manifest


def region(*limits: SpendingLimit, shares: Any = None, **fields: Any) -> Region:
    """Return what the cluster east shares with west, which takes nothing unless `shares` say otherwise."""
    known = {each.key: {"west": Share(0, "2026-11", 0)} for each in limits} if shares is None else shares
    return Region("east", limits, ("east", "west"), known, **fields)


def running(name: str = "a", price: float = 0.4, **fields: Any) -> NodeClaim:
    return claim(
        name,
        phase=Phase.INITIALIZED,
        price_hourly_usd=price,
        instance_id=f"i-{name}",
        **{"created_at": NOW, **fields},
    )


class TestMonths:
    def test_a_month_is_one_of_utc(self) -> None:
        assert month_of(datetime.fromisoformat("2026-12-01T01:00:00+02:00")) == "2026-11"
        assert month_end(NOW).isoformat() == "2026-12-01T00:00:00+00:00"
        assert seconds_left(NOW) == HOURS_LEFT * 3600

    def test_a_gone_node_has_cost_its_price_since_it_was_bought_or_the_month_began(self) -> None:
        recent = spent_by(running(created_at=NOW - timedelta(hours=5)), NOW)
        long = spent_by(running(created_at=NOW - timedelta(days=300)), NOW)
        assert recent is not None
        assert long is not None
        assert (recent.amount, long.amount) == (400_000 * 5 * 3600, 400_000 * 492 * 3600)

    def test_a_claim_that_never_had_an_instance_has_cost_nothing(self) -> None:
        assert spent_by(replace(running(), instance_id=""), NOW) is None

    def test_spending_is_kept_by_labels_of_nodepools_only(self) -> None:
        labels = {"team": "red", "karpenter.sh/nodepool": "web", "topology.kubernetes.io/zone": "a"}
        spent = spent_by(running(labels=labels, created_at=NOW - timedelta(hours=1)), NOW)
        assert spent is not None
        assert spent.labels == {"team": "red", "karpenter.sh/nodepool": "web"}


class TestLaunches:
    def test_no_hour_has_more_than_what_counts(self) -> None:
        first = Launches().noted(3, NOW)
        both = first.noted(4, NOW + timedelta(minutes=59))
        assert both.recent(NOW + timedelta(minutes=59)) == 7
        assert both.recent(NOW + timedelta(minutes=60)) == 7
        assert both.recent(NOW + timedelta(minutes=66)) == 4

    def test_they_are_freed_an_hour_after_the_end_of_their_interval(self) -> None:
        freed = Launches().noted(3, NOW).freed_at(NOW)
        assert freed == NOW + timedelta(minutes=65)
        assert Launches().noted(3, NOW).recent(freed) == 0

    def test_times_that_no_clock_can_have_shown_do_not_count(self) -> None:
        assert Launches().noted(9, NOW + timedelta(hours=2)).recent(NOW) == 0

    @pytest.mark.parametrize("item", [None, 3, ["x"], {"a": 1}, [[1]]])
    def test_a_document_that_no_function_writes_has_none(self, item: Any) -> None:
        assert Launches.from_item(item) == Launches()

    def test_a_commit_beyond_the_limit_of_the_cluster_or_the_account_is_refused(self) -> None:
        pending = [claim(f"a-{n}", phase=Phase.PENDING, created_at=NOW) for n in range(3)]
        with pytest.raises(Conflict, match="the cluster may request 2"):
            Spending(most_launches=2).charged((), pending, NOW)
        of_account = region(limit(launchesPerHour=2))
        with pytest.raises(Conflict, match="the account may request 2"):
            Spending(region=of_account).charged((), pending, NOW)
        assert Spending(most_launches=3).charged((), pending, NOW).launches_left(NOW) == 0

    def test_claims_that_have_an_instance_already_are_no_launches(self) -> None:
        assert Spending(most_launches=1).charged((), [running("a"), running("b")], NOW) == Spending(
            most_launches=1
        )

    @pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "9999999"])
    def test_the_setting_cannot_turn_the_limit_off(self, text: str) -> None:
        with pytest.raises(Exception, match=r"LAUNCHES_PER_HOUR.*must be a whole number from 1"):
            read_settings({"AWS_REGION": "us-east-1", "LAUNCHES_PER_HOUR": text})

    def test_pods_learn_which_limit_is_reached_and_when_to_look_again(self) -> None:
        used = Spending(Launches().noted(500, NOW))
        plan = decide(inputs(pods=PENDING, ledger=ledger(spending=used)))
        (group,) = plan.unplaced
        assert not plan.nodes
        assert (
            "the limit of 500 launches an hour of the cluster is reached (500 launches an hour used"
            in group.cause.text
        )
        assert group.cause.fix == (
            "for one more node raise LAUNCHES_PER_HOUR of the cluster's registration to at least 501"
        )
        assert plan.due == NOW + timedelta(minutes=65)


class TestOfNodePools:
    def test_a_purchase_fits_into_the_month_until_its_end(self) -> None:
        pool = pool_with(limit_usd_per_month="100")
        there = running(price=0.1, created_at=NOW - timedelta(hours=100))
        spent = Spent("2026-11", {"karpenter.sh/nodepool": "default"}, 5 * MONTHLY)
        before = Spent("2026-10", {"karpenter.sh/nodepool": "default"}, 900 * MONTHLY)
        known = ledger(claims=(there,), spending=Spending(spent=(spent, before)))
        (usage,) = usages(snapshot(nodepools=(pool,)), known, NodeSettings(), NOW)
        used = 5 + 0.1 * (100 + HOURS_LEFT)
        assert usage.used.of(USD_PER_MONTH) == round(used * MONTHLY)
        assert usage.left(USD_PER_MONTH) == int((100 - used) / HOURS_LEFT * 1_000_000)

    def test_shortly_before_its_end_nodes_must_fit_for_a_whole_day(self) -> None:
        late = month_end(NOW) - timedelta(hours=1)
        known = ledger(claims=(running(price=1, created_at=late - timedelta(hours=1)),))
        seen = snapshot(nodepools=(pool_with(limit_usd_per_month="50"),))
        (usage,) = usages(seen, known, NodeSettings(), late)
        assert usage.used.of(USD_PER_MONTH) == 2 * MONTHLY
        assert usage.left(USD_PER_MONTH) == (50 - 2 - 23) * 1_000_000 // 24

    def test_pods_learn_what_the_month_allows_and_what_is_used(self) -> None:
        seen = snapshot(pods=PENDING, nodepools=(pool_with(limit_usd_per_month="0.5"),))
        plan = decide(inputs(snapshot=seen))
        (group,) = plan.unplaced
        assert (
            "the limit of 0.5 USD a month of NodePool default is reached (0 USD a month used"
            in group.cause.text
        )
        assert (
            "raise annotation nodesmith.dev/limit-usd-per-month of NodePool default to at least"
            in group.cause.fix
        )

    @pytest.mark.parametrize("text", ["12 EUR", "€5", "nan", "-3", "5,5", "", "1e400"])
    def test_a_limit_that_is_no_number_of_dollars_is_reported_and_buys_nothing(self, text: str) -> None:
        parsed = parse_nodepool(pool_with(limit_usd_per_month=text))
        (problem,) = parsed.problems
        assert problem.field == f"metadata.annotations[{LIMIT_USD_PER_MONTH}]"
        assert "US dollars" in problem.remedy
        plan = decide(
            inputs(snapshot=snapshot(pods=PENDING, nodepools=(pool_with(limit_usd_per_month=text),)))
        )
        assert not plan.nodes

    def test_on_the_last_day_they_learn_that_a_month_must_pay_for_a_whole_day(self) -> None:
        late = month_end(NOW) - timedelta(hours=1)
        seen = snapshot(pods=PENDING, nodepools=(pool_with(limit_usd_per_month="50"),))
        known = ledger(claims=(running(price=1, created_at=late - timedelta(hours=40)),))
        (group,) = decide(replace(inputs(snapshot=seen, ledger=known), now=late)).unplaced
        assert (
            "the limit of 50 USD a month of NodePool default is reached (41 USD a month used since"
            " 2026-11-29T07:00:00Z, on its last day a month must pay for a whole day, 65.29 USD a month"
            " with one more node)"
        ) in group.cause.text
        assert group.cause.fix.endswith("to at least 65.29")

    def test_pods_that_wait_for_a_month_are_decided_about_when_the_next_one_begins(self) -> None:
        seen = snapshot(pods=PENDING, nodepools=(pool_with(limit_usd_per_month="0.5"),))
        assert decide(inputs(snapshot=seen)).due == month_end(NOW)

    def test_so_are_pods_for_which_two_limits_together_leave_no_room(self) -> None:
        spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
        no_spot = quota_manifest(limits={"nodes": "0"}, expressions=[spot])
        too_little_for_others = pool_with(limit_usd_per_month="20")
        seen = snapshot(pods=PENDING, nodepools=(too_little_for_others,), quotas=(no_spot,))
        plan = decide(inputs(snapshot=seen))
        assert plan.unplaced[0].cause.blocking == "quotas together"
        assert plan.due == month_end(NOW)

    def test_a_limit_an_hour_is_not_looked_at_again_when_a_month_begins(self) -> None:
        seen = snapshot(pods=PENDING, nodepools=(pool_with(limit_usd_per_hour="0.001"),))
        assert decide(inputs(snapshot=seen)).due is None

    def test_both_limits_hold_and_the_registration_may_have_a_month_as_well(self) -> None:
        pool = parse_nodepool(pool_with(limit_usd_per_hour="2", limit_usd_per_month="900")).value
        assert pool is not None
        assert pool.options.limits_usd == {
            "nodesmith.dev/usd-per-hour": 2_000_000,
            "nodesmith.dev/usd-per-month": 900 * MONTHLY,
        }
        assert parse_cluster_limits("nodesmith.dev/usd-per-month=9") == ((USD_PER_MONTH, 9 * MONTHLY),)
        with pytest.raises(ValueError, match=r"did you mean 'nodesmith.dev/usd-per-month'"):
            parse_cluster_limits("nodesmith.dev/usd-per-mont=9")

    def test_a_capacityquota_has_no_month(self) -> None:
        parsed = parse_quota(quota_manifest(limits={USD_PER_MONTH: "5"}))
        assert "annotation nodesmith.dev/limit-usd-per-month" in parsed.problems[0].remedy

    def test_dollars_a_month_are_rounded_up_to_cents(self) -> None:
        assert amount_in_words(USD_PER_MONTH, MONTHLY * 12 + 1) == "12.01 USD a month"
        assert amount_in_words(USD_PER_MONTH, MONTHLY * 100) == "100 USD a month"


class TestSpendingLimits:
    @pytest.mark.parametrize(
        ("spec", "field", "remedy"),
        [
            ({"usdPerHour": "12 EUR"}, "usdPerHour", "convert 12 EUR into US dollars"),
            ({"usdPerMonth": "$5"}, "usdPerMonth", "did you mean '5'"),
            ({"usdPerHour": float("nan")}, "usdPerHour", "such as 5 or 12.50"),
            ({"usdPerHour": -1}, "usdPerHour", "such as 5 or 12.50"),
            ({"usdPerHour": True}, "usdPerHour", "such as 5 or 12.50"),
            ({"usdPerHuor": "5"}, "usdPerHuor", "did you mean 'usdPerHour'"),
            ({}, "value", "give usdPerHour"),
            ({"usdPerHour": "5", "format": 2}, "format", "must be 1"),
            ({"usdPerHour": "5", "clusters": "web"}, "clusters", "list of names"),
            ({"usdPerHour": "5", "selector": {"matchLabel": {}}}, "selector.matchLabel", "matchLabels"),
            ({"usdPerHour": "5", "selector": {"matchLabels": {"a": 1}}}, "selector.matchLabels.a", "text"),
            (
                {"usdPerHour": "5", "selector": {"matchExpressions": [{**TEAM, "values": "red"}]}},
                "selector.matchExpressions[0].values",
                "list of texts",
            ),
            (
                {"usdPerHour": "5", "selector": {"matchExpressions": [{**TEAM, "values": ["red", 1]}]}},
                "selector.matchExpressions[0].values",
                "list of texts",
            ),
            (
                {"usdPerHour": "5", "selector": {"matchExpressions": [{**TEAM, "key": None}]}},
                "selector.matchExpressions[0]",
                "must have a key and an operator",
            ),
            (
                {"usdPerHour": "5", "selector": {"matchExpressions": [{**TEAM, "value": ["blue"]}]}},
                "selector.matchExpressions[0].value",
                "did you mean 'values'",
            ),
            ({"launchesPerHour": 0}, "launchesPerHour", "from 1 to"),
            ({"launchesPerHour": 9, "clusters": ["web"]}, "launchesPerHour", "LAUNCHES_PER_HOUR"),
            (
                {"usdPerMonth": "5", "selector": {"matchLabels": {"topology.kubernetes.io/zone": "a"}}},
                "usdPerMonth",
                "select labels of NodePools",
            ),
        ],
    )
    def test_bad_input_is_named_with_a_remedy_and_allows_nothing(
        self, spec: dict[str, Any], field: str, remedy: str
    ) -> None:
        found, faults = read_spending_limit("red", {"format": 1, **spec})
        assert any(each.startswith(f"{field}: found") and remedy in each for each in faults), faults
        assert found.quota.fault.startswith(f"{field} of SSM parameter /nodesmith/limits/red")
        assert dict(found.quota.limits) == {"nodes": 0}

    def test_text_that_is_no_json_allows_nothing_anywhere(self) -> None:
        found = parse_spending_limit("red", "usdPerHour: 5")
        assert found.covers("east")
        assert "must be a JSON object" in found.quota.remedy

    def test_it_is_read_as_it_was_written(self) -> None:
        labels = {
            "matchLabels": {"team": "red"},
            "matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}],
        }
        made = limit(clusters=["west", "east"], selector=labels, usdPerHour=4, usdPerMonth="90.5")
        assert SpendingLimit.from_item(json.loads(json.dumps(made.to_item()))) == made

    def test_what_others_take_counts_and_only_what_is_left_is_bought(self) -> None:
        made = limit(usdPerHour="1")
        shared = region(made, shares={made.key: {"west": Share(990_000, "2026-11", 0)}})
        plan = decide(inputs(pods=PENDING, ledger=ledger(spending=Spending(region=shared))))
        (group,) = plan.unplaced
        assert not plan.nodes
        assert (
            "the limit of 1 USD an hour of SpendingLimit all is reached (0.99 USD an hour used"
            in group.cause.text
        )
        assert "raise usdPerHour of SSM parameter /nodesmith/limits/all to at least" in group.cause.fix
        assert plan.due == NOW + timedelta(minutes=2)

    def test_a_team_pays_only_for_nodes_with_its_labels(self) -> None:
        red = limit("red", selector={"matchLabels": {"team": "red"}}, usdPerHour="0.01")
        spending = Spending(region=region(red))
        assert decide(inputs(pods=PENDING, ledger=ledger(spending=spending))).nodes
        of_team = nodepool_manifest()
        of_team["spec"]["template"]["metadata"] = {"labels": {"team": "red"}}
        seen = snapshot(pods=PENDING, nodepools=(of_team,))
        assert not decide(inputs(snapshot=seen, ledger=ledger(spending=spending))).nodes

    def test_nothing_is_bought_while_it_is_not_known_what_a_cluster_takes(self) -> None:
        spending = Spending(region=region(limit(usdPerHour="100"), shares={}))
        (group,) = decide(inputs(pods=PENDING, ledger=ledger(spending=spending))).unplaced
        assert "what cluster west takes of it is not known yet" in group.cause.text

    def test_a_limit_of_another_cluster_is_no_obstacle(self) -> None:
        spending = Spending(region=region(limit(usdPerHour="0", clusters=["west"]), shares={}))
        assert decide(inputs(pods=PENDING, ledger=ledger(spending=spending))).nodes

    def test_in_a_new_month_what_runs_counts_for_all_of_it(self) -> None:
        share = Share(500_000, "2026-10", 7)
        assert share.in_month(NOW) == 500_000 * 30 * 24 * 3600
        assert Share(500_000, "2026-11", 7).in_month(NOW) == 7

    def test_shares_of_clusters_and_limits_that_are_gone_are_left_out(self) -> None:
        made = limit(usdPerHour="1")
        old = {made.key: {"west": Share(1), "gone": Share(2)}, "old:1": {"west": Share(3)}}
        after = region(made, shares=old).with_own({made.key: Share(4)})
        assert after.shares == {made.key: {"west": Share(1), "east": Share(4)}}

    def test_nodepools_show_it_from_80_percent(self) -> None:
        made = limit(usdPerHour="1")
        shared = region(made, shares={made.key: {"west": Share(450_000, "2026-11", 0)}})
        known = ledger(claims=(running(),), spending=Spending(region=shared))
        pool = parse_nodepool(nodepool_manifest()).value
        assert pool is not None
        mine = on_nodepool(pool, usages(snapshot(), known, NodeSettings(), NOW))
        (condition,) = limit_condition(mine, nodepool_manifest(), NEAR_LIMIT, "NodePool default")
        assert (condition.status, condition.reason) == ("True", "LimitNearlyReached")
        assert condition.message == "SpendingLimit all: 0.85 of 1 USD an hour used"

    @pytest.mark.parametrize(("price", "said"), [(0.0, "closed by a limit of 0"), (0.4, "0.4 of 0")])
    def test_a_limit_of_0_closes_nodepools_and_is_a_finding_only_if_something_is_spent(
        self, price: float, said: str
    ) -> None:
        made = limit(usdPerHour="0")
        known = ledger(claims=(running(price=price),), spending=Spending(region=region(made)))
        pool = parse_nodepool(nodepool_manifest()).value
        assert pool is not None
        mine = on_nodepool(pool, usages(snapshot(), known, NodeSettings(), NOW))
        (condition,) = limit_condition(mine, nodepool_manifest(), NEAR_LIMIT, "NodePool default")
        used = " used" if price else ""
        assert condition.message == f"SpendingLimit all: {said} USD an hour{used}"
        shares = {made.key: {"east": Share(int(price * 1_000_000))}}
        found = list(limit_findings(Region("", (made,), ("east",), shares), NOW))
        assert [each.kind for each in found] == (["LimitReached"] if price else [])

    def test_dispatch_finds_what_is_unreadable_nearly_used_and_used_up(self) -> None:
        near, over, bad = (
            limit("near", usdPerHour="1"),
            limit("over", usdPerMonth="1"),
            parse_spending_limit("bad", ""),
        )
        shares = {
            near.key: {"a": Share(400_000), "b": Share(400_000)},
            over.key: {"a": Share(9, "2026-11", MONTHLY)},
        }
        found = list(limit_findings(Region("", (near, over, bad), ("a", "b"), shares), NOW))
        assert [each.kind for each in found] == ["LimitNearlyReached", "LimitReached", "LimitUnreadable"]
        assert found[1].message == "SpendingLimit over: 1 USD a month"


def test_what_clusters_share_is_a_finding_of_the_region_and_no_notification_of_each_cluster() -> None:
    made = limit("red", usdPerHour="1")
    known = ledger(claims=(running(price=1.0),), spending=Spending(region=region(made)))
    used = usages(snapshot(), known, NodeSettings(), NOW)
    assert [usage.quota.owner for usage in used] == ["SpendingLimit red"]
    assert list(of_spending(used, "east", NOW)) == []
    shared = Region("", (made,), ("east", "west"), {made.key: {"east": Share(1_000_000), "west": Share()}})
    (finding,) = limit_findings(shared, NOW)
    assert (finding.kind, finding.cluster) == ("LimitReached", "")


def test_a_ledger_with_spending_is_read_as_it_was_written() -> None:
    made = limit(usdPerHour="1")
    spent = Spent("2026-11", {"team": "red"}, 7)
    spending = Spending(
        Launches().noted(3, NOW), 9, (spent,), region(made, launches=Launches().noted(2, NOW))
    )
    known = ledger(claims=(running(),), spending=spending)
    assert read_ledger(json.loads(json.dumps(ledger_item(known)))).spending == spending
