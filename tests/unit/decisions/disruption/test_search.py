"""Which moves the search finds, and which it does not."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import DEFAULT_STEPS, look_again, may_end, propose
from nodesmith.decisions.disruption.search.searchpass import FEW, Pass
from nodesmith.decisions.disruption.worth import LEAST_SAVING
from nodesmith.decisions.packing import GOOD_ENOUGH
from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, DISRUPTED, INSTANCE_TYPE, ZONE
from nodesmith.model.karpenter.disruption import MOST_AN_HOUR
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.moves import Move, Reason, Stage
from tests.builders import NOW, ZONES, anti_affinity, claim, expression, pods, shape
from tests.objects.fleets import Worker, changed, fleet, pool, running, worker

SMALL = shape("500m", "1Gi")
FOUR = ("a", "b", "c", "d")


def four() -> list[Worker]:
    return [worker(name) for name in FOUR]


def move(*sources: str, reason: Reason = Reason.UNDERUTILIZED, stage: Stage = Stage.PROPOSED) -> Move:
    return Move("m1", reason, sources, stage, NOW, NOW)


def test_an_empty_node_is_removed_without_a_replacement() -> None:
    found = propose(fleet(four(), running(shape("3900m", "15Gi"), {"a": 1, "b": 1, "c": 1})))
    empty = [p for p in found.proposals if p.reason is Reason.EMPTY]
    assert [p.sources for p in empty] == [("claim-d",)]
    assert not empty[0].replacements
    assert empty[0].saving_hourly_usd == pytest.approx(0.192)


@pytest.mark.parametrize(
    ("owner", "reason", "placed"),
    [("ReplicaSet/web", Reason.EMPTY, 0), ("StatefulSet/db", Reason.UNDERUTILIZED, 1)],
)
def test_a_pod_being_deleted_needs_a_place_only_if_it_returns(
    owner: str, reason: Reason, placed: int
) -> None:
    """A ReplicaSet has created another pod already; a StatefulSet recreates the same one once it is gone."""
    leaving = running(shape("500m", "1Gi", owner=owner), {"a": 1}, deleting=True)
    (one,) = propose(fleet([worker("a")], leaving)).proposals
    assert (one.reason, len(one.destinations)) == (reason, placed)


def test_half_empty_nodes_become_fewer_and_every_pod_has_a_place() -> None:
    pods = running(SMALL, dict.fromkeys(FOUR, 2))
    found = propose(fleet(four(), pods))
    (one,) = found.proposals
    assert one.reason is Reason.UNDERUTILIZED
    assert len(one.replacements) < len(one.sources)
    moved = {pod.key for pod in pods if f"claim-{pod.node}" in one.sources}
    assert one.destinations.keys() == moved
    assert one.worth_usd > 0


def thirds(*sizes: str) -> Inputs:
    """Return three nodes of 8 vCPUs with 4, 3 and 3 pods of 1 vCPU; a node holds seven, and `sizes` may be bought."""
    workers = [worker(name, "c6a.2xlarge", cpu="7900m", memory="14Gi") for name in "abc"]
    wanted = [("node.kubernetes.io/instance-type", sizes), ("karpenter.sh/capacity-type", ("on-demand",))]
    only = pool(requirements=[expression(key, "In", *values) for key, values in wanted])
    return fleet(workers, running(shape("1", "1Gi"), {"a": 4, "b": 3, "c": 3}), pools=[only])


def test_a_node_is_not_replaced_by_an_equal_one() -> None:
    (one,) = propose(thirds("c6a.2xlarge")).proposals
    assert (len(one.sources), one.replacements, one.eviction_cost) == (1, (), 3)


def test_a_node_that_would_be_bought_again_stays_and_the_move_saves_as_much() -> None:
    (one,) = propose(thirds("c6a.2xlarge", "c6a.xlarge")).proposals
    assert (set(one.sources), len(one.replacements), one.eviction_cost) == ({"claim-b", "claim-c"}, 1, 6)
    assert one.saving_hourly_usd == pytest.approx(1.5 * 0.306)


def of_one_size(*workers: str, **fields: Any) -> Inputs:
    """Return full nodes of a NodePool that may buy only more of the same."""
    wanted = {"node.kubernetes.io/instance-type": "m5.xlarge", "karpenter.sh/capacity-type": "on-demand"}
    only = pool(requirements=[expression(key, "In", value) for key, value in wanted.items()], **fields)
    return fleet(
        [worker(name) for name in workers],
        running(shape("3", "1Gi"), dict.fromkeys(workers, 1)),
        pools=[only],
    )


def test_a_node_reports_that_nothing_cheaper_holds_its_pods() -> None:
    found = propose(of_one_size("a", "b"))
    assert not found.proposals
    assert found.needed.keys() == {"claim-a", "claim-b"}
    assert all("cheaper" in why for why in found.needed.values())


def test_prices_that_concern_several_nodes_say_so() -> None:
    alone = "it cannot be replaced by anything cheaper: it costs 0.1920 USD an hour, and what its pods need 0.1920"
    together = "they cost 0.3840 USD an hour, and what their pods need 0.3840"
    unfinished = propose(of_one_size("a", "b"), steps=6).needed
    assert sorted(unfinished.values()) == [
        alone,
        f"with 1 other node: they cannot be replaced by anything cheaper: {together}",
    ]
    assert list(propose(of_one_size("a", "b")).needed.values()) == [alone, alone]


def full_beside_idle() -> Inputs:
    """Return a large node that nothing may replace, and a small one whose pods fit onto it."""
    workers = [worker("full", "m5.4xlarge", cpu="16", memory="64Gi"), worker("idle")]
    asks = [*running(shape("8", "16Gi", app="big"), {"full": 1}), *running(SMALL, {"idle": 2})]
    return fleet(workers, asks, pools=[pool(limits={"nodes": "2"})])


def test_a_node_whose_pods_fit_elsewhere_is_removed_beside_a_larger_one_that_must_stay() -> None:
    """The larger node promises more, but neither the two together nor it alone can be removed."""
    (one,) = propose(full_beside_idle()).proposals
    assert (one.sources, one.replacements) == (("claim-idle",), ())
    assert set(one.destinations.values()) == {"full"}


def test_nodes_that_are_removed_one_by_one_stay_within_budgets() -> None:
    workers = [worker("full", "m5.4xlarge", cpu="16", memory="64Gi"), *four()]
    asks = [*running(shape("8", "16Gi", app="big"), {"full": 1}), *running(SMALL, dict.fromkeys(FOUR, 4))]

    def ends(most: str) -> int:
        limited = pool(limits={"nodes": "5"}, budgets=[{"nodes": most}])
        return sum(len(one.sources) for one in propose(fleet(workers, asks, pools=[limited])).proposals)

    assert [ends(most) for most in ("0", "1", "100%")] == [0, 1, 2]


def test_what_was_found_for_one_node_is_not_replaced_by_what_was_found_for_several_nodepools() -> None:
    wanted = {"node.kubernetes.io/instance-type": "m5.xlarge", "karpenter.sh/capacity-type": "on-demand"}
    sizes = [expression(key, "In", value) for key, value in wanted.items()]
    names = "red", "blue"
    workers = [worker(name, pool=name) for name in names]
    full = running(shape("3", "1Gi"), dict.fromkeys(names, 1))
    pools = [pool(name, requirements=sizes) for name in names]
    found = propose(fleet(workers, full, pools=pools))
    assert all("it costs 0.1920 USD an hour" in why for why in found.needed.values()), found.needed
    assert found.needed.keys() == {"claim-red", "claim-blue"}


def test_a_node_names_its_pod_that_has_no_other_place_and_why_it_has_none() -> None:
    found = propose(of_one_size("a", limits={"cpu": "4"}))
    assert re.match(
        r"pod default/\S+ would have no node: NodePool default: its limit of 4 cpu is reached",
        found.needed["claim-a"],
    )


def test_each_node_of_a_set_that_cannot_be_removed_names_its_own_pod_that_has_no_other_place() -> None:
    wanted = {"node.kubernetes.io/instance-type": "m5.xlarge", "karpenter.sh/capacity-type": "on-demand"}
    sizes = [expression(key, "In", value) for key, value in wanted.items()]
    workers = [worker("a", pool="red"), worker("b", pool="blue"), worker("c", pool="blue")]
    pools = [
        pool(name, requirements=sizes, limits={"cpu": cpu}) for name, cpu in (("red", "4"), ("blue", "8"))
    ]
    found = propose(fleet(workers, running(shape("3", "1Gi"), dict.fromkeys("abc", 1)), pools=pools))
    why = "0 of 2 NodePools fit: 2 at their limit; nearest is NodePool blue: its limit of 8 cpu is reached"
    assert found.needed.keys() == {"claim-a", "claim-b", "claim-c"}
    for name in "abc":
        assert found.needed[f"claim-{name}"].startswith(
            f"pod default/on-{name}-0000 would have no node: {why}"
        )


def test_a_node_that_is_removed_is_not_reported_as_needed() -> None:
    found = propose(fleet(four(), running(SMALL, dict.fromkeys(FOUR, 2))))
    ends = {name for one in found.proposals for name in one.sources}
    assert ends
    assert not ends & found.needed.keys()


def test_a_node_whose_pods_fit_on_existing_nodes_needs_no_replacement() -> None:
    kept = {"karpenter.sh/do-not-disrupt": "true"}
    workers = [worker("big", "m5.8xlarge", cpu="32", memory="128Gi", annotations=kept), worker("small")]
    pods = running(shape("700m", "2Gi"), {"big": 32, "small": 3})
    inputs = fleet(workers, pods)
    found = propose(inputs)
    (one,) = [p for p in found.proposals if "claim-small" in p.sources]
    assert one.sources == ("claim-small",)
    assert set(one.destinations.values()) == {"big"}


def test_budgets_apply_whatever_the_saving() -> None:
    pods = running(SMALL, dict.fromkeys(FOUR, 1))
    found = propose(fleet(four(), pods, pools=[pool(budgets=[{"nodes": "2"}])]))
    assert sum(len(p.sources) for p in found.proposals) == 2
    assert {b.rule for b in found.blocked.values()} <= {"Budget", "Nominated"}


def test_sources_of_a_move_in_progress_count_for_the_budget_and_are_no_candidates() -> None:
    pods = running(SMALL, dict.fromkeys(FOUR, 1))
    inputs = fleet(four(), pods, pools=[pool(budgets=[{"nodes": "2"}])], moves=[move("claim-a")])
    found = propose(inputs)
    assert [len(p.sources) for p in found.proposals] == [1]
    assert found.blocked["claim-a"].rule == "Moving"
    assert "a" not in found.proposals[0].destinations.values()


def test_a_replacement_does_not_count_as_a_disruption() -> None:
    """Two nodes an hour may be disrupted: the source of the move in progress is one, its replacement is none."""
    slow = pool()
    slow["metadata"]["annotations"] = {MOST_AN_HOUR: "2"}
    under_way = replace(move("claim-a", stage=Stage.REPLACING), replacements=("claim-r",))
    inputs = fleet(
        four(), running(SMALL, {"a": 1}), pools=[slow], moves=[under_way], claims=[claim("claim-r")]
    )
    assert [len(p.sources) for p in propose(inputs).proposals] == [1]


def test_a_pod_with_do_not_disrupt_keeps_its_node() -> None:
    inputs = fleet([worker("a")], running(shape(), {"a": 1}))
    kept = inputs.snapshot.pods[0]
    kept.shape.annotations["karpenter.sh/do-not-disrupt"] = "true"  # type: ignore[index]
    found = propose(inputs)
    assert not found.proposals
    assert found.blocked["claim-a"].rule == "DoNotDisrupt"
    assert found.blocked["claim-a"].object == f"Pod/{kept.key}"


def test_a_well_packed_fleet_stays() -> None:
    workers = [worker(name, "c6a.xlarge", cpu="4", memory="8Gi", capacity_type="spot") for name in FOUR]
    found = propose(fleet(workers, running(shape("3500m", "5Gi"), dict.fromkeys(FOUR, 1))))
    assert not found.proposals


def test_pods_without_another_place_stay() -> None:
    alone = shape("100m", "64Mi", affinity=anti_affinity())
    pinned = pool(
        requirements=[{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["nowhere"]}]
    )
    found = propose(fleet([worker("a"), worker("b")], running(alone, {"a": 1, "b": 1}), pools=[pinned]))
    assert not found.proposals


def test_validation_returns_the_same_move_although_its_sources_are_tainted() -> None:
    pods = running(SMALL, dict.fromkeys(FOUR, 1))
    first = propose(fleet(four(), pods)).proposals[0]
    tainted = [changed(w, taints=(DISRUPTED,)) if w.claim.name in first.sources else w for w in four()]
    begun = move(*first.sources)
    again = look_again([begun], fleet(tainted, pods, moves=[begun]))[begun.id]
    assert isinstance(again, Proposal)
    assert again.sources == first.sources
    assert len(again.replacements) == len(first.replacements)


def test_validation_rejects_an_empty_node_that_has_received_a_pod() -> None:
    begun = move("claim-a", reason=Reason.EMPTY)
    tainted = changed(worker("a"), taints=(DISRUPTED,))
    again = look_again([begun], fleet([tainted], running(SMALL, {"a": 1}), moves=[begun]))[begun.id]
    assert isinstance(again, str)
    assert "now runs on it" in again


def test_moves_validated_together_use_no_capacity_twice_and_no_node_of_each_other() -> None:
    kept = worker("z", annotations={"karpenter.sh/do-not-disrupt": "true"})
    sources = [changed(worker(name), taints=(DISRUPTED,)) for name in "abc"]
    pods = running(shape("1500m", "1Gi"), {"a": 1, "b": 1, "c": 1, "z": 1})
    moves = [replace(move(f"claim-{name}"), id=name) for name in "abc"]
    kinds = [("node.kubernetes.io/instance-type", "m5.xlarge"), ("karpenter.sh/capacity-type", "on-demand")]
    only = pool(requirements=[expression(key, "In", value) for key, value in kinds])
    found = look_again(moves, fleet([*sources, kept], pods, pools=[only], moves=moves))
    stand = [each for each in found.values() if isinstance(each, Proposal)]
    assert list(found) == ["a", "b", "c"]
    assert [dict(each.destinations) for each in stand] == [{pods[0].key: "z"}]


def test_an_empty_node_that_has_received_a_pod_drops_out_of_its_move() -> None:
    begun = move("claim-a", "claim-b", reason=Reason.EMPTY)
    tainted = [changed(worker(name), taints=(DISRUPTED,)) for name in "ab"]
    found = look_again([begun], fleet(tainted, running(SMALL, {"a": 1}), moves=[begun]))[begun.id]
    assert isinstance(found, Proposal)
    assert found.sources == ("claim-b",)


def test_sources_may_end_unless_they_received_a_pod_with_do_not_disrupt() -> None:
    begun = move("claim-a", stage=Stage.REPLACING)
    tainted = changed(worker("a"), taints=(DISRUPTED,))
    inputs = fleet([tainted], running(shape(), {"a": 1}), moves=[begun])
    assert may_end(begun, inputs) == ""
    inputs.snapshot.pods[0].shape.annotations["karpenter.sh/do-not-disrupt"] = "true"  # type: ignore[index]
    assert "do-not-disrupt" in may_end(begun, inputs)


def test_plans_for_a_large_fleet_may_be_dearer_by_the_least_saving_until_validation() -> None:
    few, many = (fleet([worker(f"n{n:02d}") for n in range(number)]) for number in (FEW, FEW + 1))
    assert Pass(few, DEFAULT_STEPS).good_enough == GOOD_ENOUGH
    assert Pass(many, DEFAULT_STEPS).good_enough == 1 + LEAST_SAVING
    assert Pass(many, DEFAULT_STEPS, validated=["claim-n00"]).good_enough == GOOD_ENOUGH


def test_consolidation_waits_for_consolidate_after() -> None:
    waiting = worker("a", last_pod_event_at=NOW - timedelta(seconds=20))
    found = propose(fleet([waiting], pools=[pool(after="30s")]))
    assert not found.proposals
    assert found.blocked["claim-a"].rule == "NotConsolidatable"


def beside_a_pending(of: Shape, running_on_a: Shape) -> Inputs:
    """Return two nodes in the only zone, of which the larger is enough, and a pod that has to wait."""
    large = running(shape("5", "1Gi", app="large"), {"b": 1})
    values = {ZONE: ZONES[:1], INSTANCE_TYPE: ("m5.xlarge", "m5.2xlarge"), CAPACITY_TYPE: ("on-demand",)}
    only = pool(requirements=[expression(key, "In", *allowed) for key, allowed in values.items()])
    there = [*running(running_on_a, {"a": 1}), *large, *pods(of, 1, prefix="late")]
    return fleet([worker("a"), worker("b", "m5.2xlarge", cpu="8", memory="32Gi")], there, pools=[only])


@pytest.mark.parametrize("repels", ["the pending pod", "the running pod"])
def test_a_pod_that_keeps_a_pending_pod_away_is_not_moved(repels: str) -> None:
    """Once it were evicted, the pending pod would take the zone, and the evicted pod could run nowhere."""
    anti = {name: anti_affinity(app, ZONE) for name, app in (("late", "here"), ("here", "late"))}
    late = shape("800m", "1Gi", app="late", affinity=anti["late"] if repels == "the pending pod" else {})
    here = shape("500m", "1Gi", app="here", affinity=anti["here"] if repels == "the running pod" else {})
    assert not propose(beside_a_pending(late, here)).proposals
    (alone,) = propose(beside_a_pending(shape("9", "1Gi", app="late"), here)).proposals
    assert alone.sources == ("claim-a",)


def test_a_pod_is_moved_although_another_one_of_its_workload_is_pending() -> None:
    """They are interchangeable: as many run as before, whichever gets the place."""
    web = shape("500m", "1Gi", affinity=anti_affinity(key=ZONE), owner="ReplicaSet/web")
    (found,) = propose(beside_a_pending(web, web)).proposals
    assert found.sources == ("claim-a",)
