"""Move: one change of the fleet for the better, some nodes into others, as the ledger holds it until it is done.

A move disturbs nobody before its last step: what is to go is closed to new pods, looked at again, and ends only when
what replaces it is ready. Until then it can be abandoned, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple


class Reason(StrEnum):
    """Why nodes are disrupted. The words are Karpenter's, but for the last."""

    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    UNBALANCED = "Unbalanced"
    """its pods are too many in their zone, and its NodePool asks for that to be mended"""

    @property
    def budgeted(self) -> str:
        """The word by which a NodePool's budgets name it: they know Karpenter's three."""
        return Reason.UNDERUTILIZED.value if self is Reason.UNBALANCED else self.value


class MoveKind(NamedTuple):
    """A NodePool's moves for one reason: what fails for one of them keeps no other waiting."""

    nodepool: str
    reason: str


class Stage(StrEnum):
    """Where a move stands. It goes down this list, or is abandoned from anywhere above `ENDING`."""

    PROPOSED = "Proposed"
    """Its sources are tainted, so that no pod comes to them any more; it is looked at again a little later."""
    REPLACING = "Replacing"
    """It has stood the second look; its replacements, if any, are on their way."""
    ENDING = "Ending"
    """Its replacements are ready: its sources end. Nothing leads back from here."""
    ABANDONED = "Abandoned"
    """It is not to be: its sources are opened again, and what was bought for it goes."""


ONWARD: Mapping[Stage, frozenset[Stage]] = {
    Stage.PROPOSED: frozenset({Stage.REPLACING, Stage.ENDING, Stage.ABANDONED}),
    Stage.REPLACING: frozenset({Stage.ENDING, Stage.ABANDONED}),
    Stage.ENDING: frozenset(),
    Stage.ABANDONED: frozenset(),
}
"""What may follow what; after the last two a move is forgotten."""


@dataclass(frozen=True, slots=True)
class Move:
    """What is to become of some NodeClaims, by name. Prices are USD an hour; `id` is unique in the ledger."""

    id: str
    reason: Reason
    sources: tuple[str, ...]
    stage: Stage
    stage_since: datetime
    proposed_at: datetime
    replacements: tuple[str, ...] = ()
    """NodeClaims bought for it; empty before they are, and where its pods fit into free room."""
    saving_hourly_usd: float = 0.0
    """What the sources cost more than what replaces them; may be negative for drift."""
    harm: float = 0.0
    """What disrupting its pods costs, in evictions (Karpenter's eviction cost: an ordinary pod is 1)."""
    why: str = ""
    """In a sentence, for people: of the move, then of its being abandoned."""
    revision: int = 0
    """Counts writes to the ledger: the optimistic lock."""

    @property
    def is_over(self) -> bool:
        """True where nothing holds its sources any more but what is left to be tidied up."""
        return self.stage is Stage.ABANDONED

    def at(self, stage: Stage, now: datetime, **changes: Any) -> Move:
        """Return the move in its next stage. Raises ValueError where none leads there."""
        if stage not in ONWARD[self.stage]:
            raise ValueError(f"move {self.id}: no step leads from {self.stage} to {stage}")
        return replace(self, stage=stage, stage_since=now, **changes)


def to_item(move: Move) -> dict[str, Any]:
    """Write a move as JSON-able data."""
    return {
        "id": move.id,
        "reason": move.reason.value,
        "sources": list(move.sources),
        "stage": move.stage.value,
        "stage_since": move.stage_since.isoformat(),
        "proposed_at": move.proposed_at.isoformat(),
        "replacements": list(move.replacements),
        "saving_hourly_usd": move.saving_hourly_usd,
        "harm": move.harm,
        "why": move.why,
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
        harm=float(item["harm"]),
        why=item["why"],
        revision=int(item["revision"]),
    )
