"""Metrics of disruption during moves: each decision is counted once, with Karpenter's labels."""

from __future__ import annotations

from datetime import timedelta

from nodesmith.model.ledger.moves import Stage
from nodesmith.model.metrics.metrics import Labels, Recorded
from tests.scenarios.moves import LIVES, ON_DEMAND, Life, settled, shrink
from tests.smallworld.world import STEP, World, pod_manifest

VOLUNTARY = "voluntary_disruption_"
REPLACED = {"decision": "replace", "reason": "underutilized", "consolidation_type": "single"}


def life(name: str) -> Life:
    return next(each for each in LIVES if each.name == name)


def counted(recorded: Recorded, name: str) -> list[tuple[dict[str, str], float]]:
    return [(dict(labels), amount) for labels, amount in recorded.counters.get(VOLUNTARY + name, {}).items()]


def shown(world: World, name: str) -> dict[str, float]:
    """Return the values of a gauge by its only label."""
    gauge = world.metrics.take().gauges[VOLUNTARY + name]
    return {_value(labels): value for labels, value in gauge.series.items()}


def _value(labels: Labels) -> str:
    ((_, value),) = labels
    return value


def test_replacing_a_node_by_a_cheaper_one_is_one_replace_decision() -> None:
    recorded = life("a node becomes a cheaper one").lived().metrics.take()
    assert counted(recorded, "decisions_total") == [(REPLACED, 1)]
    assert counted(recorded, "decisions_by_nodepool_total") == [({**REPLACED, "nodepool": "default"}, 1)]
    assert counted(recorded, "failed_validations_total") == []
    assert counted(recorded, "queue_failures_total") == []


def test_nodes_whose_pods_fit_elsewhere_are_delete_decisions() -> None:
    recorded = life("a node's pods find free room").lived().metrics.take()
    ((about, times),) = counted(recorded, "decisions_total")
    assert (about["decision"], about["reason"], times) == ("delete", "underutilized", 1)


def test_an_empty_node_is_a_decision_of_its_own_type() -> None:
    world = settled(6, ON_DEMAND)
    shrink(world, 0)
    world.live(timedelta(minutes=4))
    recorded = world.metrics.take()
    empty = {"decision": "delete", "reason": "empty", "consolidation_type": "empty"}
    assert counted(recorded, "decisions_total") == [(empty, 1)]


def test_each_unavailable_replacement_is_a_failure_of_the_queue() -> None:
    recorded = life("nothing is to be had").lived().metrics.take()
    ((about, failures),) = counted(recorded, "queue_failures_total")
    ((_, decisions),) = counted(recorded, "decisions_total")
    assert about == REPLACED
    assert (failures, decisions) == (1, 2), "one failed, and one was carried out later"


def test_a_node_that_gets_pods_before_validation_is_a_failed_validation() -> None:
    world = settled(6, ON_DEMAND)
    shrink(world, 0)
    while not [move for move in world.store.moves.values() if move.stage is Stage.PROPOSED]:
        world.live(STEP)
    world.cluster.pods["default/late"] = pod_manifest("late")
    world.wanted.add("late")
    node = next(iter(world.cluster.nodes))
    world.cluster.pods["default/late"]["spec"]["nodeName"] = node
    world.live(timedelta(seconds=40))
    recorded = world.metrics.take()
    assert counted(recorded, "failed_validations_total") == [({"consolidation_type": "empty"}, 1)]
    assert counted(recorded, "decisions_total") == []


def test_eligible_nodes_are_counted_by_reason() -> None:
    world = settled(6, ON_DEMAND)
    assert shown(world, "eligible_nodes") == {"empty": 0, "drifted": 0, "underutilized": 1}
    shrink(world, 0)
    while not world.store.moves:
        world.live(STEP)
    assert shown(world, "eligible_nodes") == {"empty": 1, "drifted": 0, "underutilized": 0}


def test_each_reason_of_a_search_and_the_whole_decision_are_timed() -> None:
    recorded = life("a node becomes a cheaper one").lived().metrics.take()
    durations = recorded.histograms[VOLUNTARY + "decision_evaluation_duration_seconds"]
    assert sorted(dict(labels)["reason"] for labels in durations) == [
        "drifted",
        "empty",
        "unbalanced",
        "underutilized",
    ]
    scheduling = recorded.histograms["scheduler_scheduling_duration_seconds"]
    assert sorted(dict(labels)["controller"] for labels in scheduling) == ["disruption", "provisioner"]
