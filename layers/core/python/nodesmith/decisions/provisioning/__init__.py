"""Provisioning: which nodes to buy so that every placeable pod is placed at the lowest price.

`decide` is the whole judgement: which pods, which nodes that are there already, which NodePools, which types; `record`
writes it down so that it can be explained and replayed.
"""

from nodesmith.decisions.provisioning.byhand import by_hand
from nodesmith.decisions.provisioning.decide import Inputs, decide
from nodesmith.decisions.provisioning.plan import Plan, PlannedNode, Unplaced
from nodesmith.decisions.provisioning.record import (
    canonical,
    decision_id,
    inputs_of,
    plan_item,
    record,
    replay,
)
from nodesmith.decisions.provisioning.rehearsal import rehearse
from nodesmith.decisions.provisioning.static import replicas

__all__ = [
    "Inputs",
    "Plan",
    "PlannedNode",
    "Unplaced",
    "by_hand",
    "canonical",
    "decide",
    "decision_id",
    "inputs_of",
    "plan_item",
    "record",
    "rehearse",
    "replay",
    "replicas",
]
