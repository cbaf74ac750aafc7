"""Provisioning: which nodes to buy so that every placeable pod gets a node at the lowest price.

`decide` makes the whole decision: which pods, which existing nodes, which NodePools, which types. `plan` has its inputs
and its result, and writes both down so that it can be explained and replayed. docs/algorithms/provisioning.md walks
through the algorithm with an example.
"""

from nodesmith.decisions.provisioning.decide import Rehearsal, decide, replay
from nodesmith.decisions.provisioning.fairness import exceeds_steps, round_robin
from nodesmith.decisions.provisioning.nodeclaims import (
    as_pool,
    as_read,
    by_hand,
    is_about_to_buy,
    is_old,
    unread,
)
from nodesmith.decisions.provisioning.nodepools.static import replicas
from nodesmith.decisions.provisioning.plan import (
    Inputs,
    Plan,
    PlannedNode,
    Unplaced,
    decision_id,
    inputs_of,
    plan_item,
    record,
)
from nodesmith.model.apimachinery.frozen import canonical

__all__ = [
    "Inputs",
    "Plan",
    "PlannedNode",
    "Rehearsal",
    "Unplaced",
    "as_pool",
    "as_read",
    "by_hand",
    "canonical",
    "decide",
    "decision_id",
    "exceeds_steps",
    "inputs_of",
    "is_about_to_buy",
    "is_old",
    "plan_item",
    "record",
    "replay",
    "replicas",
    "round_robin",
    "unread",
]
