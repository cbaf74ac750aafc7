"""Merging the nodes that take none of the pending pods changes no decision, in any cluster."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings

from nodesmith.decisions.provisioning import canonical, decide, plan_item
from nodesmith.decisions.scheduling.topology import mergednodes
from nodesmith.model.snapshot import Snapshot
from tests.property.clusters import clusters, made_from
from tests.samples import sampled


def decided(seen: Snapshot, *, few_nodes: int) -> bytes:
    """Return the plan if existing nodes are merged where there are more than `few_nodes` of them."""
    with patch.object(mergednodes, "FEW_NODES", few_nodes):
        plan = plan_item(decide(made_from(seen)))
    return canonical(plan)


@settings(max_examples=sampled(25, whole=400))
@given(seen=clusters())
def test_a_plan_is_the_same_whether_or_not_nodes_are_merged(seen: Snapshot) -> None:
    assert decided(seen, few_nodes=0) == decided(seen, few_nodes=10**6)
