"""The baseline of the benchmarks moves as Karpenter does: onto what stands and one new node, never onto several."""

from __future__ import annotations

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.shadow.karpenter import one_command
from tests import builders
from tests.builders import expression, shape
from tests.objects.fleets import fleet, pool, running, worker

BIG = shape("3500m", "8Gi")


def m5(capacity_type: str, *sizes: str) -> dict[str, object]:
    """Return a NodePool of these sizes of m5, bought one way."""
    allowed = {"karpenter.sh/capacity-type": [capacity_type], "node.kubernetes.io/instance-type": sizes}
    return pool(requirements=[expression(key, "In", *values) for key, values in allowed.items()])


def test_three_nodes_become_one_though_two_smaller_ones_would_be_cheaper() -> None:
    workers = [worker(name, "m5.4xlarge", cpu="16", memory="64Gi") for name in ("a", "b", "c")]
    pods = running(BIG, {"a": 1, "b": 1, "c": 1})
    inputs = fleet(workers, pods, pools=[m5("on-demand", "m5.xlarge", "m5.2xlarge", "m5.4xlarge")])

    found = one_command(inputs)

    assert found is not None
    assert len(found.sources) == 3
    assert [len(node.claim.nominated) for node in found.replacements] == [3]
    ours = propose(inputs).proposals
    assert sum(len(proposal.replacements) for proposal in ours) > 1
    assert sum(proposal.saving_hourly_usd for proposal in ours) > found.saving_hourly_usd


def test_an_empty_node_stays_if_budgets_allow_no_disruption_and_others_are_examined() -> None:
    """Karpenter removes nothing either where a budget is 0, and goes on to its next method."""
    kept, open_to_moves = pool("kept", budgets=[{"nodes": "0"}]), pool("open")
    workers = [worker("empty", pool="kept"), worker("a", pool="open"), worker("b", pool="open")]
    inputs = fleet(workers, running(BIG, {"a": 1}), pools=[kept, open_to_moves])
    found = one_command(inputs)
    assert found is not None
    assert found.sources == ("claim-b",)

    busy = fleet(workers, running(shape("500m", "1Gi"), {"a": 1, "b": 1}), pools=[kept, open_to_moves])
    found = one_command(busy)
    assert found is not None
    assert "claim-empty" not in found.sources


def test_a_spot_node_is_changed_for_another_only_where_fifteen_types_are_cheaper() -> None:
    lone = [worker("a", "m5.4xlarge", cpu="16", memory="64Gi", capacity_type="spot")]
    pods = running(BIG, {"a": 1})

    assert one_command(fleet(lone, pods, pools=[m5("spot", "m5.xlarge", "m5.2xlarge", "m5.4xlarge")])) is None
    widely = pool(
        requirements=[expression("karpenter.sh/capacity-type", "In", "spot"), *builders.EXPRESS[1:]]
    )
    assert one_command(fleet(lone, pods, pools=[widely])) is not None
