"""Splits: pods of a workload that stay off spot, in plans and in moves, and what is said about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.disruption.proposals import Proposals
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE
from nodesmith.model.kubernetes.pods import Pod, Shape
from tests import builders
from tests.builders import expression, inputs, node, nodepool_manifest, pods, shape, snapshot, spread
from tests.objects.fleets import fleet, pool, running, worker

BASE, PERCENT = "nodesmith.dev/on-demand-base", "nodesmith.dev/on-demand-percent"
BOTH = [
    expression(CAPACITY_TYPE, "In", "spot", "on-demand"),
    expression("karpenter.k8s.aws/instance-family", "In", "m5"),
]


def split(base: str = "", percent: str = "", of: Shape | None = None) -> Shape:
    """Return a shape whose workload has this split; two of its pods do not fit on an m5.large."""
    annotations = {key: value for key, value in ((BASE, base), (PERCENT, percent)) if value}
    return replace(of or shape("1", "1Gi"), annotations=FrozenMap(annotations))


def decided(waiting: list[Pod], *pools: dict[str, Any], **there: Any) -> Plan:
    bound = there.pop("pods", [])
    sold = pools or (nodepool_manifest(requirements=[*BOTH, expression(INSTANCE_TYPE, "In", "m5.large")]),)
    return decide(inputs(snapshot=snapshot(pods=[*waiting, *bound], nodepools=sold, **there)))


def bought(plan: Plan) -> dict[str, int]:
    """Return the number of pods that nodes are bought for, by capacity type."""
    found = {"spot": 0, "on-demand": 0}
    for each in plan.nodes:
        found[each.claim.capacity_type] += len(each.claim.nominated)
    return found


@pytest.mark.parametrize(
    ("base", "percent", "count", "off_spot"),
    [
        ("2", "", 6, 2),
        ("", "30", 10, 3),
        ("", "30", 6, 2),
        ("1", "50", 6, 3),
        ("9", "", 6, 6),
        ("0", "", 6, 0),
    ],
)
def test_the_larger_of_base_and_percent_stays_off_spot(
    base: str, percent: str, count: int, off_spot: int
) -> None:
    plan = decided(pods(split(base, percent), count))

    assert bought(plan) == {"on-demand": off_spot, "spot": count - off_spot}


def test_pods_that_run_on_demand_count_and_those_on_spot_do_not() -> None:
    of = split("3")
    nodes = (
        node("a", labels={CAPACITY_TYPE: "on-demand"}, cpu="2"),
        node("b", labels={CAPACITY_TYPE: "spot"}, cpu="2"),
    )
    there = [*builders.bind(of, "a", 2), *builders.bind(of, "b", 2)]

    assert bought(decided(pods(of, 4, prefix="new"), nodes=nodes, pods=there))["on-demand"] == 1


def test_pods_of_a_node_that_ends_no_longer_count() -> None:
    of = split("2")
    going = node("a", labels={CAPACITY_TYPE: "on-demand"}, deleting=True)

    assert bought(decided([], nodes=(going,), pods=builders.bind(of, "a", 2)))["on-demand"] == 2


def test_pods_with_a_split_take_free_capacity_off_spot_first_if_they_must() -> None:
    of = split("1")
    nodes = (
        node("a", labels={CAPACITY_TYPE: "on-demand"}, cpu="1"),
        node("b", labels={CAPACITY_TYPE: "spot"}, cpu="1"),
    )

    plan = decided(pods(of, 2), nodes=nodes)

    assert {name: len(keys) for name, keys in (plan.placed or {}).items()} == {"a": 1, "b": 1}


def test_workloads_count_apart() -> None:
    other = split("1", of=shape("1", "1Gi", app="other"))

    assert bought(decided([*pods(split("1"), 3), *pods(other, 3)]))["on-demand"] == 2


def test_the_reason_of_a_pod_that_nothing_off_spot_is_sold_for_names_its_split() -> None:
    spot_only = nodepool_manifest(requirements=[expression(CAPACITY_TYPE, "In", "spot")])

    plan = decided(pods(split("1"), 2), spot_only)

    (group,) = plan.unplaced
    assert len(group.pods) == 1
    assert group.reason.startswith(f"ReplicaSet default/web keeps 1 of 2 pods off spot ({BASE}: 1): ")
    assert "volumes" not in group.reason
    assert bought(plan)["spot"] == 1


def test_pods_that_may_only_run_on_spot_are_told_that_their_split_has_no_effect() -> None:
    of = split("1", of=shape(nodeSelector={CAPACITY_TYPE: "spot"}))

    plan = decided(pods(of, 2))

    assert bought(plan) == {"on-demand": 0, "spot": 2}
    (problem,) = plan.problems
    assert "its pods may only run on spot nodes" in problem


@pytest.mark.parametrize(
    ("base", "percent", "remedy"),
    [
        ("two", "", "must be a whole number of pods"),
        ("-1", "", "must be a whole number of pods"),
        ("", "30%", "without a percent sign"),
        ("", "101", "from 0 to 100"),
        ("", "٣", "from 0 to 100"),
    ],
)
def test_a_split_that_cannot_be_read_is_reported_and_ignored(base: str, percent: str, remedy: str) -> None:
    plan = decided(pods(split(base, percent), 2))

    assert bought(plan)["on-demand"] == 0
    (problem,) = plan.problems
    assert remedy in problem


def test_a_spread_over_capacity_types_is_planned_as_kube_scheduler_filters() -> None:
    of = shape("1", "1Gi", topologySpreadConstraints=spread(CAPACITY_TYPE, hard=True))

    assert sorted(bought(decided(pods(of, 7))).values()) == [3, 4]


def test_a_spread_over_capacity_types_counts_pods_that_run_and_waits_for_a_type_that_is_not_sold() -> None:
    of = shape("1", "1Gi", topologySpreadConstraints=spread(CAPACITY_TYPE, hard=True))
    there = node("a", labels={CAPACITY_TYPE: "spot"})

    plan = decided(pods(of, 3, prefix="new"), nodes=(there,), pods=builders.bind(of, "a", 2))

    assert bought(plan)["on-demand"] >= 2
    spot_only = nodepool_manifest(requirements=[expression(CAPACITY_TYPE, "In", "spot")])
    beside = node("b", labels={CAPACITY_TYPE: "on-demand"}, cpu="1")
    held = decided(pods(of, 4), spot_only, nodes=(beside,))
    assert sum(len(group.pods) for group in held.unplaced) == 1, "two on spot, one on the node"


class TestMoves:
    SOLD = pool(requirements=BOTH)

    def proposed(self, of: Shape, on: dict[str, int], *names: str, **there: Any) -> Proposals:
        """Look for moves of on-demand nodes (m5.2xlarge) with these names."""
        workers = [worker(name, "m5.2xlarge", cpu="8", memory="32Gi", **there) for name in names]
        return propose(fleet(workers, running(of, on), pools=[self.SOLD]))

    def test_without_a_split_on_demand_pods_move_to_spot(self) -> None:
        (move,) = self.proposed(shape("3", "12Gi"), {"a": 2}, "a").proposals

        assert {each.claim.capacity_type for each in move.replacements} == {"spot"}

    def test_a_move_that_would_leave_fewer_than_the_base_is_refused_with_its_reason(self) -> None:
        found = self.proposed(split("2", of=shape("3500m", "14Gi")), {"a": 2}, "a")

        assert not found.proposals
        assert found.needed["claim-a"].endswith(
            f"ReplicaSet default/web keeps 2 of 2 pods off spot ({BASE}: 2)"
        )

    def test_a_move_takes_pods_beyond_the_base_to_spot(self) -> None:
        (move,) = self.proposed(split("1", of=shape("3", "12Gi")), {"a": 2}, "a").proposals

        kept = [each for each in move.replacements if each.claim.capacity_type == "on-demand"]
        assert sum(len(each.claim.nominated) for each in kept) == 1

    def test_moves_of_one_pass_keep_the_base_together(self) -> None:
        """Each of three nodes could be replaced if the other two stayed."""
        found = self.proposed(split("2", of=shape("7", "28Gi")), {"a": 1, "b": 1, "c": 1}, "a", "b", "c")

        to_spot = [
            each
            for move in found.proposals
            for each in move.replacements
            if each.claim.capacity_type == "spot"
        ]
        assert sum(len(each.claim.nominated) for each in to_spot) == 1
