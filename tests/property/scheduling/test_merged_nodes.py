"""Merging the nodes that take none of the pending pods changes no decision, in any cluster."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings

from nodesmith.decisions.provisioning import decide, plan_item
from nodesmith.decisions.scheduling.topology import mergednodes
from nodesmith.model.snapshot import Snapshot
from tests.property.observation.clusters import clusters, made_from
from tests.samples import sampled


def decided(seen: Snapshot, *, few_nodes: int) -> tuple[float, dict[str, Any]]:
    """Return the lower bound and the rest of the plan if nodes are merged where there are more than `few_nodes`.

    The number of steps is left out, since a search ends sooner with a higher bound.
    """
    with patch.object(mergednodes, "FEW_NODES", few_nodes):
        plan = plan_item(decide(made_from(seen)))
    del plan["steps"]
    return plan.pop("boundHourlyUsd"), plan


@settings(max_examples=sampled(8, whole=400))
@given(seen=clusters())
def test_a_plan_is_the_same_whether_or_not_nodes_are_merged(seen: Snapshot) -> None:
    """Its bound may be higher: a merged node has no free capacity, of which a bound would use what no pod can use."""
    (bound, plan), (low, apart) = decided(seen, few_nodes=0), decided(seen, few_nodes=10**6)
    assert plan == apart
    assert low <= bound <= plan["priceHourlyUsd"] + 1e-6
