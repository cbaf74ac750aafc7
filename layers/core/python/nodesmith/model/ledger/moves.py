"""Move: one improvement of the fleet, which replaces some nodes by others, as the ledger holds it until it is done.

A move disrupts no pod before its last step. Its sources are closed to new pods and validated again, and end only when
their replacements are ready. Until then the move can be abandoned without leaving anything behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple


class Reason(StrEnum):
    """Why nodes are disrupted. All values except the last are Karpenter's."""

    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    UNBALANCED = "Unbalanced"
    """its zone has too many of its pods, and its NodePool has zone rebalancing enabled"""

    @property
    def budgeted(self) -> str:
        """The reason that a NodePool's budgets use for it: they only have Karpenter's three."""
        return Reason.UNDERUTILIZED.value if self is Reason.UNBALANCED else self.value


class MoveKind(NamedTuple):
    """A NodePool's moves for one reason. Back-offs of one kind do not affect other kinds."""

    nodepool: str
    reason: str


class Stage(StrEnum):
    """The stage of a move. A move goes down this list, or is abandoned from any stage before `ENDING`."""

    PROPOSED = "Proposed"
    """Its sources are tainted, so that no new pods come to them. It is validated again a little later."""
    REPLACING = "Replacing"
    """It has passed the second validation. Its replacements, if any, are being launched."""
    ENDING = "Ending"
    """Its replacements are ready, and its sources end. There is no way back."""
    ABANDONED = "Abandoned"
    """It will not be carried out: its sources are opened again, and its replacements end."""


ONWARD: Mapping[Stage, frozenset[Stage]] = {
    Stage.PROPOSED: frozenset({Stage.REPLACING, Stage.ENDING, Stage.ABANDONED}),
    Stage.REPLACING: frozenset({Stage.ENDING, Stage.ABANDONED}),
    Stage.ENDING: frozenset(),
    Stage.ABANDONED: frozenset(),
}
"""Stage → the stages that may follow it. After the last two, a move is forgotten."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of NodeClaims, which are given by name. Prices are in USD per hour. `id` is unique in the ledger."""

    id: str
    reason: Reason
    sources: tuple[str, ...]
    stage: Stage
    stage_since: datetime
    proposed_at: datetime
    replacements: tuple[str, ...] = ()
    """NodeClaims bought for it; empty before the purchase, or if its pods fit on existing nodes."""
    saving_hourly_usd: float = 0.0
    """The price of the sources less the price of their replacements; may be negative for drift."""
    eviction_cost: float = 0.0
    """The cost of disrupting its pods, in Karpenter's eviction cost: 1 for an ordinary pod."""
    message: str = ""
    """A sentence for users: the reason for the move, or for abandoning it once it is abandoned."""
    revision: int = 0
    """Number of writes to the ledger: the optimistic lock."""

    @property
    def is_over(self) -> bool:
        """True if the move is abandoned and only cleanup is left."""
        return self.stage is Stage.ABANDONED

    def at(self, stage: Stage, now: datetime, **changes: Any) -> Move:
        """Return the move in its next stage. Raises ValueError if no step leads there."""
        if stage not in ONWARD[self.stage]:
            raise ValueError(f"move {self.id}: no step leads from {self.stage} to {stage}")
        return replace(self, stage=stage, stage_since=now, **changes)


def to_item(move: Move) -> dict[str, Any]:
    """Write a move as JSON data."""
    return {
        "id": move.id,
        "reason": move.reason.value,
        "sources": list(move.sources),
        "stage": move.stage.value,
        "stage_since": move.stage_since.isoformat(),
        "proposed_at": move.proposed_at.isoformat(),
        "replacements": list(move.replacements),
        "saving_hourly_usd": move.saving_hourly_usd,
        "eviction_cost": move.eviction_cost,
        "message": move.message,
        "revision": move.revision,
    }


def from_item(item: Mapping[str, Any]) -> Move:
    """Read what `to_item` wrote."""
    return Move(
        id=item["id"],
        reason=Reason(item["reason"]),
        sources=tuple(item["sources"]),
        stage=Stage(item["stage"]),
        stage_since=datetime.fromisoformat(item["stage_since"]),
        proposed_at=datetime.fromisoformat(item["proposed_at"]),
        replacements=tuple(item["replacements"]),
        saving_hourly_usd=float(item["saving_hourly_usd"]),
        eviction_cost=float(item["eviction_cost"]),
        message=item["message"],
        revision=int(item["revision"]),
    )
