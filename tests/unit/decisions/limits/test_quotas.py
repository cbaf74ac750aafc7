"""Quotas: limits over nodes that labels select, in resources and in dollars, hold together whatever is bought."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.cluster import Observer
from nodesmith.controllers.launching.unschedulable import publish_unplaced, write_unplaced
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Plan, by_hand, decide, replicas
from nodesmith.decisions.provisioning.nodepools.onsale import considered
from nodesmith.decisions.readiness.launchconditions import NEAR_LIMIT, limit_condition, limit_events
from nodesmith.decisions.readiness.readiness import QUOTA_NEAR_LIMIT, StatusUpdate, quota_update
from nodesmith.decisions.scheduling.offerings.quotas import RemainingQuotas, exceeded, usages
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_HOUR, parse_nodepool
from nodesmith.model.limits.quotas import parse_quota
from nodesmith.model.policies import NodeSettings, parse_cluster_limits
from nodesmith.observation.decoding import decode, encode
from nodesmith_cli.views.explaining.commands import pool_lines
from nodesmith_cli.views.status import lines, report_of
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.backends.embedded import EmbeddedCluster
from tests.builders import (
    CLUSTER,
    EXPRESS,
    NOW,
    ZONES,
    claim,
    expression,
    inputs,
    ledger,
    node,
    nodeclaim_manifest,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cluster import FakeCluster
from tests.fakes.store import FakeStore
from tests.objects.fleets import fleet, running, worker
from tests.objects.fleets import pool as fleet_pool
from tests.objects.quotas import USD, dearest_usd, dollar_pool, quota_manifest

CPU, ZONE = "karpenter.k8s.aws/instance-cpu", "topology.kubernetes.io/zone"
FOUR = (*EXPRESS, expression(CPU, "In", "4"))
ON_DEMAND = (*FOUR[1:], expression("karpenter.sh/capacity-type", "In", "on-demand"))
THREE_CPU = shape("3")
RED = {"team": "red"}


def plan(
    count: int,
    *quotas: dict[str, Any],
    pools: Sequence[dict[str, Any]] = (),
    of: Any = THREE_CPU,
    **known: Any,
) -> Plan:
    """Decide for pods of which a node with four CPUs holds one."""
    limits = known.pop("cluster", "")
    fields = {"nodepools": tuple(pools) or (nodepool_manifest(requirements=FOUR),), "quotas": quotas}
    seen = snapshot(pods=pods(of, count), **fields, nodes=known.pop("nodes", ()))
    settings = NodeSettings(fragility_tolerance=0, cluster_limits=parse_cluster_limits(limits))
    return decide(inputs(snapshot=seen, settings=settings, **known))


def pools_of(decided: Plan) -> Counter[str]:
    return Counter(each.claim.nodepool for each in decided.nodes)


def reason(decided: Plan) -> str:
    (group,) = decided.unplaced
    return f"{group.cause}"


class TestSelection:
    def test_nodepools_share_a_quota_over_a_label_of_both(self) -> None:
        pools = [
            nodepool_manifest(name, requirements=(*FOUR, expression(ZONE, "In", zone)), labels=RED)
            for name, zone in zip("abc", ZONES, strict=True)
        ]
        bound = [
            pod
            for number, zone in enumerate(ZONES)
            for pod in pods(shape("3", nodeSelector={ZONE: zone}), 2, prefix=f"in-{number}")
        ]
        found = decide(
            inputs(
                snapshot=snapshot(pods=bound, nodepools=tuple(pools), quotas=(quota_manifest(labels=RED),))
            )
        )
        assert len(found.nodes) == 3
        assert sum(len(group.pods) for group in found.unplaced) == 3

    def test_a_quota_leaves_nodes_that_it_does_not_select_alone(self) -> None:
        pools = (
            nodepool_manifest("red", requirements=FOUR, labels=RED, weight=10),
            nodepool_manifest("blue", requirements=FOUR),
        )
        found = plan(5, quota_manifest(limits={"nodes": "2"}, labels=RED), pools=pools)
        assert pools_of(found) == {"red": 2, "blue": 3}

    def test_what_a_heavier_nodepool_takes_is_gone_for_lighter_ones(self) -> None:
        pools = (
            nodepool_manifest("heavy", requirements=FOUR, weight=10, limits={"nodes": "2"}),
            nodepool_manifest("light", requirements=FOUR),
        )
        found = plan(6, quota_manifest(), pools=pools)
        assert pools_of(found) == {"heavy": 2, "light": 1}

    def test_a_quota_over_a_zone_sends_nodes_to_the_others(self) -> None:
        found = plan(
            8, quota_manifest(limits={"nodes": "0"}, expressions=[expression(ZONE, "In", *ZONES[:2])])
        )
        zones = {override.zone for each in found.nodes for override in each.request.overrides}
        assert len(found.nodes) == 8
        assert zones == {ZONES[2]}

    def test_a_quota_over_an_instance_family_names_no_type_of_it_beyond_its_limit(self) -> None:
        family = expression("karpenter.k8s.aws/instance-category", "NotIn", "r")
        found = plan(4, quota_manifest(limits={"cpu": "4"}, expressions=[family]))
        selected = [
            each
            for each in found.nodes
            if any(not override.instance_type.startswith("r") for override in each.request.overrides)
        ]
        assert len(found.nodes) == 4
        assert len(selected) == 1

    def test_quotas_that_overlap_all_hold(self) -> None:
        pools = [
            nodepool_manifest(name, requirements=FOUR, labels={"team": name}) for name in ("red", "blue")
        ]
        quotas = [
            quota_manifest("all", {"nodes": "5"}),
            quota_manifest("red", {"cpu": "8"}, labels=RED),
            quota_manifest("blue", {"memory": "64Gi", "cpu": "8"}, labels={"team": "blue"}),
        ]
        found = plan(9, *quotas, pools=pools)
        assert pools_of(found) == {"red": 2, "blue": 2}

    def test_a_label_that_a_node_may_or_may_not_get_counts(self) -> None:
        either = nodepool_manifest(requirements=(*FOUR, expression("tier", "In", "gold", "tin")))
        quota = quota_manifest(limits={"nodes": "1"}, labels={"tier": "gold"})
        assert len(plan(3, quota, pools=[either]).nodes) == 1


class TestUse:
    def test_nodes_of_others_count(self) -> None:
        others = (node("mine", labels=RED), node("yours"))
        quota = quota_manifest(limits={"cpu": "12"}, labels=RED)
        pool = nodepool_manifest(requirements=FOUR, labels=RED)
        assert len(plan(5, quota, pools=[pool], nodes=others).nodes) == 2

    @pytest.mark.parametrize("phase", [Phase.PENDING, Phase.LAUNCHED, Phase.TERMINATING, Phase.TERMINATED])
    def test_nodes_count_from_the_intent_until_they_are_gone(self, phase: Phase) -> None:
        there = claim(phase=phase, labels=FrozenMap(RED))
        pool = nodepool_manifest(requirements=FOUR, labels=RED)
        found = plan(5, quota_manifest(labels=RED), pools=[pool], ledger=ledger(claims=(there,)))
        assert len(found.nodes) == 2

    @pytest.mark.parametrize(("instance", "left"), [("i-1", 2), ("", 3)])
    def test_a_claim_that_was_given_up_counts_while_it_has_an_instance(
        self, instance: str, left: int
    ) -> None:
        there = claim(phase=Phase.GIVEN_UP, labels=FrozenMap(RED), instance_id=instance)
        pool = nodepool_manifest(requirements=FOUR, labels=RED)
        found = plan(5, quota_manifest(labels=RED), pools=[pool], ledger=ledger(claims=(there,)))
        assert len(found.nodes) == left

    def test_a_node_that_is_still_to_be_launched_counts_wherever_it_may_match(self) -> None:
        (first,) = plan(1).nodes
        quota = quota_manifest(limits={"nodes": "1"}, expressions=[expression(ZONE, "In", ZONES[0])])
        zones = {override.zone for override in first.request.overrides}
        found = plan(1, quota, ledger=ledger(claims=(first.claim,)), of=shape("3", app="other"))
        assert ZONES[0] in zones
        assert ZONES[0] not in {override.zone for each in found.nodes for override in each.request.overrides}

    def test_a_node_that_is_still_to_be_launched_counts_with_the_most_that_it_may_have(self) -> None:
        (first,) = plan(1, pools=[nodepool_manifest()]).nodes
        known = inputs(snapshot=snapshot(quotas=(quota_manifest(limits={"memory": "1Ti"}),))).snapshot
        (usage,) = usages(known, ledger(claims=(first.claim,)), NodeSettings(), NOW)
        sizes = {override.instance_type for override in first.request.overrides}
        assert len(sizes) > 1
        assert (
            usage.used.memory_bytes
            == first.claim.capacity.memory_bytes
            >= first.claim.allocatable.memory_bytes
        )

    def test_a_quota_that_is_far_leaves_requests_as_wide_as_without_it(self) -> None:
        pools = [nodepool_manifest()]
        (free,), (far,), (near,) = (
            plan(1, pools=pools, cluster=limits).nodes
            for limits in ("", "cpu=4000,memory=16Ti", "memory=9Gi")
        )
        assert far.request.overrides == free.request.overrides
        assert near.request.overrides != free.request.overrides

    def test_the_limits_of_a_cluster_hold_over_all_its_nodes(self) -> None:
        found = plan(9, nodes=(node("other"),), cluster="nodes=3,cpu=100")
        assert len(found.nodes) == 2
        assert (
            "the limit of 3 nodes of the cluster is reached (3 nodes used with the nodes that are bought now"
            in reason(found)
        )
        assert "raise nodes in CLUSTER_LIMITS of the cluster's registration to at least 4" in reason(found)


class TestDollars:
    def test_the_dearest_offerings_of_all_nodes_together_stay_within_the_limit(self) -> None:
        for limit in ("0.35", "0.8", "2"):
            found = plan(9, pools=[dollar_pool(limit, requirements=FOUR)])
            assert 0 < dearest_usd(found.nodes) <= float(limit)

    def test_requests_stay_wide_while_the_limit_is_far(self) -> None:
        near = plan(1, pools=[dollar_pool("0.2", requirements=FOUR)]).nodes[0].request
        far = plan(1, pools=[dollar_pool("50", requirements=FOUR)]).nodes[0].request
        free = plan(1).nodes[0].request
        assert len(far.overrides) == len(free.overrides) >= len(near.overrides)

    def test_the_limit_buys_the_plan_that_serves_most_pods(self) -> None:
        price = plan(1, pools=[nodepool_manifest(requirements=ON_DEMAND)]).price_hourly_usd
        found = plan(9, pools=[dollar_pool(f"{3.5 * price:.4f}", requirements=ON_DEMAND)])
        assert len(found.nodes) == 3

    def test_a_pending_node_counts_at_its_dearest_price_and_a_launched_one_at_its_own(self) -> None:
        pending = replace(
            claim(phase=Phase.PENDING),
            price_hourly_usd=0.1,
            launch=FrozenMap(
                {
                    "capacityType": "spot",
                    "tags": {},
                    "overrides": [["t", "m5.large", "a", "s", p] for p in (0.1, 0.7)],
                }
            ),
        )
        launched = claim("default-x2", price_hourly_usd=0.2)
        seen = snapshot(nodepools=(dollar_pool("5"),))
        (usage,) = usages(seen, ledger(claims=(pending, launched)), NodeSettings(), NOW)
        assert usage.used[USD] == 900_000

    def test_refused_pods_learn_the_limit_its_use_and_what_to_raise(self) -> None:
        there = claim(phase=Phase.TERMINATING, price_hourly_usd=0.9, created_at=NOW - timedelta(hours=2))
        found = plan(1, pools=[dollar_pool("1", requirements=ON_DEMAND)], ledger=ledger(claims=(there,)))
        assert found.nodes == ()
        reported = "the limit of 1 USD an hour of NodePool default is reached (0.9 USD an hour used since"
        assert f"{reported} 2026-11-21T10:00:00Z" in reason(found)
        assert (
            "raise annotation nodesmith.dev/limit-usd-per-hour of NodePool default to at least 1."
            in reason(found)
        )
        assert found.unplaced[0].cause.blocking == "limit of NodePool default"

    def test_a_quota_may_limit_the_dollars_of_a_team(self) -> None:
        pools = [nodepool_manifest(name, requirements=FOUR, labels=RED) for name in ("one", "two")]
        found = plan(9, quota_manifest(limits={USD: "0.5"}, labels=RED), pools=pools)
        assert 0 < dearest_usd(found.nodes) <= 0.5

    @pytest.mark.parametrize(
        ("text", "remedy"),
        [
            ("5 EUR", "without a currency: convert 5 EUR into US dollars"),
            ("$5", "without a currency: did you mean '5'?"),
            ("1,5", "with a point: did you mean '1.5'?"),
            ("-1", "such as 5 or 12.50"),
            ("2000000000", "at most 1000000000"),
            ("", "such as 5 or 12.50"),
        ],
    )
    def test_a_limit_that_cannot_be_read_stops_its_nodepool_alone_and_says_what_would_be_right(
        self, text: str, remedy: str
    ) -> None:
        pool = dollar_pool(text, "strange", requirements=FOUR, weight=10)
        found = plan(2, pools=[pool, nodepool_manifest(requirements=FOUR)])
        (problem,) = parse_nodepool(pool).problems
        assert pools_of(found) == {"default": 2}
        assert problem.field == "metadata.annotations[nodesmith.dev/limit-usd-per-hour]"
        assert remedy in problem.remedy


class TestUnplanned:
    """Nodes that no pod waits for are bought without a packing problem, and quotas hold for them as well."""

    def test_static_nodepools_get_as_many_nodes_as_a_quota_leaves(self) -> None:
        pools = [nodepool_manifest(name, requirements=FOUR) for name in ("one", "two")]
        for pool in pools:
            pool["spec"]["replicas"] = 2
        given = inputs(snapshot=snapshot(nodepools=tuple(pools), quotas=(quota_manifest(),)))
        nodes, refused = replicas(given)
        assert Counter(each.claim.nodepool for each in nodes) == {"one": 2, "two": 1}
        assert not refused

    def test_the_first_node_of_a_static_nodepool_leaves_enough_for_the_others_and_the_last_need_not(
        self,
    ) -> None:
        sizes = expression("node.kubernetes.io/instance-type", "In", "m5.xlarge", "m5.2xlarge")
        pool = nodepool_manifest(requirements=[sizes])
        pool["spec"]["replicas"] = 2
        quota = quota_manifest(limits={"cpu": "12"})
        nodes, _ = replicas(inputs(snapshot=snapshot(nodepools=(pool,), quotas=(quota,))))
        types = [{row.instance_type for row in each.request.overrides} for each in nodes]
        assert types == [{"m5.xlarge"}, {"m5.xlarge", "m5.2xlarge"}]

    def test_a_static_nodepool_stays_within_its_dollars(self) -> None:
        pool = dollar_pool("0.6", requirements=FOUR)
        pool["spec"]["replicas"] = 9
        nodes, _ = replicas(inputs(snapshot=snapshot(nodepools=(pool,))))
        assert 0 < dearest_usd(nodes) <= 0.6

    def test_a_static_nodepool_without_room_learns_why(self) -> None:
        pool = nodepool_manifest(requirements=FOUR)
        pool["spec"]["replicas"] = 1
        nodes, refused = replicas(
            inputs(snapshot=snapshot(nodepools=(pool,), quotas=(quota_manifest(limits={"nodes": "0"}),)))
        )
        assert not nodes
        assert "the limit of 0 nodes of CapacityQuota gold is reached" in refused["default"]

    def test_nodeclaims_of_users_count_against_quotas_together_with_static_nodes(self) -> None:
        pool = nodepool_manifest(requirements=FOUR)
        pool["spec"]["replicas"] = 3
        given = inputs(
            snapshot=snapshot(
                nodepools=(pool,), nodeclaims=(nodeclaim_manifest(FOUR),), quotas=(quota_manifest(),)
            )
        )
        left = RemainingQuotas(usages(given.snapshot, given.ledger, given.settings, given.now))
        own = by_hand(given, left)
        static, _ = replicas(given, left)
        assert len(own.planned) == 1
        assert len(static) == 2

    @pytest.mark.parametrize(("allowed", "spot"), [("0", 0), ("1", 1), ("9", 4)])
    def test_a_quota_over_spot_leaves_them_on_demand(self, allowed: str, spot: int) -> None:
        pool = nodepool_manifest(requirements=FOUR)
        pool["spec"]["replicas"] = 3
        quota = quota_manifest(limits={"nodes": allowed}, labels={"karpenter.sh/capacity-type": "spot"})
        given = inputs(
            snapshot=snapshot(nodepools=(pool,), nodeclaims=(nodeclaim_manifest(FOUR),), quotas=(quota,))
        )
        left = RemainingQuotas(usages(given.snapshot, given.ledger, given.settings, given.now))
        nodes = [*by_hand(given, left).planned, *replicas(given, left)[0]]
        assert len(nodes) == 4
        assert [node.request.capacity_type for node in nodes].count("spot") == spot


class TestShown:
    """What counts against a quota is shown on its object, and Events announce when little or nothing is left."""

    USED = tuple(claim(f"default-x{number}") for number in range(4))

    def shown(self, quota: dict[str, Any], claims: int) -> tuple[StatusUpdate | None, list[str]]:
        found = usages(snapshot(quotas=(quota,)), ledger(claims=self.USED[:claims]), NodeSettings(), NOW)
        near = limit_condition(found, quota, QUOTA_NEAR_LIMIT, found[0].quota.owner)
        events = limit_events("CapacityQuota", "gold", quota, near)
        return quota_update(quota, parse_quota(quota), found[0], near, NOW), [each.reason for each in events]

    def written(self, quota: dict[str, Any], claims: int) -> dict[str, Any]:
        update, _ = self.shown(quota, claims)
        assert update is not None
        return {**quota, "status": {**(quota.get("status") or {}), **update.status}}

    def test_the_status_shows_what_is_used_and_is_not_written_twice(self) -> None:
        quota = self.written(quota_manifest(limits={"nodes": "5", "cpu": "20", USD: "1"}), 2)
        assert quota["status"]["used"] == {"resources": {"nodes": "2", "cpu": "8", USD: "0"}}
        assert self.shown(quota, 2) == (None, [])

    def test_events_announce_80_and_100_percent_once_each(self) -> None:
        quota = quota_manifest(limits={"nodes": "4", "cpu": "20"})
        assert self.shown(quota, 3)[1] == []
        assert self.shown(quota, 4)[1] == ["LimitReached"]
        larger = quota_manifest(limits={"nodes": "5"})
        assert self.shown(larger, 4)[1] == ["LimitNearlyReached"]
        assert self.shown(self.written(larger, 4), 4)[1] == []

    def test_a_quota_that_is_no_longer_near_its_limit_shows_that(self) -> None:
        quota = self.written(quota_manifest(limits={"nodes": "4"}), 4)
        after = {each["type"]: each["status"] for each in self.written(quota, 1)["status"]["conditions"]}
        assert after[QUOTA_NEAR_LIMIT] == "False"

    def test_a_status_that_another_controller_writes_is_left_to_it(self) -> None:
        quota = self.written(quota_manifest(), 1)
        quota["status"]["used"] = {"resources": {"nodes": "7"}}
        update, _ = self.shown(quota, 2)
        assert update is not None
        assert "used" not in update.status
        assert update.status["conditions"][0]["message"] == "another controller writes status.used"

    def test_an_unreadable_quota_shows_what_is_wrong_and_what_that_means(self) -> None:
        update, _ = self.shown(quota_manifest(limits={"node": "3"}), 1)
        assert update is not None
        (condition,) = update.status["conditions"]
        assert (condition["type"], condition["status"]) == ("nodesmith.dev/Enforced", "False")
        assert "no node is bought that it may select" in condition["message"]
        assert (
            "spec.limits.resources.node is an unknown resource: did you mean 'nodes'?" in condition["message"]
        )
        assert len(update.warnings) == 1

    def test_a_nodepool_near_its_dollars_has_a_condition(self) -> None:
        pool = dollar_pool("1")
        there = claim(price_hourly_usd=0.85)
        (usage,) = usages(snapshot(nodepools=(pool,)), ledger(claims=(there,)), NodeSettings(), NOW)
        (condition,) = limit_condition([usage], pool, NEAR_LIMIT, "NodePool default")
        assert (condition.status, condition.reason) == ("True", "LimitNearlyReached")
        assert condition.message == "0.85 of 1 USD an hour used"

    def test_pods_without_a_node_because_of_a_limit_cause_an_event_on_its_object(self) -> None:
        blobs, cluster = FakeBlobs(), FakeCluster()
        quota = quota_manifest(limits={"nodes": "0"})
        seen = snapshot(pods=pods(THREE_CPU, 2), quotas=(quota,))
        write_unplaced(blobs, CLUSTER, decide(inputs(snapshot=seen)), NOW)
        publish_unplaced(blobs, cluster, FakeStore(), seen, {}, NOW)
        found = {(each.kind, each.name, each.reason) for each in cluster.events}
        assert ("CapacityQuota", "gold", "LimitReached") in found

    def test_pods_refused_while_nodes_are_launched_are_decided_about_again_soon(self) -> None:
        pending, launched = (
            claim(phase=phase, labels=FrozenMap()) for phase in (Phase.PENDING, Phase.LAUNCHED)
        )
        quota = quota_manifest(limits={"nodes": "1"})
        soon, later = (
            plan(1, quota, ledger=ledger(claims=(replace(each, allocatable=NOTHING),)))
            for each in (pending, launched)
        )
        assert soon.due == NOW + timedelta(seconds=5)
        assert later.due is None

    def test_explain_nodepool_lists_the_quotas_with_their_use(self) -> None:
        seen = snapshot(
            nodepools=(dollar_pool("2"),), quotas=(quota_manifest(), quota_manifest("bad", {"x": "1"}))
        )
        there = claim(price_hourly_usd=0.5)
        (pool,) = considered(inputs(snapshot=seen, ledger=ledger(claims=(there,))))
        text = "\n".join(pool_lines(pool))
        assert "limit     NodePool default: 0.5 of 2 USD an hour used since 2026-11-21T11:59:00Z" in text
        (unused,) = considered(inputs(snapshot=snapshot(nodepools=(dollar_pool("2"),))))
        assert "  limit     NodePool default: 0 of 2 USD an hour used" in pool_lines(unused)
        assert "limit     CapacityQuota gold: 1 of 3 nodes used since" in text
        assert (
            "limit     CapacityQuota bad cannot be read: spec.limits.resources.x is an unknown resource"
            in text
        )

    def test_status_lists_quotas_and_nodepools_near_their_limit(self) -> None:
        pool = dollar_pool("1")
        pool["status"] = {"conditions": [{"type": NEAR_LIMIT, "status": "True", "message": "all of it used"}]}
        quota = self.written(quota_manifest(), 2)
        reported = list(lines(report_of(snapshot(nodepools=(pool,), quotas=(quota,)), NOW)))
        assert "CapacityQuota gold: 2 of 3 nodes used" in reported
        assert "NodePool default: all of it used" in reported


class TestReplacements:
    """A replacement needs room in every limit beside the node that it replaces; removing a node needs none."""

    FULL = shape("3", "1Gi")
    DEAR = "m5.2xlarge"

    def moves(self, *quotas: dict[str, Any], **known: Any) -> Any:
        workers = [worker(name, self.DEAR, claim={"price_hourly_usd": 0.384}) for name in "ab"]
        pods = running(self.FULL, {"a": 1, "b": 1})
        return propose(fleet(workers, pods, quotas=quotas, **known)).proposals

    def test_a_node_is_replaced_by_a_cheaper_one_while_old_and_new_stay_within_the_limits(self) -> None:
        assert any(one.replacements for one in self.moves(quota_manifest(limits={"nodes": "3"})))
        pool = fleet_pool()
        pool["metadata"]["annotations"] = {LIMIT_USD_PER_HOUR: "1"}
        (one,) = self.moves(pools=[pool])
        assert len(one.replacements) == 1
        assert 0.768 + dearest_usd(one.replacements) <= 1

    def test_a_node_at_a_limit_is_not_replaced(self) -> None:
        assert not self.moves(quota_manifest(limits={"nodes": "2"}))
        pool = fleet_pool()
        pool["metadata"]["annotations"] = {LIMIT_USD_PER_HOUR: "0.768"}
        assert not self.moves(pools=[pool])

    def test_an_empty_node_is_removed_whatever_the_limits(self) -> None:
        found = propose(fleet([worker("a")], quotas=(quota_manifest(limits={"nodes": "0"}),)))
        assert [one.sources for one in found.proposals] == [("claim-a",)]

    def test_replacements_that_together_exceed_a_quota_are_noticed(self) -> None:
        there = [claim(f"default-x{number}") for number in range(3)]
        known = snapshot(quotas=(quota_manifest(),)), ledger(claims=tuple(there[:2])), NodeSettings()
        assert exceeded(there[2:], *known, NOW) == ""
        more = [*there[2:], claim("default-y")]
        reported = "its replacements would exceed the limit of CapacityQuota gold: 2 of 3 nodes used"
        assert exceeded(more, *known, NOW) == reported


class TestExpendablePods:
    """Pods below the cluster's cutoff use room that is there; nothing is bought for them, and they keep no node."""

    CUTOFF = NodeSettings(expendable_priority_cutoff=-10, fragility_tolerance=0)

    def test_no_node_is_bought_for_them(self) -> None:
        some = [*pods(shape("1", priority=-11)), *pods(shape("1", app="db", priority=-10))]
        found = decide(inputs(snapshot=snapshot(pods=some), settings=self.CUTOFF))
        (left,) = found.ignored
        assert [each.claim.nominated for each in found.nodes] == [("default/db-0000",)]
        assert left.pods == ("default/web-0000",)
        assert left.reason == "its priority -11 is below -10, the cluster's EXPENDABLE_PRIORITY_CUTOFF"

    @pytest.mark.parametrize(("priority", "reasons"), [(-11, ["Empty"]), (-10, [])])
    def test_a_node_with_them_alone_counts_as_empty(self, priority: int, reasons: list[str]) -> None:
        kept = {"karpenter.sh/do-not-disrupt": "true"}
        of = replace(shape("3", priority=priority), annotations=FrozenMap(kept))
        given = fleet([worker("a")], running(of, {"a": 1}))
        assert [each.reason for each in propose(replace(given, settings=self.CUTOFF)).proposals] == reasons


