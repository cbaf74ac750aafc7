"""Which moves are worth it: saving against evictions, spot for spot, and the effect of each policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.candidates import CandidateSelection
from nodesmith.decisions.disruption.costs import DELETION_COST, eviction_cost
from nodesmith.decisions.disruption.proposals import Proposals
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.disruption.worth import totals, worth_usd
from nodesmith.decisions.launch import MAX_OVERRIDES
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, INSTANCE_TYPE, SPOT, ZONE
from nodesmith.model.karpenter.nodepools import SPOT_TYPES
from nodesmith.model.ledger.moves import Reason
from tests import builders
from tests.builders import NOW, ZONES, expression, pods, shape, spread
from tests.objects.fleets import Worker, fleet, kinds, pool, running, worker

FAMILY = "karpenter.k8s.aws/instance-family"


def only(*families: str, capacity_type: str = "on-demand", **fields: Any) -> dict[str, Any]:
    """Return a NodePool that buys only these instance families."""
    asked = [expression(FAMILY, "In", *families), expression(CAPACITY_TYPE, "In", capacity_type)]
    return pool(requirements=asked, **fields)


def large(name: str = "a", **fields: Any) -> Worker:
    return worker(name, "m5.2xlarge", cpu="8", memory="32Gi", **fields)


@pytest.mark.parametrize(
    ("deletion_cost", "priority", "expected"),
    [
        ("", 0, 1.0),
        ("134217728", 0, 2.0),
        ("-2147483647", 0, -10.0),
        ("x", 2**25, 2.0),
        ("", 2**31 - 1, 10.0),
    ],
)
def test_the_eviction_cost_depends_on_priority_and_deletion_cost_within_bounds(
    deletion_cost: str, priority: int, expected: float
) -> None:
    annotations = FrozenMap({DELETION_COST: deletion_cost} if deletion_cost else {})
    assert eviction_cost(replace(shape(), annotations=annotations, priority=priority)) == pytest.approx(
        expected, abs=1e-6
    )


def test_a_replacement_saves_money_whichever_offering_ec2_picks() -> None:
    found = propose(fleet([large()], running(shape("1", "2Gi"), {"a": 1}), pools=[only("m5", "c5", "r5")]))
    (one,) = found.proposals
    (bought,) = one.replacements
    assert max(o.price_hourly_usd for o in bought.request.overrides) <= 0.384 * 0.98
    types = {o.instance_type for o in bought.request.overrides}
    assert bought.claim.requirements["node.kubernetes.io/instance-type"].values == types


def test_nothing_is_bought_that_violates_minvalues() -> None:
    flexible = [
        expression(FAMILY, "In", "m5", "c5", minValues=2),
        expression(CAPACITY_TYPE, "In", "on-demand"),
    ]
    cheap = worker("a", "m5.large", cpu="2", memory="8Gi")  # m5 and c5 are not both cheaper than this node
    assert not propose(
        fleet([cheap], running(shape("1500m", "6Gi"), {"a": 1}), pools=[pool(requirements=flexible)])
    ).proposals


def crowded(last: timedelta, **fields: Any) -> Proposals:
    """Search in a cluster with one node of forty small pods that would fit on a slightly cheaper one."""
    one = large(last_pod_event_at=NOW - last, claim={"initialized_at": NOW - timedelta(days=3)})
    return propose(
        fleet([one], running(shape("180m", "100Mi"), {"a": 40}), pools=[only("c5", "m5", **fields)])
    )


def test_many_pods_are_not_restarted_for_a_small_saving_that_may_not_last() -> None:
    assert not crowded(timedelta(minutes=1)).proposals


def test_many_pods_are_restarted_for_a_small_saving_after_a_quiet_day() -> None:
    (one,) = crowded(timedelta(days=1)).proposals
    assert one.eviction_cost == pytest.approx(40)
    assert one.saving_hourly_usd == pytest.approx(0.384 - 0.34)


@pytest.mark.parametrize(
    ("owner", "hours", "moves"), [("Job", 0.1, 1), ("Job", 20, 0), ("ReplicaSet", 20, 1)]
)
def test_jobs_that_have_run_for_long_are_left_to_finish(owner: str, hours: float, moves: int) -> None:
    """Twenty hours of four out of eight cpus are worth more than half the price saves in a few hours."""
    work = running(shape("3500m", "6Gi", owner=f"{owner}/import"), {"a": 1})
    begun = [replace(pod, created_at=NOW - timedelta(hours=hours)) for pod in work]
    found = propose(fleet([large(last_pod_event_at=NOW - timedelta(hours=4))], begun, pools=[only("m5")]))
    assert len(found.proposals) == moves


@pytest.mark.parametrize(
    ("hours", "saves"),
    [
        (3, "0.1920 USD an hour for restarting 1 pod (eviction cost 1)"),
        (20, "at most 0.3840 USD an hour for restarting 1 pod (eviction cost 1)"),
    ],
    ids=["tried", "not even tried"],
)
def test_a_node_that_a_job_keeps_names_the_work_that_would_be_lost(hours: float, saves: str) -> None:
    work = running(shape("3500m", "6Gi", owner="Job/import"), {"a": 1})
    begun = [replace(pod, created_at=NOW - timedelta(hours=hours)) for pod in work]
    node = large(last_pod_event_at=NOW - timedelta(hours=4))
    found = propose(fleet([node], begun, pools=[only("m5")]))
    lost = (
        f"{hours * 0.384 * 3500 / node.node.allocatable.cpu_milli:.4f} USD of work of Jobs and of slow starts"
    )
    assert found.needed == {
        "claim-a": f"what it saves is not worth its evictions: {saves}, which loses {lost}"
    }


def test_balanced_requires_a_saving_of_half_the_share_that_a_move_disrupts() -> None:
    assert not crowded(timedelta(days=1), policy="Balanced").proposals
    found = propose(
        fleet(
            [large(), large("b")],
            running(shape("180m", "100Mi"), {"a": 40, "b": 1}),
            pools=[only("m5", "c5", policy="Balanced")],
        )
    )
    assert [p.sources for p in found.proposals] == [("claim-b",)]


@pytest.mark.parametrize(
    ("memory", "saved", "balanced"),
    [("6Gi", 0.384 - 0.17, 1), ("12Gi", 0.384 - 0.192, 0)],
    ids=["56%", "50%"],
)
def test_balanced_replaces_the_only_node_of_a_nodepool_if_that_saves_more_than_half(
    memory: str, saved: float, balanced: int
) -> None:
    """The other half of the rule is the share of pods that is disrupted, here all of them."""

    def found(policy: str) -> Proposals:
        since = NOW - timedelta(days=1)
        one = large(last_pod_event_at=since, claim={"initialized_at": since})
        return propose(
            fleet([one], running(shape("3500m", memory), {"a": 1}), pools=[only("c5", "m5", policy=policy)])
        )

    (move,) = found("WhenEmptyOrUnderutilized").proposals
    assert move.saving_hourly_usd == pytest.approx(saved)
    assert len(found("Balanced").proposals) == balanced


def test_balanced_also_counts_nodes_that_may_not_be_disrupted() -> None:
    """Half the price for half the pods is worth it; a tenth for a third, with two expensive nodes that stay, is not."""
    dear = [
        worker(name, "m5.8xlarge", cpu="32", memory="128Gi", annotations={DO_NOT_DISRUPT: "true"})
        for name in "yz"
    ]
    pools = [only("m5", "c5", policy="Balanced")]
    runs = running(shape("750m", "100Mi"), {"a": 4, "b": 4, "y": 1, "z": 1})
    assert propose(fleet([large(), large("b")], runs[:8], pools=pools)).proposals
    assert not propose(fleet([large(), large("b"), *dear], runs, pools=pools)).proposals


def test_savings_of_another_nodepool_do_not_pay_for_evictions_in_a_balanced_one() -> None:
    """An expensive node with few pods and a cheap one with many: as one move they would be worth it."""
    workers = [
        worker("cheap", pool="careful"),
        worker("kept", "m5.8xlarge", cpu="32", memory="128Gi", pool="careful"),
        worker("dear", "m5.8xlarge", cpu="32", memory="128Gi"),
    ]
    runs = running(shape("100m", "100Mi"), {"cheap": 20, "kept": 1, "dear": 1})
    worths = []
    for policy in ("WhenEmptyOrUnderutilized", "Balanced"):
        survey = CandidateSelection(fleet(workers, runs, pools=[pool(), pool("careful", policy=policy)]))
        sources = [one for one in survey.candidates if one.name != "claim-kept"]
        worths.append(worth_usd(sources, 0.1, totals(survey), NOW))
    assert worths[0] > 0 > worths[1]


def test_a_replacement_of_a_windows_node_runs_beside_it_for_longer() -> None:
    survey = CandidateSelection(fleet([worker("a")], running(shape("1", "2Gi"), {"a": 1})))

    def worth(system: str) -> float:
        """Return the worth of replacing the node at the same price, whatever its operating system."""
        (one,) = survey.candidates
        labels = {**one.node.labels, "kubernetes.io/os": system}
        return worth_usd([replace(one, node=replace(one.node, labels=labels))], 0.06, totals(survey), NOW)

    assert worth("linux") - worth("windows") == pytest.approx(0.06 * 10 / 60)


def spot(
    families: tuple[str, ...], annotations: Mapping[str, str] | None = None, of: Worker | None = None
) -> Proposals:
    manifest = only(*families, capacity_type="spot")
    manifest["metadata"]["annotations"] = dict(annotations or {})
    one = of or large(capacity_type="spot")
    return propose(fleet([one], running(shape("1", "2Gi"), {"a": 1}), pools=[manifest]))


def test_spot_replaces_spot_only_if_enough_types_are_cheaper() -> None:
    since = NOW - timedelta(days=1)
    about: dict[str, Any] = {"last_pod_event_at": since, "claim": {"initialized_at": since}}
    smallest = worker("a", "m5.large", cpu="2", memory="8Gi", capacity_type="spot", **about)
    assert not spot(("m5", "c5"), of=smallest).proposals
    assert spot(("m5", "c5"), {SPOT_TYPES: "1"}, of=smallest).proposals
    (one,) = spot(("m5", "c5", "r5", "m5a", "c5a", "r5a", "m6i", "c6i", "r6i", "m6a", "c6a")).proposals
    assert len({o.instance_type for o in one.replacements[0].request.overrides}) == 15


def test_six_zones_leave_as_many_types_to_spot_that_replaces_spot_as_one() -> None:
    """A request has at most 60 offerings: with each type in each zone, these are ten types."""
    for zones in (ZONES[:1], [f"us-east-1{letter}" for letter in "abcdef"]):
        alone = fleet([large(capacity_type="spot")], running(shape("3", "12Gi"), {"a": 1}))
        known = {"default": builders.nodeclass_status(zones=zones)}
        (one,) = propose(replace(alone, ledger=replace(alone.ledger, nodeclasses=known))).proposals
        overrides = one.replacements[0].request.overrides
        assert len({o.instance_type for o in overrides}) == 15
        assert {o.zone for o in overrides} == set(zones)
        assert len(overrides) <= MAX_OVERRIDES


def test_a_smaller_size_of_the_same_family_may_always_replace_a_spot_node() -> None:
    (one,) = spot(("m5", "c5")).proposals
    offered = {o.instance_type for node in one.replacements for o in node.request.overrides}
    assert offered == {"m5.large", "m5.xlarge"}
    full = large(capacity_type="spot")
    either = only("m5", "c5", capacity_type="spot")
    assert not propose(fleet([full], running(shape("7", "9Gi"), {"a": 1}), pools=[either])).proposals


def test_a_replacement_is_priced_by_its_remaining_offerings() -> None:
    """The cheapest offering, c5.large, is cut: it is not a smaller size of the node's family."""
    (one,) = spot(("m5", "c5")).proposals
    (bought,) = one.replacements
    cheapest = min(bought.request.overrides, key=lambda o: o.price_hourly_usd)
    now = next(o for o in kinds()["m5.2xlarge"].offerings if (o.zone, o.capacity_type) == (ZONES[0], SPOT))

    assert bought.price_hourly_usd == bought.claim.price_hourly_usd == cheapest.price_hourly_usd
    assert one.saving_hourly_usd == pytest.approx(now.price_hourly_usd - cheapest.price_hourly_usd)
    assert f"saves {one.saving_hourly_usd:.4f} USD an hour" in one.message
    assert bought.claim.capacity == kinds()["m5.large"].capacity
    assert bought.claim.allocatable == kinds()["m5.large"].allocatable


