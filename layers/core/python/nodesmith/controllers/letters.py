"""Letters: messages of a queue that say more than "look", and what became of a batch of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Letter:
    """A message: an event of EC2 as EventBridge sent it, or a hint, and the account that the queue is in."""

    id: str
    event: str
    """JSON; empty for a hint."""
    account: str


@dataclass(slots=True)
class Report:
    """What became of a batch. `failed` are ids of letters to be given again, `rejected` why others never will be."""

    failed: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
