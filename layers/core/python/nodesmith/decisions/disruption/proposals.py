"""What the search proposes and what it has examined: the data between search and execution."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import fsum

from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.moves import Reason

BUDGET = "Budget"
"""The rule that a NodePool's disruption budgets allow no more disruptions."""
NOT_YET = "NotConsolidatable"
"""The rule that pods have come or gone too recently."""
UNREAD = "NodePoolUnread"
"""The rule that a NodePool has changed, and that readiness is about to read it."""
LARGEST_BATCH = 50
"""nodes: terminating a NodeClaim takes a handful of calls, and a run less than a minute"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One move: these NodeClaims end, these nodes are bought first, and the remaining pods go into free capacity.

    Prices are in USD an hour. `destinations` maps each displaced pod (namespace/name) to the name of a Node or a claim.
    `worth_usd` is the move's value over the time that its saving is expected to last, less its evictions and overlap.
    """

    reason: Reason
    sources: tuple[str, ...]
    replacements: tuple[PlannedNode, ...] = ()
    destinations: Mapping[str, str] = field(default_factory=dict)
    saving_hourly_usd: float = 0.0
    eviction_cost: float = 0.0
    worth_usd: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a node stays: one rule, and the object that the rule belongs to (`Kind/name`)."""

    rule: str
    object: str
    message: str


def without_nodepool(claim: NodeClaim, valid: Container[str], existing: Container[str]) -> Blocker:
    """Return why the node of a claim stays whose NodePool does not apply; the NodePools are given by name."""
    name, on = claim.nodepool, f"NodePool/{claim.nodepool}"
    if not name:
        message = "a user created its NodeClaim, which belongs to no NodePool"
        return Blocker("NodePool", f"NodeClaim/{claim.name}", message)
    if name in valid:
        return Blocker(UNREAD, on, f"its NodePool {name!r} has changed, and readiness reads it again")
    trouble = "is not valid: its status shows why" if name in existing else "does not exist"
    return Blocker("NodePool", on, f"its NodePool {name!r} {trouble}")


@dataclass(frozen=True, slots=True)
class Proposals:
    """The outcome of one pass.

    `proposals` are in the order in which they start. They are independent: no source is a destination of another, and
    together they respect all budgets. `blocked` has the claims that may not be disrupted now, and `looked_at` the time
    at which each claim was last considered for consolidation, both by claim name. `steps` counts simulated placements;
    `is_finished` is False if the pass ran out of steps before it had examined everything. `needed` has the obstacle for
    each claim whose pods cannot be placed more cheaply. `eligible` is the number of nodes that may be disrupted for
    each reason, before budgets.
    """

    proposals: tuple[Proposal, ...] = ()
    blocked: Mapping[str, Blocker] = field(default_factory=dict)
    looked_at: Mapping[str, datetime] = field(default_factory=dict)
    steps: int = 0
    is_finished: bool = True
    eligible: Mapping[Reason, int] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)


def in_batches(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the same proposals in order, with those of empty nodes joined into batches.

    Moves are validated separately, so one for many nodes is faster; these moves disrupt no pods.
    """
    empty = [proposal for proposal in proposals if proposal.reason is Reason.EMPTY]
    others = [proposal for proposal in proposals if proposal.reason is not Reason.EMPTY]
    starts = range(0, len(empty), LARGEST_BATCH)
    return [*(_batch(empty[start : start + LARGEST_BATCH]) for start in starts), *others]


def _batch(empty: Sequence[Proposal]) -> Proposal:
    if len(empty) == 1:
        return empty[0]
    saving = fsum(proposal.saving_hourly_usd for proposal in empty)
    sources = tuple(name for proposal in empty for name in proposal.sources)
    return Proposal(
        Reason.EMPTY,
        sources,
        saving_hourly_usd=saving,
        eviction_cost=fsum(proposal.eviction_cost for proposal in empty),
        worth_usd=fsum(proposal.worth_usd for proposal in empty),
        message=f"removing {len(sources)} nodes without pods saves {saving:.4f} USD an hour",
    )