def test_a_nodepool_may_forbid_spot_to_spot_replacement() -> None:
    families = ("m5", "c5", "r5", "m5a", "c5a", "r5a", "m6i", "c6i", "r6i", "m6a", "c6a")
    assert not spot(families, {SPOT_TYPES: "Never"}).proposals


def test_an_expensive_fallback_is_replaced_once_spot_is_available_again() -> None:
    either = pool(
        requirements=[expression(CAPACITY_TYPE, "In", "spot", "on-demand"), expression(FAMILY, "In", "m5")]
    )
    (one,) = propose(fleet([large()], running(shape("7", "20Gi"), {"a": 1}), pools=[either])).proposals
    assert one.replacements[0].request.capacity_type == "spot"


def test_a_fallback_nodepool_is_left_once_the_one_of_more_weight_can_buy_again() -> None:
    preferred = only("m5", weight=10)
    fallback = only("c5", "r5")
    fallback["metadata"]["name"] = "fallback"
    dear = worker("a", "r5.2xlarge", cpu="8", memory="64Gi", pool="fallback")
    runs = running(shape("3", "10Gi"), {"a": 1})
    (one,) = propose(fleet([dear], runs, pools=[preferred, fallback])).proposals
    assert [node.claim.nodepool for node in one.replacements] == ["default"]
    assert one.saving_hourly_usd > 0


