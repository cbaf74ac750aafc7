"""What the search proposes, and what it has looked at: the words between searching and carrying out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.model.ledger.moves import Reason


@dataclass(frozen=True, slots=True)
class Proposal:
    """One move that would do: these NodeClaims end, these nodes are bought before, the rest finds room.

    Prices are USD an hour. `destinations` is where each displaced pod (namespace/name) would go: a Node's name, or a
    claim's. `worth_usd` is what the move brings over the time that it is expected to last, less harm and overlap.
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
"""The rule that a NodePool's disruption budgets allow no more."""
NOT_YET = "NotConsolidatable"
"""The rule that pods have come or gone too lately."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a node stays: one rule, and the object that it stands on (`Kind/name`)."""

    rule: str
    object: str
    message: str


@dataclass(frozen=True, slots=True)
class Proposals:
    """The outcome of one pass. `looked_at` says when each claim (by name) was last considered for consolidation.

    `proposals` are in the order in which they are to be begun, and do not touch each other: no source is a destination
    of another, and together they keep within all budgets. `blocked` are claims that may not be disrupted now. `steps`
    counts simulated placements; `is_finished` is False where the pass ran out of them before it had seen everything.
    `drift` says of the claims that are not what would be bought today why, `needed` of those for whose pods nothing
    better was found what stands in the way. `eligible` is how many nodes may be disrupted for each reason, as far as
    budgets allow.
    """

    proposals: tuple[Proposal, ...] = ()
    blocked: Mapping[str, Blocker] = field(default_factory=dict)
    looked_at: Mapping[str, datetime] = field(default_factory=dict)
    steps: int = 0
    is_finished: bool = True
    drift: Mapping[str, str] = field(default_factory=dict)
    eligible: Mapping[Reason, int] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)