class TestFaults:
    @pytest.mark.parametrize(
        ("change", "field", "remedy"),
        [
            ({"limits": {"resources": {"node": "3"}}}, "spec.limits.resources.node", "did you mean 'nodes'?"),
            ({"limits": {"resources": {"cpu": "4gb"}}}, "spec.limits.resources.cpu", "did you mean '4G'?"),
            ({"limits": {"resources": {"cpu": "-1"}}}, "spec.limits.resources.cpu", "must not be negative"),
            ({"limits": {}}, "spec.limits.resources", "it is required"),
            ({"limits": None}, "spec.limits", "it is required"),
            (
                {"selector": {"matchExpressions": [{"key": "team", "operator": "in", "values": ["red"]}]}},
                "spec.selector.matchExpressions[0].operator",
                "did you mean 'In'?",
            ),
            (
                {"selector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
                "spec.selector.matchExpressions[0].values",
                "In needs at least one value",
            ),
            ({"selector": "team=red"}, "spec.selector", "must be a map"),
        ],
    )
    def test_nothing_that_an_unreadable_quota_may_select_is_bought(
        self, change: dict[str, Any], field: str, remedy: str
    ) -> None:
        quota = quota_manifest()
        quota["spec"] |= change
        (problem,) = parse_quota(quota).problems
        found = plan(2, quota)
        assert (problem.object, problem.field) == ("CapacityQuota/gold", field)
        assert remedy in problem.remedy
        assert found.nodes == ()
        assert (
            f"CapacityQuota gold cannot be read, so no node is bought that it may select: {field}"
            in reason(found)
        )

    def test_the_readable_parts_of_a_selector_say_which_nodes_an_unreadable_quota_stops(self) -> None:
        quota = quota_manifest(
            labels=RED, expressions=[{"key": "tier", "operator": "Is", "values": ["gold"]}]
        )
        pools = (
            nodepool_manifest("red", requirements=FOUR, labels=RED, weight=10),
            nodepool_manifest("blue", requirements=FOUR),
        )
        assert pools_of(plan(2, quota, pools=pools)) == {"blue": 2}

    def test_a_quota_of_zero_is_valid_and_allows_nothing(self) -> None:
        quota = quota_manifest(limits={"nodes": "0"})
        assert parse_quota(quota).problems == ()
        assert plan(1, quota).nodes == ()

    def test_a_quota_that_names_no_resource_is_reported_and_limits_nothing(self) -> None:
        quota = quota_manifest(limits={})
        (problem,) = parse_quota(quota).problems
        assert (problem.field, problem.fatal) == ("spec.limits.resources", False)
        assert "limits nothing" in problem.remedy
        assert len(plan(2, quota).nodes) == 2

    def test_the_older_version_is_read_alike(self) -> None:
        older = {**quota_manifest(), "apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
        assert parse_quota(older) == parse_quota(quota_manifest())

    @pytest.mark.parametrize(
        ("text", "reported"),
        [
            ("node=3", "did you mean 'nodes'?"),
            ("nodes", "must be a resource and its limit, such as nodes=200"),
            ("nodes=many", "is not a quantity"),
            ("cpu=-2", "must not be negative"),
            ("nodes=20,cpu=4,nodes=200", "'nodes' is given twice"),
            ("nodesmith.dev/usd-per-hour=5 EUR", "convert 5 EUR into US dollars"),
        ],
    )
    def test_limits_of_a_cluster_that_cannot_be_read_are_refused(self, text: str, reported: str) -> None:
        with pytest.raises(ValueError, match=re.escape(reported)):
            parse_cluster_limits(text)


def test_a_local_cluster_serves_quotas() -> None:
    with EmbeddedCluster(LocalClock()) as cluster:
        cluster.objects.create("capacityquotas", {**quota_manifest(), "metadata": {"name": "gold"}})
        server = ApiServer(connect(cluster.url, "", lambda: "local"))
        seen = Observer(server).observe()
    assert [each["metadata"]["name"] for each in seen.capacityquotas] == ["gold"]
    (quota,) = decode(encode(CLUSTER, NOW, seen)).quotas
    assert parse_quota(quota) == parse_quota(quota_manifest())