def test_a_large_node_is_split_if_small_ones_cost_less() -> None:
    """Four pods need 3.5 cpus each: one c5.4xlarge holds them, and so do four c5.xlarge at the same price."""
    odd = worker("a", "m5.8xlarge", cpu="32", memory="128Gi")
    small = only("c5", "m5")
    small["spec"]["template"]["spec"]["requirements"] += [
        expression("karpenter.k8s.aws/instance-cpu", "In", "4", "8", "32")
    ]
    (one,) = propose(fleet([odd], running(shape("3500m", "6Gi"), {"a": 4}), pools=[small])).proposals
    assert len(one.replacements) > 1
    assert one.saving_hourly_usd > 0.5


def test_pods_with_negative_deletion_costs_do_no_harm_but_their_node_is_not_empty() -> None:
    """Karpenter treats such a node as empty and leaves its pods to find a place themselves."""
    unwanted = replace(shape("1", "2Gi"), annotations=FrozenMap({DELETION_COST: "-2147483647"}))
    (one,) = propose(fleet([large()], running(unwanted, {"a": 3}), pools=[only("m5")])).proposals
    assert (one.reason, one.eviction_cost) == (Reason.UNDERUTILIZED, 0.0)
    assert len(one.destinations) == 3


@pytest.mark.parametrize(
    ("labels", "reported"),
    [
        ({INSTANCE_TYPE: "x99.huge"}, "its instance type 'x99.huge' is not in the catalogue"),
        ({ZONE: "us-east-1z"}, "the catalogue has no price for m5.2xlarge (on-demand) in us-east-1z"),
    ],
)
def test_a_node_of_unknown_price_stays_unless_it_is_empty_and_affects_no_other(
    labels: Mapping[str, str], reported: str
) -> None:
    odd, plain = large(labels=labels), large("b")
    small = running(shape("1", "2Gi"), {"a": 1, "b": 1})
    found = propose(fleet([odd, plain], small, pools=[only("m5")]))
    assert found.blocked["claim-a"].rule == "Price"
    assert reported in found.blocked["claim-a"].message
    assert [p.sources for p in found.proposals] == [("claim-b",)]
    assert {"claim-a"} <= {name for p in propose(fleet([odd])).proposals for name in p.sources}


