"""What the search proposes and what it has examined: the data between search and execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.model.ledger.moves import Reason


@dataclass(frozen=True, slots=True)
class Proposal:
    """One move: these NodeClaims end, these nodes are bought first, and the remaining pods go into free capacity.

    Prices are in USD an hour. `destinations` maps each displaced pod (namespace/name) to the name of a Node or a claim.
    `worth_usd` is the move's value over the time that its saving is expected to last, less harm and overlap.
    """

    reason: Reason
    sources: tuple[str, ...]
    replacements: tuple[PlannedNode, ...] = ()
    destinations: Mapping[str, str] = field(default_factory=dict)
    saving_hourly_usd: float = 0.0
    harm: float = 0.0
    worth_usd: float = 0.0
    why: str = ""


BUDGET = "Budget"
"""The rule that a NodePool's disruption budgets allow no more disruptions."""
NOT_YET = "NotConsolidatable"
"""The rule that pods have come or gone too recently."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a node stays: one rule, and the object that the rule belongs to (`Kind/name`)."""

    rule: str
    object: str
    message: str


@dataclass(frozen=True, slots=True)
class Proposals:
    """The outcome of one pass.

    `proposals` are in the order in which they start. They are independent: no source is a destination of another, and
    together they respect all budgets. `blocked` has the claims that may not be disrupted now, and `looked_at` the time
    at which each claim was last considered for consolidation, both by claim name. `steps` counts simulated placements;
    `is_finished` is False if the pass ran out of steps before it had examined everything. `drift` has the reason for
    each claim that has drifted, `needed` the obstacle for each claim whose pods cannot be placed more cheaply.
    `eligible` is the number of nodes that may be disrupted for each reason, before budgets.
    """

    proposals: tuple[Proposal, ...] = ()
    blocked: Mapping[str, Blocker] = field(default_factory=dict)
    looked_at: Mapping[str, datetime] = field(default_factory=dict)
    steps: int = 0
    is_finished: bool = True
    drift: Mapping[str, str] = field(default_factory=dict)
    eligible: Mapping[Reason, int] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)