def test_pending_pods_block_no_move_and_keep_the_capacity_that_they_fit_into() -> None:
    workers = [worker("a"), worker("b", annotations={"karpenter.sh/do-not-disrupt": "true"})]
    running_pods = running(shape("1", "1Gi"), {"a": 1, "b": 2})
    unschedulable = pods(shape("900", "1Gi", app="huge"), 1)
    (one,) = propose(fleet(workers, [*running_pods, *unschedulable])).proposals
    assert set(one.destinations.values()) == {"b"}
    promised = pods(shape("1500m", "1Gi", app="late"), 1)
    found = propose(fleet(workers, [*running_pods, *promised], pools=[pool()]))
    assert all("b" not in p.destinations.values() for p in found.proposals)


def test_pods_with_a_required_spread_move_only_after_the_counted_pods_are_bound() -> None:
    """Zone 1 can spare a pod once another one runs there, but kube-scheduler may bind that one elsewhere, or later."""
    kept = {"karpenter.sh/do-not-disrupt": "true"}
    zones = builders.ZONES
    workers = [
        worker("a", zone=zones[0]),
        worker("full", zone=zones[0], annotations=kept),
        worker("b", zone=zones[1], annotations=kept),
    ]
    web = shape("1", "1Gi", topologySpreadConstraints=spread(hard=True))
    there = [*running(shape("2500m", "1Gi", app="other"), {"full": 1}), *running(web, {"a": 1, "b": 1})]
    two = [pool(requirements=[expression(ZONE, "In", *zones[:2])])]

    waiting = propose(fleet(workers, [*there, *pods(web, prefix="late")], pools=two))
    bound = propose(fleet(workers, [*there, *running(web, {"full": 1}, key="default/late")], pools=two))

    assert not waiting.proposals
    assert [set(p.destinations.values()) for p in bound.proposals] == [{"b"}]


def test_a_node_with_recent_pod_events_takes_no_displaced_pods() -> None:
    kept = {"karpenter.sh/do-not-disrupt": "true"}
    quiet = [worker("a"), worker("b", annotations=kept)]
    busy = [worker("a"), worker("b", annotations=kept, last_pod_event_at=NOW - timedelta(seconds=5))]
    runs = running(shape("1", "1Gi"), {"a": 1, "b": 2})
    for workers, expected in ((quiet, {"b"}), (busy, None)):
        found = propose(fleet(workers, runs, pools=[pool(after="30s")]))
        places = {place for p in found.proposals for place in p.destinations.values()}
        assert (places == expected) if expected else "b" not in places
